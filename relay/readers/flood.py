"""Floods of output: find the parts that can matter and skip the rest.

A program that talks to users or agents writes little at a time; one that dumps a file fills the buffer.
Emulating a terminal for the whole file would take longer than printing it.
"""

from __future__ import annotations

import re

from relay.readers.controls import only_colours
from relay.terminal.screen import VirtualScreen

_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")

FLOOD = 16 * 1024
"""Bytes in one feed that make it a flood; a read of a pseudo-terminal rarely exceeds 4 KB."""


FENCES = rb"```|~~~"
"""The regular expression for the beginning of a code fence."""


def directive(marker: bytes) -> bytes:
    """Return the regular expression for the beginning of a directive."""
    return re.escape(marker) + rb"[A-Za-z][A-Za-z0-9_-]*:\S"


def coloured(marker: bytes) -> bytes:
    """Return the same expression with colour changes allowed anywhere in it."""
    colour = _COLOUR.pattern
    return re.escape(marker) + rb"(?:" + colour + rb")*[A-Za-z](?:[A-Za-z0-9_-]|" + colour + rb")*:"


def visible_part(data: bytes, screen: VirtualScreen) -> bytes:
    """Return the part of `data` that decides what `screen` shows: in a flood of plain text, the tail."""
    if len(data) < FLOOD or b"\x0e" in data or b"\x0f" in data or not screen.ground or not only_colours(data):
        return data
    at = len(data)
    for _ in range(screen.height + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    # The tail starts in the colours set since the last reset.
    reset = max(data.rfind(b"\x1b[0m", 0, at), data.rfind(b"\x1b[m", 0, at), 0)
    colours = dict.fromkeys(reversed(_COLOUR.findall(data, reset, at)))  # the last of equal ones is enough
    return b"\r" + b"".join(reversed(colours)) + data[at:]
