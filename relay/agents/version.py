"""The version of an agent, and the versions that its profile was checked with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relay.agents.profile import Profile
from relay.text import one_line

ASKS = "--version"
"""The argument that makes every agent that relay has rules for print its version and exit."""

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+(?:[-+][0-9A-Za-z.-]+)?)")


def find(output: str) -> str:
    """Return the first version in a program's output; "" if there is none."""
    found = _VERSION.search(output)
    return "" if found is None else found[1]


def numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of `version`; () if it has none."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def program(profile: Profile) -> str | None:
    """Return the path of the agent's program in PATH; None if there is none, or no version was checked."""
    from shutil import which  # with all archivers, 2 ms

    named = (which(name) for name in profile.commands) if profile.checked else ()
    return next((path for path in named if path), None)


def unchecked(name: str, version: str, checked: Sequence[str]) -> str:
    """Return a line saying that `version` of the agent `name` was not checked; "" if it was."""
    if not version or version in checked:
        return ""
    return f"{name} {one_line(version, 30)} was not checked; its rules are for {', '.join(checked)}."
