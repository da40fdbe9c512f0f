"""Floods of output: finding the parts that can matter and leaving out the rest.

A program that talks to people or agents writes little at a time; one that pours out a file fills the buffer.
Emulating a terminal for all of that would take longer than printing it.
"""

from __future__ import annotations

import re

from relay.readers.controls import only_colours
from relay.terminal.screen import VirtualScreen

_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_COLOURS = rb"(?:\x1b\[[0-9;:]*m)*"

FLOOD = 16 * 1024
"""Bytes in one feed that make it a flood; a read of a pseudo-terminal rarely exceeds 4 KB."""


def hit(marker: bytes) -> bytes:
    """Return the regular expression of all that matters in a flood of plain text: directives, code fences."""
    return directive(marker) + rb"|" + FENCES


FENCES = rb"```|~~~"


def directive(marker: bytes) -> bytes:
    """Return the regular expression of the beginning of a directive."""
    return re.escape(marker) + rb"[A-Za-z][A-Za-z0-9_-]*:\S"


def coloured(marker: bytes) -> bytes:
    """Return the same with changes of colour anywhere in it."""
    return re.escape(marker) + _COLOURS + rb"[A-Za-z](?:[A-Za-z0-9_-]|" + _COLOUR.pattern + rb")*:"


def fenced(data: bytes) -> bool:
    """Return False if no code fence is in `data`. (The search for one byte is six times as fast.)"""
    return (b"`" in data and b"```" in data) or (b"~" in data and b"~~~" in data)


def visible_part(data: bytes, screen: VirtualScreen) -> bytes:
    """Return the part of `data` that decides what `screen` shows: in a flood of plain text, the tail."""
    if len(data) < FLOOD or b"\x0e" in data or b"\x0f" in data or not screen.ground or not only_colours(data):
        return data
    at = len(data)
    for _ in range(screen.height + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    # The tail begins in the colours that were set since all were reset.
    reset = max(data.rfind(b"\x1b[0m", 0, at), data.rfind(b"\x1b[m", 0, at), 0)
    return b"\r" + b"".join(_COLOUR.findall(data, reset, at)) + data[at:]
