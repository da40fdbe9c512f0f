"""Moves bytes between the user's terminal and the agent's, and copies them to the ring.

    lent source ──read──→ to_child ──write──→ master (PTY)
    lent sink   ←─write── to_sink  ←──read─── master
                                      └─→ ring (records in the order in which things happened)

It never waits for the reader of the ring.  It waits for the user's terminal as the agent itself would: while
that takes no more, it leaves the PTY unread.
"""

from __future__ import annotations

import os
import select
import time

from relay.shim import ring
from relay.shim.lend import UserTerminal
from relay.shim.loop import GONE
from relay.shim.pty import end_of_file, flags, set_size
from relay.shim.query import QueryFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from relay.shim.lend import Lent
    from relay.shim.loop import Loop
    from relay.shim.pty import Pty
    from relay.shim.ring import RingWriter

    class Listener(Protocol):
        """Learns what happens at the terminals, at once."""

        def lost(self, what: str) -> None: ...
        def command(self, command: str) -> None: ...
        def settled(self) -> None: ...
        def input_over(self) -> None: ...
        def ended(self) -> None: ...
        def drawn_in_background(self) -> None: ...
        def typed_in_pause(self, keys: bytes) -> None: ...


READ_SIZE = 1 << 16
SINK_LIMIT = 1 << 18
"""Bytes kept for a slow terminal before the agent's output is left in the PTY; one more read comes on top."""
CHILD_LIMIT = 1 << 16
"""Bytes kept for an agent that does not read before the user's typing is left in their terminal."""

CTRL_D = b"\x04"

ECHO_PATIENCE = 0.002
"""Seconds that the news of a key waits for its echo, which the reader that it wakes would delay."""

PTY_PIECE = 4095
"""Bytes that a read of a PTY gives where there are more (Linux, drivers/tty/n_tty.c: 4096, or one fewer)."""

PTY_LIMIT = 1 << 17
"""An upper bound of the bytes that a PTY holds (Linux: 64 KB)."""

_HIDDEN = bytes(byte if byte in b"\r\n" else ord("*") for byte in range(256))
"""Keys typed while the terminal echoes nothing, as for a password: only their number leaves the shim."""


