"""Bells, titles and status reports that relay writes to the user's terminal between the agent's output.

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
_CUT_CHARACTER = re.compile(
    rb"(?:[\xc0-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf7][\x80-\xbf]{0,2})\Z"
)  # UTF-8


class Asides:
    """Queues bytes until the output is between sequences. waiting: some are queued."""

    def __init__(self) -> None:
        self.waiting = False
        self._queue = bytearray()
        self._tail = b""  # the end of the output, from its last escape character on at least

    def output(self, data: bytes) -> None:
        """Note the next output of the agent."""
        tail = data if _ESC in data else self._tail + data
        if len(tail) > _WINDOW:
            # A control string, such as an image, may have any length: its introducer is enough.
            start = tail.rfind(_ESC)
            open_ = tail[start : start + 2] if start >= 0 and _CUT.match(tail, start) else b""
            tail = open_ + tail[-_WINDOW:]
        self._tail = tail

    def add(self, data: bytes) -> None:
        """Queue `data`."""
        self._queue += data
        self.waiting = True

    def due(self) -> bytes:
        """Return the bytes that may be written now, and forget them."""
        last = self._tail.rfind(_ESC)
        if (last >= 0 and _CUT.match(self._tail, last)) or _CUT_CHARACTER.search(self._tail[-3:]):
            return b""
        data = bytes(self._queue)
        self.clear()
        return data

    def clear(self) -> None:
        self._queue.clear()
        self.waiting = False
