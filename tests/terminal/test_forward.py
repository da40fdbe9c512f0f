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
from relay.shim.loop import Loop
from relay.shim.pty import Pty, raw
from relay.shim.query import CLEAR, QUERY
from relay.shim.ring import ENDED, INPUT_OVER, LOST, OUTPUT, RESERVED, TYPED, RingWriter
from relay.shim.ring_reader import Record, RingReader
from relay.shim.user_terminal import AttachedTerminal
from support import wait_until


class Rig:
    """A forwarder between the terminal of `agent` and two pipes, or a terminal as its display (`shown`).

    It runs on a separate thread, as in a shim; so does what a test passes to `do`.
    """

    def __init__(self, *, shown: bool = False) -> None:
        master, self.agent = pty.openpty()
        termios.tcsetattr(self.agent, termios.TCSANOW, raw(termios.tcgetattr(self.agent)))
        self.pty = Pty(0, master)
        self.loop = Loop()
        fd = ring.make()
        self.reported: list[str] = []
        self.forwarder = Forwarder(self.loop, self.pty, RingWriter(fd, lambda: None), self)
        self.reader = RingReader(fd)
        os.close(fd)
        self._records: list[Record] = []
        self._orders: deque[Callable[[], None]] = deque()
        wake, self._wake = os.pipe()
        self.loop.add(wake, select.POLLIN, lambda _: self._run_orders(wake))
        source, self.keyboard = os.pipe()
        self.display, sink = pty.openpty() if shown else os.pipe()
        self.attached = AttachedTerminal(source, sink, interactive=False, saved=None)
        os.close(source)
        os.close(sink)
        self.open = {self.agent, self.keyboard, self.display, wake, self._wake}
        self.forwarder.attach(self.attached)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.forwarder.over:
            self.forwarder.turn()

    def _run_orders(self, wake: int) -> None:
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
        self.reported.append(what)

    def command(self, command: str) -> None:
        self.reported.append(command)

    def settled(self) -> None:
        self.reported.append("settled")

    def input_over(self) -> None:
        self.reported.append("input over")

    def ended(self) -> None:
        self.reported.append("ended")

    def drawn_in_background(self) -> None:
        self.reported.append("drawn")

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
def rig() -> Iterator[Rig]:
    each = Rig()
    yield each
    each.end()


def test_output_available_at_once_is_one_record(rig: Rig) -> None:
    """Each packet stands for a piece of 4 KB, as a read from a PTY returns; a short one is the last."""
    ours, agents = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pieces = [bytes([65 + number]) * PTY_PIECE for number in range(20)]
    for piece in (*pieces[:3], b"short", *pieces):
        agents.send(piece)
    fd = ring.make()
    forwarder = Forwarder(Loop(), Pty(0, ours.detach()), RingWriter(fd, lambda: None), rig)
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


