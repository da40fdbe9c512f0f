"""The forward thread between real terminals and pipes, without a session around it."""

from __future__ import annotations

import os
import pty
import select
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest

from relay.terminal.forward import ENDED, HELD, INPUT_OVER, LOST, OUTPUT, SINK_LIMIT, TYPED, Forwarder
from relay.terminal.lend import Lent
from relay.terminal.pty import Pty, raw
from support import wait_until


class Line:
    """A forwarder between the terminal of `agent` and two pipes, or a terminal as its display (`shown`)."""

    def __init__(self, *, shown: bool = False) -> None:
        master, self.agent = pty.openpty()
        termios.tcsetattr(self.agent, termios.TCSANOW, raw(termios.tcgetattr(self.agent)))
        self.pty = Pty(0, master)
        self.forwarder = Forwarder(self.pty)
        source, self.keyboard = os.pipe()
        self.display, sink = pty.openpty() if shown else os.pipe()
        self.lent = Lent(source, sink, interactive=False, saved=None)
        os.close(source)
        os.close(sink)
        self.open = {self.agent, self.keyboard, self.display}
        self.forwarder.lend(self.lent)
        self.forwarder.start()

    def close(self, fd: int) -> None:
        self.open.discard(fd)
        os.close(fd)

    def end(self) -> None:
        for fd in set(self.open):
            self.close(fd)
        self.forwarder.finish()
        self.forwarder.join(20)

    def kinds(self) -> list[int]:
        return [kind for kind, _ in self.forwarder.tee]


@pytest.fixture
def line() -> Iterator[Line]:
    each = Line()
    yield each
    each.end()


def test_piped_input_is_typed_by_nobody(line: Line) -> None:
    """However much it is, it leaves nothing behind in the tee."""
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
    """While what it said last is still to be shown, a source that is never read is not waited for."""
    line, forwarder = shown, shown.forwarder
    said = 0
    while said < SINK_LIMIT // 2:
        said += os.write(line.agent, b"x" * 4096)
    source = line.lent.source
    wait_until(lambda: sum(len(v) for k, v in forwarder.tee if k == OUTPUT and isinstance(v, bytes)) == said)
    assert source in forwarder._masks
    master = line.pty.master
    line.close(line.agent)
    os.write(line.keyboard, b"nobody reads this")
    wait_until(lambda: master not in forwarder._masks and source not in forwarder._masks)
    assert not forwarder.over
    read = 0
    while read < said:
        read += len(os.read(line.display, 1 << 16))
    assert read == said


def test_nothing_is_asked_of_a_terminal_that_is_over(line: Line) -> None:
    line.forwarder.finish()
    assert line.forwarder.over
    line.forwarder.hold()
    line.forwarder.join(20)
    assert line.kinds() in ([ENDED], [HELD, ENDED])
    assert line.pty.master == -1
    assert line.pty.attributes() is None
    assert line.pty.foreground() == 0
    line.forwarder.tee.clear()
    assert not line.forwarder.output_pending()


def test_nothing_of_ours_is_shown_where_the_output_is_redirected(line: Line) -> None:
    wait_until(lambda: line.forwarder.lent_size() is None and line.forwarder._lent is not None)
    assert not line.forwarder.watched
    line.forwarder.show(b"relay: notice")
    os.write(line.agent, b"agent")
    wait_until(lambda: OUTPUT in line.kinds())
    line.forwarder.finish()
    line.forwarder.join(20)
    assert os.read(line.display, 100) == b"agent"


def test_a_terminal_that_went_before_it_was_lent_is_lost_and_no_end_of_input(line: Line) -> None:
    """An end of input is passed on to the agent, which would end."""
    master, slave = pty.openpty()
    os.close(master)
    line.forwarder.lend(Lent(slave, slave, interactive=True, saved=None))
    os.close(slave)
    wait_until(lambda: LOST in line.kinds())
    assert INPUT_OVER not in line.kinds()