class AgentInput:
    """The way to the agent's terminal. queued: what it has not taken; echoes: it is drawn; None: unknown."""

    def __init__(self, fd: int, ring_: RingWriter) -> None:
        self.queued = bytearray()
        self.echoes: bool | None = None
        self._fd = fd
        self._ring = ring_

    def write(self, data: bytes) -> None:
        """Write `data` behind what waits."""
        if not self.queued:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # full, or gone: below
        self.queued += data
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the terminal takes it."""
        while self.queued:
            try:
                taken = os.write(self._fd, self.queued)
            except BlockingIOError:
                break
            except OSError:
                self.queued.clear()
                break
            del self.queued[:taken]
        self._ring.words[ring.QUEUED] = len(self.queued)


class _Draining:
    """The steps to an end of the output.

    finishing: the agent has ended, and the rest is forwarded.
    lingering: the PTY is over, and a slow terminal still takes what was said last.
    unsettled: bytes that may still be in the PTY from before `settle`.
    read:      something was read in this turn.
    paused:    all of it is out, and another agent may follow.
    """

    def __init__(self, *, paused: bool = False) -> None:
        self.finishing = self.lingering = self.read = False
        self.unsettled = 0
        self.paused = paused


class Forwarder:
    """The agent's terminal, the lent one, and what waits between them.

    held:       the agent's output is left in the PTY.
    background: the lent terminal belongs to another job of the user's shell.
    input:      the way to the agent's terminal.
    queries:    those in the agent's output.
    user:       the lent terminal.
    """

    def __init__(self, loop: Loop, pty: Pty, ring_: RingWriter, listener: Listener) -> None:
        self.background = False
        self._loop = loop
        self._ring = ring_
        self._listener = listener
        self.user = UserTerminal(loop, self._lost)
        self._lent: Lent | None = None  # that of which `loop` knows
        self.begin(pty)

    @property
    def lent_as(self) -> bytes:
        """The data of ring.LENT, as of now."""
        return b"watched" if self.user.watched else b"lent" if self.user.lent else b""

    @property
    def over(self) -> bool:
        """True once the agent's terminal is closed."""
        return self.pty.master < 0

    @property
    def paused(self) -> bool:
        """True between two agents, while the user is served without one."""
        return self._draining.paused

    @property
    def serves(self) -> bool:
        """True while a terminal can be lent."""
        return self.paused or not self.over

    def begin(self, pty: Pty) -> None:
        """Forward for this agent, the first one, or another one after the end of the last."""
        os.set_blocking(pty.master, False)
        self.pty = pty
        self.held = self._reserved = False
        self.input = AgentInput(pty.master, self._ring)
        self.queries = QueryFinder()
        self._draining = _Draining()
        self._loop.add(pty.master, select.POLLIN, self._on_master)

    # Orders.

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what the user has typed so far."""
        self._note_echo()
        self._ring.append(ring.WRITTEN, data)
        self._ring.words[ring.ACCEPTED] += len(data)
        self.reply(data)

    def reply(self, data: bytes) -> None:
        """Queue the answer to a query of the agent's, which is neither typing nor echoed."""
        if not self.over:
            self.input.write(data)

    def end_of_file(self) -> None:
        """Type VEOF, or Ctrl-D for a program that edits lines itself, to end the agent's input."""
        self.reply(end_of_file(self.pty.attributes()) or CTRL_D)

    def lend(self, terminal: Lent, greeting: bytes = b"") -> None:
        """Serve this terminal from now on instead of another one; show `greeting`, a repaint, first."""
        self.held = False
        self.user.lend(terminal, greeting)
        self._note_lent()

    def withdraw(self, restore: bool = False) -> None:
        """Stop using the lent terminal; `restore` its attributes."""
        self.held = False
        if restore and self.user.lent is not None:
            self.user.lent.restore()
        self.user.withdraw()
        self._note_lent()

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal, so that only `write` types, or read them again.

        As they are left there, RESERVED is put into the ring, behind all that was typed until then.
        """
        self._reserved = reserved
        if reserved:
            self._ring.append(ring.RESERVED)

    def settle(self) -> None:
        """Show what the agent has printed so far, then put SETTLED into the ring. For a stopped agent."""
        self._draining.unsettled = PTY_LIMIT

    def resize(self, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
        self._ring.append(ring.RESIZED, b"%d %d" % (columns, rows))
        self.pty.size = (columns, rows, width, height)
        if not self.over:
            set_size(self.pty.master, columns, rows, width, height)

    def finish(self) -> None:
        """Forward the rest of an agent that has ended, put ENDED into the ring, and close its terminal."""
        self._draining.finishing = True
        self.held = False

    def pause(self) -> None:
        """Continue serving the user, whose keys are for us, although the agent's terminal is over."""
        self.held = self._reserved = False
        self._draining = _Draining(paused=True)
        self._know(self.user.lent)

    # The loop.

    def turn(self) -> None:
        """Wait for bytes or for anything else that the loop knows of, and move them."""
        user, lent = self.user, self.user.lent
        if lent is not self._lent:
            self._know(lent)
        queued = len(self.input.queued)
        if not (self.over or self._draining.lingering):
            full = self.held or len(user.queued) >= SINK_LIMIT
            self._loop.watch(
                self.pty.master, (0 if full else select.POLLIN) | (select.POLLOUT if queued else 0)
            )
        if lent is not None:
            reading = not (user.paused or self._reserved or self._draining.lingering) and queued < CHILD_LIMIT
            out = select.POLLOUT if user.queued else 0
            if lent.source == lent.sink:
                self._loop.watch(lent.source, (select.POLLIN if reading else 0) | out)
            else:
                self._loop.watch(lent.source, select.POLLIN if reading else 0)
                self._loop.watch(lent.sink, out)
        draining = (
            (self._draining.finishing or self._draining.unsettled > 0)
            and not user.queued
            and not self._draining.lingering
        )
        timeout = 0.0 if draining else self._keys_timeout()
        unannounced = self._ring.unannounced
        if unannounced:
            timeout = ECHO_PATIENCE if timeout is None else min(ECHO_PATIENCE, timeout)
        self._draining.read = False
        ready = self._loop.turn(timeout)
        if unannounced and not ready:
            self._ring.announce()
        if self._draining.lingering:
            if not user.queued or user.lent is None:
                self._close()
        elif draining and not self._draining.read and not self.held:
            self._say_settled()
            if self._draining.finishing:
                self._linger()

    def _know(self, lent: Lent | None) -> None:
        """Have the loop call for the descriptors of the terminal that is lent now."""
        self._lent = lent
        if lent is not None and self.serves:
            for fd in {lent.source, lent.sink} - {-1}:
                self._loop.add(fd, 0, self._on_user)

    def _on_user(self, mask: int) -> None:
        lent = self.user.lent
        if lent is None or lent is not self._lent:
            return
        if self.user.queued:
            self.user.flush()
        if (
            self.user.lent is lent
            and lent.source >= 0
            and self._loop.masks.get(lent.source, 0) & select.POLLIN
        ):
            readable = mask & (select.POLLIN | GONE)
            if readable and not self._reserved and not self.user.paused:
                self._read_source(lent)

    def _on_master(self, mask: int) -> None:
        if mask & select.POLLOUT:
            self.input.flush()
        # An order may have held it just now.
        full = self.held or len(self.user.queued) >= SINK_LIMIT
        if mask & (select.POLLIN | GONE) and not full and not self._draining.lingering:
            self._draining.read = True
            if not self._read_master():
                self._linger()

    def _linger(self) -> None:
        """Show the rest to a slow terminal after the PTY is over, before it is closed."""
        self._draining.lingering = True
        self._loop.watch(self.pty.master, 0)
        if not self.user.queued:
            self._close()

    def _close(self) -> None:
        if self.over:
            return
        self._draining.lingering = True
        self._loop.remove(self.pty.master)
        self.input.queued.clear()
        self.pty.close()
        if not self._draining.finishing:
            self._say_settled()
        self._ring.append(ring.ENDED)
        self._listener.ended()

    def _read_master(self) -> bool:
        """Read the agent's output, at most some READ_SIZE bytes. Return False if its terminal is over.

        A read gives one piece of the kernel's, however much there is. Each is shown at once, and all of them
        make one record, which costs the session a third of what records of 4 KB cost it.
        """
        words = self._ring.words
        words[ring.READING] = 1
        pieces: list[bytes] = []
        left, over = READ_SIZE, False
        while left > 0:
            try:
                piece = os.read(self.pty.master, READ_SIZE)
            except BlockingIOError:
                break
            except OSError:  # EIO on Linux: the last descriptor of the other side was closed
                piece = b""
            if not piece:
                over = True
                break
            self._show(piece)
            pieces.append(piece)
            left -= len(piece)
            if len(piece) < PTY_PIECE:
                break
        if pieces:
            self._record(b"".join(pieces))
        words[ring.READING] = 0
        return not over

    def _show(self, data: bytes) -> None:
        for query in self.queries.feed(data):
            # We answer that reports are taken here. The user's terminal sees the query as well, and its
            # answer tells us what it takes.
            if len(self.input.queued) < CHILD_LIMIT:
                self.reply(query)
            self.user.keyboard.answers.expected = True
        self.user.output(data)

    def _record(self, data: bytes) -> None:
        # The virtual screen stands for a terminal: without CRs its lines would not begin at the left.
        self._ring.output(data if self.pty.line_feeds_return else data.replace(b"\n", b"\r\n"))
        if self.background:
            self._listener.drawn_in_background()
        if self._draining.unsettled:
            self._draining.unsettled -= len(data)
            if self._draining.unsettled <= 0:
                self._draining.unsettled = 1
                self._say_settled()

    def _read_source(self, lent: Lent) -> None:
        try:
            data = os.read(lent.source, READ_SIZE if lent.piece > 4096 else 4096)
        except BlockingIOError:
            return
        except OSError:
            self.user.lose("terminal")
            return
        if not data and lent.source_is_terminal:
            self.user.lose("terminal")
        elif not data:  # a pipe or a file, which has ended
            self._loop.remove(lent.source)
            os.close(lent.source)
            lent.source = -1
            self._ring.append(ring.INPUT_OVER)
            self._listener.input_over()
        elif lent.interactive:
            passed, command = self.user.keys(data)
            self._type(passed)
            if command:
                self._listener.command(command)
        else:
            self.reply(data)  # not typed: there is no draft and no echo

    def _keys_timeout(self) -> float | None:
        """Return the seconds until kept keys are due, None without any. Pass them on if they are due."""
        keyboard = self.user.keyboard
        if not keyboard.due or self._reserved:
            return None
        left = keyboard.due - time.monotonic()
        if left > 0:
            return left
        self._type(keyboard.flush())
        return None

    def _type(self, data: bytes) -> None:
        """Pass bytes of the user's to the agent, and put them into the ring apart from ours."""
        if data and self.paused:
            self._listener.typed_in_pause(data)
        elif data and not self.over:
            echoes = self._note_echo()
            self.reply(data)
            # The reader, once awake, would delay the echo.
            self._ring.append(ring.TYPED, data if echoes else data.translate(_HIDDEN), wake=False)

    def _note_echo(self) -> bool:
        """Return False if the terminal draws nothing of what is typed; put a change of that into the ring."""
        canonical, echo, _ = flags(self.pty.attributes())
        echoes = echo or not canonical
        if echoes != self.input.echoes:
            self.input.echoes = echoes
            self._ring.append(ring.ECHOES, b"1" if echoes else b"", wake=False)
        return echoes

    def _lost(self, what: str) -> None:
        self._ring.append(ring.LOST, what.encode())
        self._note_lent()
        self._listener.lost(what)

    def _note_lent(self) -> None:
        lent = self.user.lent
        self._know(lent)
        self._ring.append(ring.LENT, self.lent_as)

    def _say_settled(self) -> None:
        if self._draining.unsettled:
            self._draining.unsettled = 0
            self._ring.append(ring.SETTLED)
            self._listener.settled()
