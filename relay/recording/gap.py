"""What a recording says where output was left out: a marker such as `266 kB left out`."""

from __future__ import annotations

import re

_MEGABYTE, _KILOBYTE = 1_000_000, 1000
_SAID = re.compile(r"(\d{1,9}(?:\.\d)?) ([kM])B left out")


def say(size: int) -> str:
    """The marker for `size` bytes."""
    if size >= _MEGABYTE:
        return f"{size / _MEGABYTE:.1f} MB left out"
    return f"{max(size // _KILOBYTE, 1)} kB left out"


def size(marker: str) -> int | None:
    """How many bytes a marker stands for; None if it is another one."""
    said = _SAID.fullmatch(marker)
    if said is None:
        return None
    return int(float(said[1]) * (_MEGABYTE if said[2] == "M" else _KILOBYTE))
