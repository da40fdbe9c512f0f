"""A flood of output: what of it can matter, and what can be left out.

A program that speaks to people or agents writes little at a time; one that pours out a file fills the buffer.
Emulating a terminal for all of that would take longer than printing it.
"""

from __future__ import annotations

import re

from relay.terminal.screen import Screen

FLOOD = 16 * 1024
"""Bytes in one feed from which on it is a flood; a read of a pseudo-terminal rarely exceeds 4 KB."""


def hit(marker: bytes) -> bytes:
    """Regular expression of what can matter in a flood of plain text: directives and code fences."""
    return re.escape(marker) + rb"[A-Za-z][A-Za-z0-9_-]*:\S|```|~~~"


def visible_part(data: bytes, screen: Screen) -> bytes:
    """The part of `data` that decides what `screen` shows: in a flood of plain text, the tail."""
    if len(data) < FLOOD or b"\x1b" in data or b"\x0e" in data or b"\x0f" in data or not screen.ground:
        return data
    at = len(data)
    for _ in range(screen.height + 1):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return b"\r" + data[at:]
