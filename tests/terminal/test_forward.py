"""The forwarder between real terminals and pipes, without a session."""

from __future__ import annotations

import os
import pty
import select
import socket
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from relay.shim import ring
from relay.shim.forward import CHILD_LIMIT, PTY_PIECE, READ_SIZE, SINK_LIMIT, Forwarder
from relay.shim.lend import Lent
from relay.shim.loop import Loop
from relay.shim.pty import Pty, raw
from relay.shim.query import CLEAR, QUERY
from relay.shim.ring import ENDED, INPUT_OVER, LOST, OUTPUT, RESERVED, TYPED, RingWriter
from relay.shim.ring_reader import Record, RingReader
from support import wait_until


class Line:
    """A forwarder between the terminal of `agent` and two pipes, or a terminal as its display (`shown`).

    It runs on a separate thread, as in a shim; what the test asks of it runs there, too.
    """

    def __init__(self, *, shown: bool = False) -> None:
        master, self.agent = pty.openpty()
        termios.tcsetattr(self.agent, termios.TCSANOW, raw(termios.tcgetattr(self.agent)))
        self.pty = Pty(0, master)
        self.loop = Loop()
        fd = ring.make()
        self.told: list[str] = []
        self.forwarder = Forwarder(self.loop, self.pty, RingWriter(fd, lambda: None), self)
        self.reader = RingReader(fd)
        os.close(fd)
        self._records: list[Record] = []
        self._orders: deque[Callable[[], None]] = deque()
        wake, self._wake = os.pipe()
        self.loop.add(wake, select.POLLIN, lambda _: self._obey(wake))
        source, self.keyboard = os.pipe()
        self.display, sink = pty.openpty() if shown else os.pipe()
        self.lent = Lent(source, sink, interactive=False, saved=None)
        os.close(source)
        os.close(sink)
        self.open = {self.agent, self.keyboard, self.display, wake, self._wake}
        self.forwarder.lend(self.lent)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.forwarder.over:
            self.forwarder.turn()

    def _obey(self, wake: int) -> None:
        os.read(wake, 512)
        while self._orders:
            self._orders.popleft()()

    def do(self, order: Callable[[], None]) -> None:
        """Run `order` on the forwarder's thread, and wait until it is done."""
        done = threading.Event()
        self._orders += [order, done.set]
        os.write(self._wake, b"x")
        while not done.wait(0.01) and self._thread.is_alive():
            pass

    def lost(self, what: str) -> None:
        self.told.append(what)

    def command(self, command: str) -> None:
        self.told.append(command)

    def settled(self) -> None:
        self.told.append("settled")

    def input_over(self) -> None:
        self.told.append("input over")

    def ended(self) -> None:
        self.told.append("ended")

    def drawn_in_background(self) -> None:
        self.told.append("drawn")

    def close(self, fd: int) -> None:
        self.open.discard(fd)
        os.close(fd)

    def end(self) -> None:
        for fd in {self.agent, self.keyboard, self.display} & self.open:
            self.close(fd)
        self.finish()
        for fd in set(self.open):
            self.close(fd)
        self.reader.close()

    def finish(self) -> None:
        self.do(self.forwarder.finish)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def records(self) -> list[Record]:
        """Return what is in the ring so far."""
        while (record := self.reader.read()) is not None:
            self._records.append(record)
        return self._records

    def kinds(self) -> list[int]:
        return [record.kind for record in self.records]


@pytest.fixture
def line() -> Iterator[Line]:
    each = Line()
    yield each
    each.end()


