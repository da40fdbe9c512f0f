"""The session's side of the ring: reads records in order, and detects those it missed."""

from __future__ import annotations

import mmap
import zlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from relay.errors import RelayError
from relay.shim.ring import (
    ARMED,
    AT,
    BUT_OUTPUT,
    HEAD,
    MAGIC,
    MAGIC_WORD,
    OUTPUT,
    PAGE,
    READ,
    READ_OFFSET,
    RECORD,
    SIZE_WORD,
    SUMMED,
    TAIL,
    WAITED,
)

_TRIES = 100
"""Attempts to read an incomplete record before leaving it for later."""


class Record(NamedTuple):
    """One record.

    time:     monotonic time in seconds at which the shim wrote it.
    offset:   bytes of the agent's output up to the record's end, including lost ones.
    position: its position in the ring; `next` is the position of the next record.
    """

    kind: int
    data: bytes
    time: float
    offset: int
    position: int
    next: int


class Joined(NamedTuple):
    """The ring as a reader found it.

    resumes, offset: how far an earlier reader got, in the ring and in the agent's output.
    head:            the position after the newest record.
    """

    resumes: int
    offset: int
    head: int


class RingReader:
    """Reads the ring behind the descriptor `fd`. Raise RelayError if its version differs.

    words:  the words of the page, as in relay.shim.ring.
    size:   bytes of records.
    joined: the ring as this reader found it.
    lost:   bytes of output overwritten just before the last record read.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 0)
        view = memoryview(self._map)
        self.words = view[:PAGE].cast("Q")
        self._records = view[PAGE:]
        if self.words[MAGIC_WORD] != MAGIC or self.words[SIZE_WORD] != len(self._records):
            raise RelayError(
                "this agent's shim runs another version of relay, which this version cannot join."
            )
        self.size = len(self._records)
        self._next = self.words[TAIL]
        self._offset = 0
        self._ahead: deque[Record] = deque()
        self.lost = 0
        self.joined = Joined(self.words[READ], self.words[READ_OFFSET], self.words[HEAD])

    def read(self) -> Record | None:
        """Return the next record, or None if there is none yet; `lost` counts the bytes missing before it."""
        record = self._ahead.popleft() if self._ahead else self._take()
        if record is None:
            return None
        start = record.offset - (len(record.data) if record.kind == OUTPUT else 0)
        self.lost, self._offset = max(start - self._offset, 0), record.offset
        return record

    def read_if(self, kind: int) -> Record | None:
        """Return the next record as `read` does if it is of this `kind`; otherwise leave it there."""
        if not self._ahead and (record := self._take()) is not None:
            self._ahead.append(record)
        return self.read() if self._ahead and self._ahead[0].kind == kind else None

    def read_output(self, first: Record, most: int, joins: Callable[[Record], bool]) -> list[Record]:
        """Return the output records that follow `first`, about `most` bytes including `first`.

        Stop at a gap, or at a record for which `joins` returns False.
        """
        found, last = [], first
        most -= len(first.data)
        while most > 0 and (record := self._ahead.popleft() if self._ahead else self._take()) is not None:
            lost = record.offset - len(record.data) != last.offset
            if record.kind != OUTPUT or lost or not joins(record):
                self._ahead.append(record)
                break
            last = record
            most -= len(record.data)
            found.append(record)
        self._offset = last.offset
        return found

    @property
    def pending(self) -> bool:
        return bool(self._ahead) or self.words[HEAD] > self._next

    @property
    def head(self) -> int:
        """The position after the newest record."""
        return self.words[HEAD]

    @property
    def done_up_to(self) -> int:
        """The position up to which everything has been processed."""
        return self.words[READ]

    def begin(self, record: Record) -> None:
        """Mark `record` as being processed: it is to blame if the session dies now."""
        self.words[AT] = record.position + 1

    def done(self, record: Record) -> None:
        """Mark everything up to `record` as processed."""
        self.words[AT] = 0
        if record.next > self.words[READ]:  # else an earlier reader got further
            self.words[READ], self.words[READ_OFFSET] = record.next, record.offset

    @property
    def last_wait(self) -> tuple[int, bool]:
        """The position where the program was last found to wait (0: never), and True if this was certain."""
        return self.words[WAITED] >> 1, bool(self.words[WAITED] & 1)

    def note_wait(self, position: int, sure: bool) -> None:
        """Record, for a later reader, that the program was found to wait at `position`."""
        self.words[WAITED] = position << 1 | sure

    def arm(self, *, output: bool = True) -> None:
        """Ask to be woken at the next record. Check `pending` afterwards: one may have just arrived.

        output: False: not for the agent's output.
        """
        self.words[ARMED] = 1 if output else BUT_OUTPUT

    def skip_to(self, position: int, offset: int) -> None:
        """Continue at `position`, where the agent's output is at `offset` bytes."""
        self._ahead.clear()
        self._next, self._offset = position, offset

    @property
    def tail(self) -> int:
        """The position of the oldest record."""
        return self.words[TAIL]

    def disarm(self) -> None:
        self.words[ARMED] = 0

    def close(self) -> None:
        self._records.release()
        self.words.release()
        self._map.close()

    def _take(self) -> Record | None:
        """Copy the next record. If it is overwritten meanwhile, continue with the oldest."""
        for _ in range(_TRIES):
            position = max(self._next, self.words[TAIL])
            if position >= self.words[HEAD]:
                return None
            at, nanoseconds, before, length, kind, sum_ = RECORD.unpack(self._get(position, RECORD.size))
            if at == position and length <= self.size:
                data = self._get(position + RECORD.size, length)
                if zlib.crc32(data, zlib.crc32(SUMMED.pack(at, nanoseconds, before, length, kind))) == sum_:
                    self._next = position + RECORD.size + length
                    offset = before + (length if kind == OUTPUT else 0)
                    return Record(kind, data, nanoseconds / 1e9, offset, position, self._next)
            # Either this CPU does not see all of it yet, or it was overwritten: TAIL tells which.
        return None

    def _get(self, position: int, length: int) -> bytes:
        at = position % self.size
        piece = self._records[at : at + length].tobytes()
        return piece if len(piece) == length else piece + self._records[: length - len(piece)].tobytes()
