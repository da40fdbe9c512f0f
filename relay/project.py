"""The current directory, and the folders that may hold the files of a project.

On the path to the agent's first byte: no pathlib.
"""

from __future__ import annotations

import os

from relay.errors import RelayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def current() -> str:
    """Return the path of the current directory. Raise RelayError if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise RelayError("the current directory was removed. Change into one that exists.") from None


def enter_again(env: Mapping[str, str]) -> str:
    """Return the path of the current directory, even if it was removed: then that of PWD in `env`.

    Change into the directory that is in its place now, if there is one.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        path = env.get("PWD", "")
        path = path if os.path.isabs(path) else "/"
        try:
            os.chdir(path)
        except OSError:
            pass  # there is none
        return path


def folders(directory: str) -> list[str]:
    """Return `directory` and its parents, up to the project's root (which has .git) or the home folder."""
    user, found = os.path.expanduser("~"), [directory]
    while found[-1] != user and not os.path.lexists(os.path.join(found[-1], ".git")):
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            break
        found.append(above)
    return found