def test_what_is_there_at_once_is_one_record(line: Line) -> None:
    """Each packet stands for a piece of 4 KB, as a read from a PTY returns; a short one is the last."""
    ours, agents = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pieces = [bytes([65 + number]) * PTY_PIECE for number in range(20)]
    for piece in (*pieces[:3], b"short", *pieces):
        agents.send(piece)
    fd = ring.make()
    forwarder = Forwarder(Loop(), Pty(0, ours.detach()), RingWriter(fd, lambda: None), line)
    reader = RingReader(fd)
    forwarder.turn()
    forwarder.turn()
    agents.close()
    forwarder.turn()
    records = [record for record in iter(reader.read, None) if record.kind == OUTPUT]
    whole = READ_SIZE // PTY_PIECE + 1
    assert [record.data for record in records] == [
        b"".join([*pieces[:3], b"short"]),
        b"".join(pieces[:whole]),
        b"".join(pieces[whole:]),
    ]
    forwarder.finish()
    while not forwarder.over:
        forwarder.turn()
    reader.close()
    os.close(fd)


def test_no_more_is_read_than_a_slow_terminal_may_queue(line: Line) -> None:
    os.set_blocking(line.agent, False)
    with suppress(BlockingIOError):
        for _ in range(3 * SINK_LIMIT // 4096):
            select.select([], [line.agent], [], 0.5)
            os.write(line.agent, bytes(4096))
    assert sum(len(record.data) for record in line.records if record.kind == OUTPUT) <= 3 * SINK_LIMIT // 2
    assert len(line.forwarder.user.queued) < SINK_LIMIT + READ_SIZE + PTY_PIECE


def test_piped_input_is_typed_by_nobody(line: Line) -> None:
    """Whatever its size, it leaves nothing in the tee."""
    data = os.urandom(1 << 20)
    os.set_blocking(line.keyboard, False)
    os.set_blocking(line.agent, False)
    got, sent = bytearray(), 0
    while len(got) < len(data):
        readable, writable, _ = select.select(
            [line.agent], [line.keyboard] if sent < len(data) else [], [], 20
        )
        assert readable or writable
        if writable:
            sent += os.write(line.keyboard, data[sent : sent + 4096])
        with suppress(BlockingIOError):
            got += os.read(line.agent, 1 << 16)
    assert got == data
    line.close(line.keyboard)
    wait_until(lambda: INPUT_OVER in line.kinds())
    assert TYPED not in line.kinds()


@pytest.fixture
def shown() -> Iterator[Line]:
    each = Line(shown=True)
    yield each
    each.end()


def test_an_agent_that_has_ended_needs_no_input(shown: Line) -> None:
    """While its last output is still being shown, an input that is never read is not waited for."""
    line, forwarder = shown, shown.forwarder
    said = 0
    while said < SINK_LIMIT // 2:
        said += os.write(line.agent, b"x" * 4096)
    source = line.lent.source
    wait_until(lambda: sum(len(each.data) for each in line.records if each.kind == OUTPUT) == said)
    assert source in line.loop.masks
    master = line.pty.master
    line.close(line.agent)
    os.write(line.keyboard, b"nobody reads this")
    wait_until(lambda: master not in line.loop.masks and source not in line.loop.masks)
    assert not forwarder.over
    read = 0
    while read < said:
        read += len(os.read(line.display, 1 << 16))
    assert read == said


def test_nothing_is_asked_of_a_terminal_that_is_over(line: Line) -> None:
    line.finish()
    assert line.forwarder.over
    assert line.kinds()[-1] == ENDED
    line.do(lambda: line.forwarder.reply(b"lost"))
    line.forwarder.resize(10, 10)
    assert line.pty.master == -1
    assert line.pty.attributes() is None
    assert line.pty.foreground() == 0
    assert not line.pty.output_pending()


def test_nothing_of_ours_is_shown_where_the_output_is_redirected(line: Line) -> None:
    assert line.lent.size() is None
    assert not line.forwarder.user.watched
    os.write(line.agent, b"agent")
    wait_until(lambda: OUTPUT in line.kinds())
    line.finish()
    assert os.read(line.display, 100) == b"agent"


def test_a_terminal_that_went_before_it_was_lent_is_lost_and_no_end_of_input(line: Line) -> None:
    """An end of input would be passed on to the agent, which would end."""
    master, slave = pty.openpty()
    os.close(master)
    lent = Lent(slave, slave, interactive=True, saved=None)
    line.do(lambda: line.forwarder.lend(lent))
    os.close(slave)
    wait_until(lambda: LOST in line.kinds())
    assert INPUT_OVER not in line.kinds()


# OSC 7501: who answers, and who is told.


class Person:
    """A user's terminal in raw mode, lent; `screen` is its other side."""

    def __init__(self, line: Line) -> None:
        self.screen, slave = pty.openpty()
        termios.tcsetattr(slave, termios.TCSANOW, raw(termios.tcgetattr(slave)))
        self.lent = Lent(slave, slave, interactive=True, saved=None)
        os.close(slave)
        line.open.add(self.screen)
        line.do(lambda: line.forwarder.lend(self.lent))


def read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        assert select.select([fd], [], [], 20)[0], data
        data += os.read(fd, size - len(data))
    return data


@pytest.mark.parametrize("query", [QUERY, b"\x1b]7501;?\x07"])
def test_the_query_is_answered_before_anything_after_it(line: Line, query: bytes) -> None:
    """The answer precedes the user's terminal's, which answers the rest; at every split."""
    user = Person(line)
    for at in range(1, len(query)):
        os.write(line.agent, query[:at])
        assert read_exactly(user.screen, at) == query[:at]
        os.write(line.agent, query[at:] + b"\x1b[c")
        assert read_exactly(user.screen, len(query) - at + 3) == query[at:] + b"\x1b[c"
        os.write(user.screen, query + b"\x1b[?62c" if at % 2 else b"\x1b[?62c")
        assert read_exactly(line.agent, len(query) + 6) == query + b"\x1b[?62c"


def test_without_a_terminal_the_query_is_answered_before_other_replies(line: Line) -> None:
    """R88: when detached, the virtual screen answers `CSI c` after the pump has read it."""
    line.do(lambda: line.forwarder.withdraw())
    os.write(line.agent, QUERY + b"\x1b[c")
    wait_until(lambda: OUTPUT in line.kinds())
    line.do(lambda: line.forwarder.reply(b"\x1b[?62c"))
    assert read_exactly(line.agent, len(QUERY) + 6) == QUERY + b"\x1b[?62c"


def test_the_answer_of_the_users_terminal_is_kept_from_the_agent(line: Line) -> None:
    user = Person(line)
    os.write(line.agent, QUERY)
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    assert read_exactly(line.agent, len(QUERY)) == QUERY
    os.write(user.screen, b"one" + QUERY + b"two\x1b[A")
    assert read_exactly(line.agent, 9) == b"onetwo\x1b[A"
    assert line.forwarder.user.keyboard.answers.answered


def test_keys_that_begin_like_an_answer_are_not_lost(line: Line) -> None:
    user = Person(line)
    line.do(lambda: line.forwarder.user.report(b"report"))
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    for keys in (b"\x1b", b"\x1b]", b"\x1b]7501;?\x1b"):
        os.write(user.screen, keys)
        assert read_exactly(line.agent, len(keys)) == keys
    assert not line.forwarder.user.keyboard.answers.answered


def test_a_terminal_is_told_only_after_it_has_answered(line: Line) -> None:
    """Each later terminal is asked separately; a detached one is told that there is no more status."""
    user = Person(line)
    line.do(lambda: line.forwarder.user.report(b"first"))
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    line.do(lambda: line.forwarder.user.report(b"second"))
    os.write(line.agent, b"agent")
    assert read_exactly(user.screen, 5) == b"agent"
    os.write(user.screen, QUERY)
    assert read_exactly(user.screen, 6) == b"second"
    line.do(lambda: line.forwarder.user.report(b"third"))
    assert read_exactly(user.screen, 5) == b"third"
    line.do(lambda: line.forwarder.withdraw())
    assert read_exactly(user.screen, len(CLEAR)) == CLEAR
    other = Person(line)
    assert read_exactly(other.screen, len(QUERY)) == QUERY
    line.do(lambda: line.forwarder.user.report(b"fourth"))
    os.write(other.screen, QUERY + b"x")
    assert read_exactly(line.agent, 1) == b"x"
    assert read_exactly(other.screen, 6) == b"fourth"


def test_a_report_reaches_no_redirected_output(line: Line) -> None:
    line.do(lambda: line.forwarder.user.report(b"report"))
    line.do(lambda: line.forwarder.user.aside(b"\a"))
    os.write(line.agent, b"agent")
    assert read_exactly(line.display, 5) == b"agent"
    line.finish()
    assert not select.select([line.display], [], [], 0)[0] or os.read(line.display, 9) == b""


def test_an_aside_does_not_cut_a_sequence_of_the_agents(line: Line) -> None:
    user = Person(line)
    os.write(line.agent, b"\x1b[3")
    assert read_exactly(user.screen, 3) == b"\x1b[3"
    line.do(lambda: line.forwarder.user.aside(b"\a"))
    os.write(line.agent, b"1m")
    assert read_exactly(user.screen, 3) == b"1m\a"
    line.do(lambda: line.forwarder.user.aside(b"\a"))
    assert read_exactly(user.screen, 1) == b"\a"


def test_queries_of_an_agent_that_reads_nothing_pile_up_nowhere(line: Line) -> None:
    line.do(lambda: line.forwarder.withdraw())
    for _ in range(40):
        os.write(line.agent, QUERY * 1000)
    wait_until(lambda: not line.pty.output_pending())
    assert len(line.forwarder.input.queued) < 3 * CHILD_LIMIT


def test_what_the_user_types_meanwhile_follows_what_is_written(line: Line) -> None:
    """The user's keys are neither merged with it nor lost."""
    line.do(lambda: line.forwarder.reserve(True))
    wait_until(lambda: RESERVED in line.kinds())
    os.write(line.keyboard, b"half a thought")
    line.do(lambda: line.forwarder.write(b"[one text]"))
    wait_until(lambda: not line.forwarder.input.queued)
    line.do(lambda: line.forwarder.write(b"\r"))
    wait_until(lambda: not line.forwarder.input.queued)
    line.do(lambda: line.forwarder.reserve(False))
    got = b""
    while len(got) < len("[one text]rhalf a thought"):
        got += os.read(line.agent, 100)
    assert got == b"[one text]\rhalf a thought"


def test_of_what_is_typed_without_an_echo_only_the_number_reaches_the_ring(line: Line) -> None:
    line.lent.interactive = True
    attributes = termios.tcgetattr(line.agent)
    attributes[3] = attributes[3] & ~termios.ECHO | termios.ICANON
    termios.tcsetattr(line.agent, termios.TCSANOW, attributes)

    def typed() -> bytes:
        return b"".join(record.data for record in line.records if record.kind == TYPED)

    os.write(line.keyboard, b"hunter2\r")
    wait_until(lambda: len(typed()) == len("hunter2\r"))
    assert typed() == b"*******\r"


def test_an_aside_is_taken_back_from_a_terminal_that_is_left(line: Line) -> None:
    user = Person(line)
    line.do(lambda: line.forwarder.user.aside(b"title", b"undo"))
    line.do(lambda: line.forwarder.user.aside(b"\a"))
    assert read_exactly(user.screen, 6) == b"title\a"
    line.do(lambda: line.forwarder.withdraw())
    assert read_exactly(user.screen, 4) == b"undo"
    other = Person(line)
    line.do(lambda: line.forwarder.user.aside(b"title", b"undo"))
    line.do(lambda: line.forwarder.user.aside(b"over", b""))
    assert read_exactly(other.screen, 9) == b"titleover"
    line.do(lambda: line.forwarder.withdraw())
    left = b""
    with suppress(OSError):  # Linux reports an error, macOS the end of the file
        left = os.read(other.screen, 100)
    assert left == b""
