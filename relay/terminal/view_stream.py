"""The stream from a session to its agent's viewer: JSON objects, one per line, each followed by bytes.

    {"show": "screen", "size": N, "columns": C, "rows": R, "offset": O, "session": ID, "shim": PID}
                                                               N bytes that draw the screen
    {"show": "output", "size": N}                              N bytes of the output that follows
    {"exit": CODE, "again": BOOL}                              the agent has ended, and all output is shown

columns, rows: of the agent's terminal.  offset: the number of bytes that the agent had written by then.  The
session sends a screen first, and again when the viewer falls behind or the agent's terminal is resized.
again: another agent follows, over a new connection; its session has another ID, but the same shim.
"""

from __future__ import annotations

import json
from typing import Any

SCREEN, OUTPUT = "screen", "output"


def pack(show: str, data: bytes, **fields: Any) -> bytes:
    return json.dumps({"show": show, "size": len(data), **fields}).encode() + b"\n" + data


class Unpacker:
    """Splits the stream into its parts, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Return the parts that end in `data`, as (fields, bytes). Raise ValueError for an invalid part."""
        self._received += data
        found = []
        while (end := self._received.find(b"\n")) >= 0:
            fields = json.loads(self._received[:end])
            if not isinstance(fields, dict):
                raise ValueError("a part begins with a JSON object")
            over = end + 1 + int(fields.get("size", 0))
            if over > len(self._received):
                break
            found.append((fields, bytes(self._received[end + 1 : over])))
            del self._received[:over]
        return found
