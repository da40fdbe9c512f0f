"""Commands that start the program named by the rest of their arguments, such as `nice -n 10 claude`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_LAUNCHERS = {
    "command": "",
    "env": "uC",
    "exec": "a",
    "nice": "n",
    "nohup": "",
    "npx": "p",
    "setsid": "",
    "stdbuf": "ioe",
    "sudo": "CDRTUghprt",  # not -u: another user cannot read what relay gives the program
    "time": "fo",
    "uvx": "p",
}
"""The launchers, and their one-letter options that take a value (from their manual pages)."""

_VALUES = frozenset(
    {
        *("--adjustment", "--chdir", "--chroot", "--close-from", "--error", "--format", "--from", "--group"),
        *("--host", "--input", "--output", "--package", "--prompt", "--python", "--role", "--type"),
        *("--unset", "--with"),
    }
)
"""Their long options that take a value: the next word, unless there is a `=`."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def without_launchers(argv: Sequence[str]) -> list[str]:
    """Return `argv` without leading launchers, their options, and assignments; [] if nothing follows them."""
    words = list(argv)
    while words:
        if _ASSIGNMENT.match(words[0]):
            del words[0]
        elif (letters := _LAUNCHERS.get(PurePath(words[0]).name)) is not None:
            del words[0]
            while words and words[0].startswith("-"):
                option = words.pop(0)
                if option == "--":
                    break
                if words and _takes_next(option, letters):
                    del words[0]
        else:
            break
    return words


def _takes_next(option: str, letters: str) -> bool:
    """Return True if the word that follows `option` is its value."""
    if option.startswith("--"):
        return option in _VALUES
    first = next((at for at, letter in enumerate(option) if at and letter in letters), None)
    return first == len(option) - 1  # else there is none, or the value is joined to its letter
