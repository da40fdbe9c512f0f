"""Bells, titles and status reports that relay inserts into the agent's output on the user's terminal.

They don't move the cursor, so they can go anywhere except inside an escape sequence or a character of the
agent's, which a read of its terminal may have split.
"""

from __future__ import annotations

import re

_ESC = b"\x1b"
_WINDOW = 4096
"""Bytes kept from the end of the output."""

# ECMA-48 sections 5.3 to 5.6: an unfinished escape sequence, control sequence or control string.
_CUT = re.compile(rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\a\x18\x1a]*)\Z")
_CUT_CHARACTER = re.compile(
    rb"(?:[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})\Z"
)  # UTF-8


class Asides:
    """Queues bytes until the output is between sequences. waiting: the queue is not empty."""

    def __init__(self) -> None:
        self.waiting = False
        self._queue = bytearray()
        self._tail = b""  # the end of the output, at least from its last escape character

    def output(self, data: bytes) -> None:
        tail = data if _ESC in data else self._tail + data
        if len(tail) > _WINDOW:
            # A control string, such as an image, may be any length: keep its introducer.
            start = tail.rfind(_ESC)
            open_ = tail[start : start + 2] if start >= 0 and _CUT.match(tail, start) else b""
            tail = open_ + tail[-_WINDOW:]
        self._tail = tail

    def add(self, data: bytes) -> None:
        self._queue += data
        self.waiting = True

    def due(self) -> bytes:
        """Return the bytes that may be written now, and clear the queue."""
        last = self._tail.rfind(_ESC)
        if (last >= 0 and _CUT.match(self._tail, last)) or _CUT_CHARACTER.search(self._tail[-3:]):
            return b""
        data = bytes(self._queue)
        self.clear()
        return data

    def clear(self) -> None:
        self._queue.clear()
        self.waiting = False
