"""The ring between the shim and its session: order, wrap-around, slow readers, torn records."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.errors import RelayError
from relay.shim import ring
from relay.shim.ring import OUTPUT, PAGE, RECORD, TYPED, RingWriter
from relay.shim.ring_reader import Record, RingReader
from support import LONG, many

TRAFFIC = Path(__file__).parent / "ring_traffic.py"


class Ring:
    """A writer and a reader of a small ring."""

    def __init__(self, size: int = 4096) -> None:
        self.fd = os.memfd_create("ring") if hasattr(os, "memfd_create") else ring.make()
        os.ftruncate(self.fd, PAGE + size)
        self.woken = 0
        self.writer = RingWriter(self.fd, self._wake)
        self.reader = RingReader(self.fd)

    def _wake(self) -> None:
        self.woken += 1

    def read(self) -> list[Record]:
        found = []
        while (record := self.reader.read()) is not None:
            found.append(record)
        return found


def read_joined(reader: RingReader, first: Record, most: int) -> list[Record]:
    return reader.read_output(first, most, lambda _: True)


@pytest.fixture
def small() -> Iterator[Ring]:
    each = Ring()
    yield each
    each.reader.close()
    os.close(each.fd)


def test_records_are_read_in_order(small: Ring) -> None:
    small.writer.output(b"one")
    small.writer.append(TYPED, b"key")
    small.writer.output(b"two")
    assert [(each.kind, each.data, each.offset) for each in small.read()] == [
        (OUTPUT, b"one", 3),
        (TYPED, b"key", 3),
        (OUTPUT, b"two", 6),
    ]
    assert small.reader.read() is None


@settings(max_examples=many(300))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=1500).map(lambda data: ("write", data)),
            st.integers(0, 5).map(lambda count: ("read", count)),
        ),
        max_size=60,
    )
)
def test_a_reader_gets_each_record_whole_and_once_or_learns_what_it_missed(
    steps: list[tuple[str, bytes | int]],
) -> None:
    each = Ring()
    written, got, missed = b"", b"", 0
    steps.append(("read", len(steps)))
    for _, value in steps:
        if isinstance(value, bytes):
            each.writer.output(value)
            written += value
            continue
        for _ in range(value):
            if (record := each.reader.read()) is None:
                break
            missed += each.reader.lost
            got += record.data
            # The data is what was written there.
            assert written[record.offset - len(record.data) : record.offset] == record.data
            assert record.offset == len(got) + missed
    each.reader.close()
    os.close(each.fd)


def test_output_is_joined_up_to_the_next_other_record(small: Ring) -> None:
    for data in (b"a", b"b", b"c"):
        small.writer.output(data)
    small.writer.append(TYPED, b"key")
    small.writer.output(b"d")
    first = small.reader.read()
    assert first is not None
    assert [each.data for each in small.reader.read_output(first, 100, lambda _: True)] == [
        b"b",
        b"c",
    ]
    assert [(each.kind, each.data) for each in small.read()] == [(TYPED, b"key"), (OUTPUT, b"d")]


def test_a_torn_record_is_not_read_until_it_is_whole(small: Ring) -> None:
    small.writer.output(b"torn")
    at = PAGE + RECORD.size
    os.pwrite(small.fd, b"X", at)  # as seen by another processor, on which the stores appear in another order
    assert small.reader.read() is None
    os.pwrite(small.fd, b"t", at)
    assert [each.data for each in small.read()] == [b"torn"]


@pytest.mark.parametrize("at", [*range(0, RECORD.size, 4), RECORD.size, RECORD.size + 3])
def test_a_torn_byte_anywhere_is_detected(small: Ring, at: int) -> None:
    """In the header or in the data: a record overwritten before it is complete is lost, and reported."""
    small.writer.output(b"torn")
    byte = os.pread(small.fd, 1, PAGE + at)
    os.pwrite(small.fd, bytes([byte[0] ^ 0x40]), PAGE + at)
    small.writer.output(b"behind it")
    assert small.reader.read() is None
    assert small.reader.pending
    os.pwrite(small.fd, byte, PAGE + at)
    for _ in range(4):
        small.writer.output(bytes(1000))
    found = small.reader.read()
    assert found is not None
    assert found.offset - len(found.data) == small.reader.lost >= len(b"torn")


class InterruptedReader(RingReader):
    """Calls `between` in the middle of each copy from the ring, where a writer's process may run."""

    between: Callable[[], None] | None = None

    def _get(self, position: int, length: int) -> bytes:
        middle = length // 2
        first = super()._get(position, middle)
        if self.between is not None:
            self.between()
        return first + super()._get(position + middle, length - middle)


