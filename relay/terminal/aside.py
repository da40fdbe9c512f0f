"""What is written to the person's terminal beside the agent's output: bells, titles, status reports.

They move no cursor, so they may stand anywhere but within a sequence or a character of the agent's, which a
read of its terminal may have cut.
"""

from __future__ import annotations

import re

_ESC = b"\x1b"
_WINDOW = 4096
"""Bytes at the end of the output that are kept."""

# ECMA-48 sections 5.3 to 5.6: an escape sequence, a control sequence, a control string, each unfinished.
_CUT = re.compile(rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\a\x18\x1a]*)\Z")


def _cut_character(data: bytes) -> bool:
    """Whether `data` ends within a character of UTF-8."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = (
                2 if 0xC0 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4 if 0xF0 <= byte < 0xF8 else 1
            )
            return needed > back
    return False


class Asides:
    """What waits for the end of a sequence. `waiting`: something does."""

    def __init__(self) -> None:
        self.waiting = False
        self._queue = bytearray()
        self._said = b""  # the end of the output, from its last escape character on at the least

    def said(self, data: bytes) -> None:
        """The agent's output goes on with `data`."""
        said = data if _ESC in data else self._said + data
        if len(said) > _WINDOW:
            # A control string may be of any length, such as an image: its introducer is what counts.
            start = said.rfind(_ESC)
            open_ = said[start : start + 2] if start >= 0 and _CUT.match(said, start) else b""
            said = open_ + said[-_WINDOW:]
        self._said = said

    def add(self, data: bytes) -> None:
        self._queue += data
        self.waiting = True

    def due(self) -> bytes:
        """What may be written now."""
        last = self._said.rfind(_ESC)
        if (last >= 0 and _CUT.match(self._said, last)) or _cut_character(self._said):
            return b""
        data = bytes(self._queue)
        self.clear()
        return data

    def clear(self) -> None:
        self._queue.clear()
        self.waiting = False
