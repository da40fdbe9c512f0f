"""Hides words of this process's command line, which every user of the machine can read (ps(1)), on Linux."""

from __future__ import annotations

import itertools
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OPTIONS = ("--broker", "--supervision", "--task")
"""Options whose values are the user's own: a URL with a password, or text (and relay.__main__ knows them)."""


def hide(words: Sequence[str]) -> None:
    """Overwrite the values of OPTIONS in this process's command line with x. words: those of `sys.argv`."""
    values = [value for option, value in itertools.pairwise(words) if option in OPTIONS]
    values += [word for word in words if word.partition("=")[0] in OPTIONS and "=" in word]
    if values and sys.platform == "linux":
        try:
            _overwrite({os.fsencode(value) for value in values})
        except (OSError, ValueError, IndexError):
            pass  # no /proc


def _overwrite(values: Iterable[bytes]) -> None:
    with open("/proc/self/cmdline", "rb") as file:
        shown = b"\0" + file.read()
    with open("/proc/self/stat", "rb") as file:
        start = int(file.read().rpartition(b")")[2].split()[45])  # arg_start, field 48 of proc_pid_stat(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for value in values:
            name, equals, _ = value.partition(b"=") if value.startswith(b"--") else (b"", b"", b"")
            at = -1
            while (at := shown.find(b"\0" + value + b"\0", at + 1)) >= 0:
                memory.seek(start + at + len(name + equals))
                memory.write(b"x" * (len(value) - len(name + equals)))
