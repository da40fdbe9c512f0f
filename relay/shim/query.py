"""The query of OSC 7501, the Program Status Protocol: does this terminal accept a program's status reports?

    ESC ] 7501 ; ? ST        a terminal that accepts reports echoes these bytes (ST = ESC \\ or BEL)

A program sends the query together with one that every terminal answers, and the first answer decides.  So the
shim finds the query in the agent's output, and the answer in the input from the user's terminal.
relay.terminal.status reads the reports themselves.
"""

from __future__ import annotations

ESC = b"\x1b"
QUERY = b"\x1b]7501;?\x1b\\"
CLEAR = b"\x1b]7501;state=clear\x1b\\"
"""The report that removes the root record and everything below it."""

SPLIT_TIMEOUT = 0.005
"""Seconds after which the start of an answer counts as keys: a terminal writes an answer in one piece."""

_OPEN = QUERY[:-2]


def sift(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return (`data` without queries, the queries, an incomplete query at the end of `data`)."""
    found: list[bytes] = []
    rest, at = bytearray(), 0
    while (start := data.find(_OPEN, at)) >= 0:
        over = start + len(_OPEN)
        end = data[over : over + 2]
        if end in (b"", ESC):
            return bytes(rest + data[at:start]), found, data[start:]
        terminator = 1 if end[:1] == b"\a" else 2 if end == b"\x1b\\" else 0
        if terminator:
            rest += data[at:start]
            found.append(data[start : over + terminator])
        else:
            rest += data[at:over]  # another sequence
        at = over + terminator
    end_of_rest = max(at, len(data) - _tail(data))
    return bytes(rest + data[at:end_of_rest]), found, data[end_of_rest:]


def _tail(data: bytes) -> int:
    """Return how many bytes at the end of `data` may start a query."""
    end = data[-len(_OPEN) :]
    start = end.rfind(ESC)
    return len(end) - start if start >= 0 and _OPEN.startswith(end[start:]) else 0


class QueryFinder:
    """Finds the queries in a stream that arrives in pieces. sequences: it contained an escape sequence."""

    def __init__(self) -> None:
        self.sequences = False
        self._open = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the queries that end in `data`."""
        if not self._open:
            if ESC not in data:
                return []
            self.sequences = True
            if _OPEN not in data and ESC not in data[-len(_OPEN) :]:
                return []
        _, found, self._open = sift(self._open + data)
        return found


class AnswerFilter:
    """Removes the answers, but no keys, from a terminal's input.

    expected: a query was sent; until then, the filter passes everything.
    answered: this terminal has answered.
    """

    def __init__(self) -> None:
        self.expected = False
        self.answered = False
        self._kept = b""

    @property
    def unfinished(self) -> bool:
        """True while input is kept that may start an answer: `flush` is due after SPLIT_TIMEOUT."""
        return bool(self._kept)

    def feed(self, data: bytes) -> bytes:
        """Return the part of the input for the agent."""
        if not self.expected or not (self._kept or ESC in data):
            return data
        rest, found, self._kept = sift(self._kept + data)
        self.answered = self.answered or bool(found)
        return rest

    def flush(self) -> bytes:
        """Return the kept input, which turned out not to be an answer."""
        kept, self._kept = self._kept, b""
        return kept
