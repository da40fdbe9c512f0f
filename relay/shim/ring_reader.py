"""The session's side of the ring: reads records in order, and notices what was overwritten before it came."""

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
"""Looks at a record that is not whole before it is left for later."""


class Record(NamedTuple):
    """One record.

    time:     seconds, monotonic, at which the shim wrote it.
    offset:   bytes of the agent's output up to its end, those that were lost included.
    position: its place in the ring; `next` is that of the record behind it.
    """

    kind: int
    data: bytes
    time: float
    offset: int
    position: int
    next: int


class Joined(NamedTuple):
    """The ring as a reader found it.

    resumes, offset: up to where an earlier reader had come, in the ring and in the agent's output.
    head:            the position behind the newest record.
    """

    resumes: int
    offset: int
    head: int


class RingReader:
    """Reads the ring behind the descriptor `fd`. Raise RelayError for one of another version.

    words: those of the page, as in relay.shim.ring.
    size:  bytes of records.
    joined: the ring as this reader found it.
    lost:  bytes of output that were overwritten before the last record that was read.
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
        """Return the next record, None if there is none yet; `lost` says what is missing before it."""
        record = self._ahead.popleft() if self._ahead else self._take()
        if record is None:
            return None
        start = record.offset - (len(record.data) if record.kind == OUTPUT else 0)
        self.lost, self._offset = max(start - self._offset, 0), record.offset
        return record

    def read_output(self, first: Record, most: int, joins: Callable[[Record], bool]) -> list[Record]:
        """Return the records of output that follow `first`, with that some `most` bytes.

        Nothing was lost between them, and each `joins` those before.
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
        """True if there are records to read."""
        return bool(self._ahead) or self.words[HEAD] > self._next

    @property
    def head(self) -> int:
        """The position behind the newest record."""
        return self.words[HEAD]

    @property
    def done_up_to(self) -> int:
        """The position up to which everything has been dealt with."""
        return self.words[READ]

    def begin(self, record: Record) -> None:
        """Note that `record` is about to be dealt with: it is to blame if that ends the session."""
        self.words[AT] = record.position + 1

    def done(self, record: Record) -> None:
        """Note that everything up to `record` has been dealt with."""
        self.words[AT] = 0
        if record.next > self.words[READ]:  # else an earlier reader had come further
            self.words[READ], self.words[READ_OFFSET] = record.next, record.offset

    @property
    def last_wait(self) -> tuple[int, bool]:
        """The position at which the program was last found to wait, 0 if never, and True if that was sure."""
        return self.words[WAITED] >> 1, bool(self.words[WAITED] & 1)

    def note_wait(self, position: int, sure: bool) -> None:
        """Note that the program was found to wait at `position`, for a later reader of the same records."""
        self.words[WAITED] = position << 1 | sure

    def arm(self) -> None:
        """Ask to be woken at the next record. Look again afterwards: one may just have come."""
        self.words[ARMED] = 1

    def skip_to(self, position: int, offset: int) -> None:
        """Continue at `position`, where the agent's output had `offset` bytes."""
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
        """Copy the next record. One that is overwritten meanwhile is not whole: continue with the oldest."""
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
            # Not all of it is visible to this processor yet, or it was overwritten: TAIL says which.
        return None

    def _get(self, position: int, length: int) -> bytes:
        at = position % self.size
        piece = self._records[at : at + length].tobytes()
        return piece if len(piece) == length else piece + self._records[: length - len(piece)].tobytes()