def test_no_more_is_read_than_may_be_queued_for_a_slow_terminal(rig: Rig) -> None:
    os.set_blocking(rig.agent, False)
    with suppress(BlockingIOError):
        for _ in range(3 * SINK_LIMIT // 4096):
            select.select([], [rig.agent], [], 0.5)
            os.write(rig.agent, bytes(4096))
    read = sum(len(record.data) for record in rig.records if record.kind == OUTPUT)
    assert read < 2 * SINK_LIMIT  # of three; the kernel, too, queues some for each terminal
    assert len(rig.forwarder.user.queued) < SINK_LIMIT + READ_SIZE + PTY_PIECE


def test_piped_input_is_not_recorded_as_typed(rig: Rig) -> None:
    """Whatever its size, it leaves no TYPED record."""
    data = os.urandom(1 << 20)
    os.set_blocking(rig.keyboard, False)
    os.set_blocking(rig.agent, False)
    got, sent = bytearray(), 0
    while len(got) < len(data):
        readable, writable, _ = select.select([rig.agent], [rig.keyboard] if sent < len(data) else [], [], 20)
        assert readable or writable
        if writable:
            sent += os.write(rig.keyboard, data[sent : sent + 4096])
        with suppress(BlockingIOError):
            got += os.read(rig.agent, 1 << 16)
    assert got == data
    rig.close(rig.keyboard)
    wait_until(lambda: INPUT_OVER in rig.kinds())
    assert TYPED not in rig.kinds()


@pytest.fixture
def shown() -> Iterator[Rig]:
    each = Rig(shown=True)
    yield each
    each.end()


def test_no_input_is_read_for_an_agent_that_has_ended(shown: Rig) -> None:
    """Input that nobody will read is not waited for while the last output is still being shown."""
    rig, forwarder = shown, shown.forwarder
    written = 0
    while written < SINK_LIMIT // 2:
        written += os.write(rig.agent, b"x" * 4096)
    source = rig.attached.source
    wait_until(lambda: sum(len(each.data) for each in rig.records if each.kind == OUTPUT) == written)
    assert source in rig.loop.masks
    master = rig.pty.master
    rig.close(rig.agent)
    os.write(rig.keyboard, b"nobody reads this")
    wait_until(lambda: master not in rig.loop.masks and source not in rig.loop.masks)
    assert not forwarder.over
    read = 0
    while read < written:
        read += len(os.read(rig.display, 1 << 16))
    assert read == written


def test_requests_to_a_finished_forwarder_are_ignored(rig: Rig) -> None:
    rig.finish()
    assert rig.forwarder.over
    assert rig.kinds()[-1] == ENDED
    rig.do(lambda: rig.forwarder.reply(b"lost"))
    rig.forwarder.resize(10, 10)
    assert rig.pty.master == -1
    assert rig.pty.attributes() is None
    assert rig.pty.foreground() == 0
    assert not rig.pty.output_pending()


def test_redirected_output_contains_only_the_agents(rig: Rig) -> None:
    assert rig.attached.size() is None
    assert not rig.forwarder.user.watched
    os.write(rig.agent, b"agent")
    wait_until(lambda: OUTPUT in rig.kinds())
    rig.finish()
    assert os.read(rig.display, 100) == b"agent"


def test_a_terminal_gone_before_it_is_attached_counts_as_lost_not_as_end_of_input(rig: Rig) -> None:
    """An end of input would be passed on to the agent, which would end."""
    master, slave = pty.openpty()
    os.close(master)
    attached = AttachedTerminal(slave, slave, interactive=True, saved=None)
    rig.do(lambda: rig.forwarder.attach(attached))
    os.close(slave)
    wait_until(lambda: LOST in rig.kinds())
    assert INPUT_OVER not in rig.kinds()


# OSC 7501: who answers queries, and who gets reports.


class UserTerminal:
    """A user's terminal in raw mode, attached; `screen` is its other side."""

    def __init__(self, rig: Rig) -> None:
        self.screen, slave = pty.openpty()
        termios.tcsetattr(slave, termios.TCSANOW, raw(termios.tcgetattr(slave)))
        self.attached = AttachedTerminal(slave, slave, interactive=True, saved=None)
        os.close(slave)
        rig.open.add(self.screen)
        rig.do(lambda: rig.forwarder.attach(self.attached))


def read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        assert select.select([fd], [], [], 20)[0], data
        data += os.read(fd, size - len(data))
    return data


@pytest.mark.parametrize("query", [QUERY, b"\x1b]7501;?\x07"])
def test_a_query_is_answered_before_anything_after_it(rig: Rig, query: bytes) -> None:
    """However it is split, relay answers before the user's terminal answers the rest."""
    user = UserTerminal(rig)
    for at in range(1, len(query)):
        os.write(rig.agent, query[:at])
        assert read_exactly(user.screen, at) == query[:at]
        os.write(rig.agent, query[at:] + b"\x1b[c")
        assert read_exactly(user.screen, len(query) - at + 3) == query[at:] + b"\x1b[c"
        os.write(user.screen, query + b"\x1b[?62c" if at % 2 else b"\x1b[?62c")
        assert read_exactly(rig.agent, len(query) + 6) == query + b"\x1b[?62c"


def test_without_a_terminal_a_query_is_answered_before_other_replies(rig: Rig) -> None:
    """R88: the virtual screen answers `CSI c` after the pump has read it."""
    rig.do(lambda: rig.forwarder.withdraw())
    os.write(rig.agent, QUERY + b"\x1b[c")
    wait_until(lambda: OUTPUT in rig.kinds())
    rig.do(lambda: rig.forwarder.reply(b"\x1b[?62c"))
    assert read_exactly(rig.agent, len(QUERY) + 6) == QUERY + b"\x1b[?62c"


def test_the_answer_of_the_users_terminal_does_not_reach_the_agent(rig: Rig) -> None:
    user = UserTerminal(rig)
    os.write(rig.agent, QUERY)
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    assert read_exactly(rig.agent, len(QUERY)) == QUERY
    os.write(user.screen, b"one" + QUERY + b"two\x1b[A")
    assert read_exactly(rig.agent, 9) == b"onetwo\x1b[A"
    assert rig.forwarder.user.keyboard.answers.answered


def test_keys_that_begin_like_an_answer_are_not_lost(rig: Rig) -> None:
    user = UserTerminal(rig)
    rig.do(lambda: rig.forwarder.user.report(b"report"))
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    for keys in (b"\x1b", b"\x1b]", b"\x1b]7501;?\x1b"):
        os.write(user.screen, keys)
        assert read_exactly(rig.agent, len(keys)) == keys
    assert not rig.forwarder.user.keyboard.answers.answered


def test_a_terminal_gets_reports_only_after_it_has_answered(rig: Rig) -> None:
    """Each later terminal is queried separately; a detached one gets a report that clears its status."""
    user = UserTerminal(rig)
    rig.do(lambda: rig.forwarder.user.report(b"first"))
    assert read_exactly(user.screen, len(QUERY)) == QUERY
    rig.do(lambda: rig.forwarder.user.report(b"second"))
    os.write(rig.agent, b"agent")
    assert read_exactly(user.screen, 5) == b"agent"
    os.write(user.screen, QUERY)
    assert read_exactly(user.screen, 6) == b"second"
    rig.do(lambda: rig.forwarder.user.report(b"third"))
    assert read_exactly(user.screen, 5) == b"third"
    rig.do(lambda: rig.forwarder.withdraw())
    assert read_exactly(user.screen, len(CLEAR)) == CLEAR
    other = UserTerminal(rig)
    assert read_exactly(other.screen, len(QUERY)) == QUERY
    rig.do(lambda: rig.forwarder.user.report(b"fourth"))
    os.write(other.screen, QUERY + b"x")
    assert read_exactly(rig.agent, 1) == b"x"
    assert read_exactly(other.screen, 6) == b"fourth"


def test_a_report_does_not_reach_redirected_output(rig: Rig) -> None:
    rig.do(lambda: rig.forwarder.user.report(b"report"))
    rig.do(lambda: rig.forwarder.user.aside(b"\a"))
    os.write(rig.agent, b"agent")
    assert read_exactly(rig.display, 5) == b"agent"
    rig.finish()
    assert not select.select([rig.display], [], [], 0)[0] or os.read(rig.display, 9) == b""


def test_an_aside_does_not_split_the_agents_sequences(rig: Rig) -> None:
    user = UserTerminal(rig)
    os.write(rig.agent, b"\x1b[3")
    assert read_exactly(user.screen, 3) == b"\x1b[3"
    rig.do(lambda: rig.forwarder.user.aside(b"\a"))
    os.write(rig.agent, b"1m")
    assert read_exactly(user.screen, 3) == b"1m\a"
    rig.do(lambda: rig.forwarder.user.aside(b"\a"))
    assert read_exactly(user.screen, 1) == b"\a"


def test_answers_to_an_agent_that_reads_nothing_do_not_pile_up(rig: Rig) -> None:
    rig.do(lambda: rig.forwarder.withdraw())
    for _ in range(40):
        os.write(rig.agent, QUERY * 1000)
    wait_until(lambda: not rig.pty.output_pending())
    assert len(rig.forwarder.input.queued) < 3 * CHILD_LIMIT


def test_keys_typed_during_an_injection_follow_it(rig: Rig) -> None:
    """The keys are neither merged with it nor lost."""
    rig.do(lambda: rig.forwarder.reserve(True))
    wait_until(lambda: RESERVED in rig.kinds())
    os.write(rig.keyboard, b"half a thought")
    rig.do(lambda: rig.forwarder.write(b"[one text]"))
    wait_until(lambda: not rig.forwarder.input.queued)
    rig.do(lambda: rig.forwarder.write(b"\r"))
    wait_until(lambda: not rig.forwarder.input.queued)
    rig.do(lambda: rig.forwarder.reserve(False))
    got = b""
    while len(got) < len("[one text]rhalf a thought"):
        got += os.read(rig.agent, 100)
    assert got == b"[one text]\rhalf a thought"


def test_only_the_length_of_unechoed_input_reaches_the_ring(rig: Rig) -> None:
    rig.attached.interactive = True
    attributes = termios.tcgetattr(rig.agent)
    attributes[3] = attributes[3] & ~termios.ECHO | termios.ICANON
    termios.tcsetattr(rig.agent, termios.TCSANOW, attributes)

    def typed() -> bytes:
        return b"".join(record.data for record in rig.records if record.kind == TYPED)

    os.write(rig.keyboard, b"hunter2\r")
    wait_until(lambda: len(typed()) == len("hunter2\r"))
    assert typed() == b"*******\r"


def test_an_aside_is_undone_when_its_terminal_is_detached(rig: Rig) -> None:
    user = UserTerminal(rig)
    rig.do(lambda: rig.forwarder.user.aside(b"title", b"undo"))
    rig.do(lambda: rig.forwarder.user.aside(b"\a"))
    assert read_exactly(user.screen, 6) == b"title\a"
    rig.do(lambda: rig.forwarder.withdraw())
    assert read_exactly(user.screen, 4) == b"undo"
    other = UserTerminal(rig)
    rig.do(lambda: rig.forwarder.user.aside(b"title", b"undo"))
    rig.do(lambda: rig.forwarder.user.aside(b"over", b""))
    assert read_exactly(other.screen, 9) == b"titleover"
    rig.do(lambda: rig.forwarder.withdraw())
    left = b""
    with suppress(OSError):  # Linux reports an error, macOS the end of the file
        left = os.read(other.screen, 100)
    assert left == b""
