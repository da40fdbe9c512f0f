"""The ring: an ordered log in shared memory, written by the shim and read by its session (ring_reader).

    page of words │ record record record ... ↺                 the oldest records are overwritten
    record: position, nanoseconds, output offset, length, kind, CRC-32 │ data

The writer never waits for a reader.  The reader may be killed and replaced at any moment; the ring keeps only
its progress.

This module is on the path to the agent's first byte: it imports little.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib

from relay.errors import RelayError

MAGIC = 0x72656C6179_01
"""`relay` and the version of the layout."""

PAGE = 4096
RECORD = struct.Struct("=QQQIII")
"""position, monotonic nanoseconds, bytes of output before it, length and kind of the data, CRC-32."""

SUMMED = struct.Struct("=QQQII")
"""What the CRC covers in addition to the data."""

SIZE = 8 << 20
"""Bytes of records. A filled mapping counts as the session's memory; 8 MB hold a few seconds of a flood."""

FIRST_SIZE = 1 << 18
"""Bytes of records reserved at first; reserving all takes 2.5 ms."""

# Indices of the words (64 bits, native order) in the page. The reader writes ARMED and those from READ on.
(
    MAGIC_WORD,
    SIZE_WORD,
    HEAD,
    TAIL,
    ARMED,
    READING,
    ACCEPTED,
    QUEUED,
    READ,
    READ_OFFSET,
    AT,
    READY,
    WAITED,
    READY_SINCE,
) = range(14)
"""
HEAD, TAIL: positions after the newest record and of the oldest.
ARMED:      the reader wants to be woken at the next record; BUT_OUTPUT: at the next that is not output.
READING:    output may be on its way from the terminal to the ring.
ACCEPTED:   bytes taken from orders to write; QUEUED: bytes not yet written to the agent's terminal.
READ:       the position up to which the reader has read; READ_OFFSET: the same in the agent's output.
AT:         the position of the record being processed, plus one; 0: none.
READY:      the generation of the session that is ready; READY_SINCE: monotonic nanoseconds.
WAITED:     twice the position where the program was last found to wait; odd if this was certain.
"""

BUT_OUTPUT = 2

(
    OUTPUT,
    TYPED,
    WRITTEN,
    RESIZED,
    LOST,
    DETACH,
    HELD,
    SETTLED,
    RESERVED,
    INPUT_OVER,
    ATTACHED,
    RESUMED,
    EXITED,
    ENDED,
    ERRORS,
    ECHOES,
) = range(16)
"""Kinds of records.

OUTPUT bytes from the agent
TYPED  bytes from the user       WRITTEN bytes by order; both precede their echo
RESIZED columns and rows         LOST   "terminal" or "pipe": the attached terminal has gone
DETACH the user asked to detach, and waits for the terminal
HELD   a terminal waits for a repaint before it is attached; no output follows until then
SETTLED the agent was stopped, and all of its output until then has been shown
RESERVED `reserve` took effect; no input from the user follows until it ends
INPUT_OVER the attached input, a pipe or a file, has ended
ATTACHED what is attached from now on: "watched", a terminal; "lent", a pipe or a file; or nothing
RESUMED the user has continued the stopped agent
EXITED the agent's exit code     ENDED  no output follows
ERRORS bytes from the agent's standard error, if that is a pipe: not part of what the agent says
ECHOES whether the terminal draws what is typed from now on: "1" or nothing; initially it does
"""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def make() -> int:
    """Return a descriptor of anonymous memory for a ring; reserve the first records. Raise RelayError."""
    with _Unlimited():
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("relay-ring", os.MFD_CLOEXEC)
        else:
            import tempfile  # 10 ms

            fd, path = tempfile.mkstemp(prefix="relay-ring-")
            os.unlink(path)
        os.ftruncate(fd, PAGE + SIZE)
    reserve(fd, FIRST_SIZE)
    return fd


def reserve(fd: int, size: int = SIZE) -> None:
    """Reserve memory for `size` bytes of records. Raise RelayError if there is none.

    Otherwise, a write into the mapping could kill the shim with SIGBUS.
    """
    with _Unlimited():
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, PAGE + size)


class _Unlimited:
    """Lifts `ulimit -f` for a block: the limit also applies to anonymous memory."""

    def __enter__(self) -> None:
        from resource import RLIMIT_FSIZE, getrlimit, setrlimit

        self._limits = getrlimit(RLIMIT_FSIZE)
        setrlimit(RLIMIT_FSIZE, (self._limits[1], self._limits[1]))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from resource import RLIMIT_FSIZE, setrlimit

        setrlimit(RLIMIT_FSIZE, self._limits)
        if isinstance(error, OSError):
            raise RelayError(
                f"cannot reserve 8 MB of memory: {error.strerror}. Free some space, or raise `ulimit -f`."
            ) from None


