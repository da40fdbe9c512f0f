"""The folders that may hold the files of a project. On the path to the agent's first byte: no pathlib."""

from __future__ import annotations

import os


def folders(directory: str) -> list[str]:
    """Return `directory` and its parents, up to the project's root (which has .git) or the home folder."""
    user, found = os.path.expanduser("~"), [directory]
    while found[-1] != user and not os.path.lexists(os.path.join(found[-1], ".git")):
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            break
        found.append(above)
    return found