@settings(max_examples=many(300))
@given(
    st.lists(st.integers(1, 1900), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(1, 1900), max_size=4), max_size=60),
    st.booleans(),
)
def test_data_overwritten_during_a_read_is_never_accepted(
    before: list[int], interruptions: list[list[int]], joined: bool
) -> None:
    """The writer may write anything in the middle of each copy."""
    each, written, got, missed = Ring(), b"", 0, 0
    reader = InterruptedReader(each.fd)

    def write(lengths: list[int]) -> None:
        nonlocal written
        for length in lengths:
            data = random.Random(len(written)).randbytes(length)
            written += data
            each.writer.output(data)

    write(before)
    reader.between = lambda: write(interruptions.pop()) if interruptions else None
    while interruptions or reader.pending:
        if (record := reader.read()) is None:
            if interruptions:
                write(interruptions.pop())
            continue
        missed += reader.lost
        for one in [record, *(read_joined(reader, record, 3000) if joined else ())]:
            got += len(one.data)
            assert written[one.offset - len(one.data) : one.offset] == one.data
            assert one.offset == got + missed
    assert got + missed == len(written)
    reader.close()
    os.close(each.fd)


def test_an_overrun_reader_joins_no_output_across_the_gap(small: Ring) -> None:
    small.writer.output(b"one")
    first = small.reader.read()
    assert first is not None
    for number in range(100):
        small.writer.output(b"%04d" % number * 20)
    assert read_joined(small.reader, first, 1 << 16) == []
    record = small.reader.read()
    assert record is not None
    assert small.reader.lost == record.offset - len(record.data) - len(b"one") > 0
    assert len(read_joined(small.reader, record, 1 << 16)) > 10


@pytest.mark.parametrize(
    ("size", "seed"), [*itertools.product((1 << 16, 1 << 20), range(3))][:: 1 if LONG else 2]
)
def test_reader_and_writer_may_each_stop_at_any_moment(size: int, seed: int) -> None:
    """The reader is woken whenever necessary, accepts no torn record, and knows what it has missed."""
    memory, total, chance = os.memfd_create("ring"), 16 << 20, random.Random(seed)
    os.ftruncate(memory, PAGE + size)
    RingWriter(memory, lambda: None)  # makes it a ring; the writer's process initialises it again
    taken, given = os.pipe()
    reader, writer = (
        subprocess.Popen(
            [sys.executable, TRAFFIC, role, str(memory), str(wake), *more],
            pass_fds=[memory, wake], stdout=subprocess.PIPE if role == "read" else None, text=True,
        )
        for role, wake, more in (("read", taken, ()), ("write", given, (str(total), str(seed))))
    )  # fmt: skip
    for fd in (memory, taken, given):
        os.close(fd)
    while reader.poll() is None:
        one = chance.choice((reader, writer))
        if one.returncode is None:
            one.send_signal(signal.SIGSTOP)
        writer.poll()
        # How long it is stopped, and how long both run: until the other has made progress.
        for _ in range(chance.randrange(200)):
            os.sched_yield()
        one.send_signal(signal.SIGCONT)
        for _ in range(chance.randrange(200)):
            os.sched_yield()
    assert (reader.wait(), writer.wait()) == (0, 0)
    assert reader.stdout is not None
    with reader.stdout:
        found = json.loads(reader.stdout.read())
    assert found["got"] + found["lost"] >= total
    assert found["got"] > 0 and found["naps"] > 0