class RingWriter:
    """Appends records to the memory behind the descriptor `fd`; no other writer may map it.

    wake:           called if the reader asked to be woken.
    offset:         bytes of output so far.
    last_output_at: monotonic time in seconds of the last output.
    unannounced:    the reader was not woken for the newest record.
    """

    def __init__(self, fd: int, wake: Callable[[], None]) -> None:
        self._map = mmap.mmap(fd, 0)
        view = memoryview(self._map)
        self.words = view[:PAGE].cast("Q")
        self._records = view[PAGE:]
        self._size = len(self._records)
        self._wake = wake
        self._head = self._tail = 0
        self.offset = 0
        self.last_output_at = time.monotonic()
        self.unannounced = False
        self.words[SIZE_WORD] = self._size
        self.words[MAGIC_WORD] = MAGIC

    def output(self, data: bytes) -> None:
        self.append(OUTPUT, data)

    def append(self, kind: int, data: bytes = b"", *, wake: bool = True) -> None:
        """Append a record of at most half the ring. wake: wake the reader now, not at the next record."""
        position, length, offset, now = self._head, len(data), self.offset, time.monotonic_ns()
        sum_ = zlib.crc32(data, zlib.crc32(SUMMED.pack(position, now, offset, length, kind)))
        head = position + RECORD.size + length
        if head - self._tail > self._size:
            self._make_room(head)
        self._put(position, RECORD.pack(position, now, offset, length, kind, sum_))
        self._put(position + RECORD.size, data)
        if kind == OUTPUT:
            self.offset, self.last_output_at = offset + length, now / 1e9
        self._head = self.words[HEAD] = head
        if not wake:
            self.unannounced = True
        elif kind != OUTPUT or self.unannounced or self.words[ARMED] != BUT_OUTPUT:
            self.announce()

    def announce(self) -> None:
        """Wake the reader if it asked to be woken."""
        self.unannounced = False
        if self.words[ARMED]:
            self.words[ARMED] = 0
            self._wake()

    @property
    def head(self) -> int:
        """The position after the newest record."""
        return self._head

    def restart(self) -> None:
        """Start again for another agent; there must be no reader."""
        for word in range(HEAD, WAITED + 1):
            self.words[word] = 0
        self._head = self._tail = self.offset = 0
        self.unannounced = False
        self.last_output_at = time.monotonic()

    def kind(self, position: int) -> int | None:
        """Return the kind of the record at `position`, or None if it was overwritten."""
        if position < self._tail:
            return None
        return int(RECORD.unpack(self._get(position, RECORD.size))[4])

    def after(self, position: int) -> int:
        if position < self._tail:
            return self._tail
        return position + RECORD.size + int(RECORD.unpack(self._get(position, RECORD.size))[3])

    def output_since(self, start: int) -> bytes:
        """Return the agent's output from its byte `start` on, or `_whole` of the part not overwritten."""
        found = bytearray()
        at, first = self._tail, start
        while at < self._head:
            _, _, before, length, kind, _ = RECORD.unpack(self._get(at, RECORD.size))
            if kind == OUTPUT and before + length > start:
                first = first if found else max(before, start)
                found += self._get(at + RECORD.size, length)[max(start - before, 0) :]
            at += RECORD.size + length
        return bytes(found) if first == start else _whole(found)

    def last_output(self, most: int) -> bytes:
        """Return the end of the agent's output, `_whole`, at most `most` bytes."""
        start = max(self.offset - most, 0)
        found = self.output_since(start)
        return _whole(found) if start and len(found) == most else found

    def _make_room(self, head: int) -> None:
        """Drop the oldest records until those up to `head` fit."""
        tail = self._tail
        while head - tail > self._size:
            _, _, _, length, _, _ = RECORD.unpack(self._get(tail, RECORD.size))
            tail += RECORD.size + length
        self._tail = self.words[TAIL] = tail

    def _put(self, position: int, data: bytes) -> None:
        at = position % self._size
        room = self._size - at
        if len(data) <= room:
            self._records[at : at + len(data)] = data
        else:
            self._records[at:] = data[:room]
            self._records[: len(data) - room] = data[room:]

    def _get(self, position: int, length: int) -> bytes:
        at = position % self._size
        piece = bytes(self._records[at : at + length])
        return piece + bytes(self._records[: length - len(piece)])


def _whole(output: bytes | bytearray) -> bytes:
    """Return output that may start mid-line from its next line on, or else its next escape sequence."""
    line = output.find(b"\n")
    return bytes(output[line + 1 :] if line >= 0 else output[max(output.find(b"\x1b"), 0) :])