def test_a_second_reader_continues_where_the_first_one_was(small: Ring) -> None:
    small.writer.output(b"one")
    small.writer.output(b"two")
    first = small.reader.read()
    assert first is not None
    small.reader.done(first)
    second = RingReader(small.fd)
    assert second.words[ring.READ] == first.next
    assert [each.data for each in iter(second.read, None)] == [b"one", b"two"]
    second.close()


def test_the_reader_is_woken_once_and_only_if_armed(small: Ring) -> None:
    small.writer.output(b"one")
    assert small.woken == 0
    small.reader.arm()
    small.writer.append(TYPED, b"key", wake=False)
    assert (small.woken, small.writer.unannounced) == (0, True)
    small.writer.output(b"two")
    small.writer.output(b"three")
    assert (small.woken, small.writer.unannounced) == (1, False)


def test_a_ring_of_another_version_is_refused(small: Ring) -> None:
    small.writer.words[ring.MAGIC_WORD] += 1
    with pytest.raises(RelayError, match="another version"):
        RingReader(small.fd)


def test_the_last_output_is_found_after_an_overrun(small: Ring) -> None:
    for number in range(100):
        small.writer.output(b"%04d" % number * 20)
    assert small.writer.last_output(100) == (b"0098" * 20 + b"0099" * 20)[-100:]
    assert len(small.writer.last_output(1 << 16)) < 4096


@pytest.mark.parametrize(
    ("output", "most", "last"),
    [
        (b"one\ntwo\n", 100, b"one\ntwo\n"),
        (b"one\ntwo\n", 8, b"one\ntwo\n"),
        (b"one\ntwo\n", 6, b"two\n"),
        (b"\x1b[1;31mred\x1b[5;1Hrow", 15, b"\x1b[5;1Hrow"),
        (b"", 100, b""),
    ],
)
def test_the_last_output_begins_with_a_whole_line_or_sequence(
    small: Ring, output: bytes, most: int, last: bytes
) -> None:
    small.writer.output(output)
    assert small.writer.last_output(most) == last


@settings(max_examples=many(200))
@given(st.lists(st.binary(max_size=700), max_size=20), st.integers(0, 12_000))
def test_output_since_any_byte_is_found(pieces: list[bytes], start: int) -> None:
    each = Ring()
    for piece in pieces:
        each.writer.append(TYPED, b"between")
        each.writer.output(piece)
    written = b"".join(pieces)
    found = each.writer.output_since(start)
    assert written[start:].endswith(found)
    if len(written) + 100 * len(pieces) < each.reader.size:
        assert found == written[start:]
    each.reader.close()
    os.close(each.fd)


def test_a_restarted_ring_has_nothing_of_the_last_agent(small: Ring) -> None:
    small.writer.output(b"the last agent's")
    small.reader.note_wait(small.reader.head, True)
    small.writer.restart()
    assert small.reader.last_wait == (0, False)
    assert not any(small.reader.words[ring.HEAD :])


def test_a_record_left_from_an_earlier_lap_is_not_read_again(small: Ring) -> None:
    """Another processor may see the new head before the record."""
    data = bytes(64 - RECORD.size)
    for _ in range(4096 // 64):
        small.writer.output(data)
    old = os.pread(small.fd, 64, PAGE)
    assert len(small.read()) == 4096 // 64
    small.writer.output(data)
    new = os.pread(small.fd, 64, PAGE)
    os.pwrite(small.fd, old, PAGE)
    assert small.reader.read() is None
    os.pwrite(small.fd, new, PAGE)
    assert [each.offset for each in small.read()] == [4096 // 64 * len(data) + len(data)]
