"""Moves bytes between the user's terminal and the agent's, and copies them to the ring.

    attached source ──read──→ input.queued ──write──→ master (PTY)
    attached sink   ←─write── user.queued  ←──read─── master
                                          └─→ ring (records in chronological order)

The forwarder never waits for the ring's reader.  It does wait for the user's terminal, as the agent itself
would: while the terminal takes no more output, the PTY stays unread.
"""

from __future__ import annotations

import os
import select
import time

from relay.shim import ring
from relay.shim.loop import GONE
from relay.shim.pty import end_of_file, flags, set_size
from relay.shim.query import QueryFinder
from relay.shim.user_terminal import UserTerminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from relay.shim.loop import Loop
    from relay.shim.pty import Pty
    from relay.shim.ring import RingWriter
    from relay.shim.user_terminal import AttachedTerminal

    class Listener(Protocol):
        """Receives events at the terminals, synchronously."""

        def lost(self, what: str) -> None: ...
        def command(self, command: str) -> None: ...
        def settled(self) -> None: ...
        def input_over(self) -> None: ...
        def ended(self) -> None: ...
        def drawn_in_background(self) -> None: ...
        def typed_in_pause(self, keys: bytes) -> None: ...


READ_SIZE = 1 << 16
SINK_LIMIT = 1 << 18
"""Bytes buffered for a slow terminal before the agent's output stays in the PTY; one more read may follow."""
CHILD_LIMIT = 1 << 16
"""Bytes buffered for an agent that does not read before the user's typing stays in their terminal."""

CTRL_D = b"\x04"

ECHO_TIMEOUT = 0.002
"""Seconds to wait for a key's echo before waking the ring's reader, which would delay the echo."""

PTY_PIECE = 4095
"""Bytes that a read of a PTY returns while more are available (Linux, drivers/tty/n_tty.c: 4096 or 4095)."""

PTY_LIMIT = 1 << 17
"""Upper bound of the bytes that a PTY buffers (Linux: 64 KB)."""

_HIDDEN = bytes(byte if byte in b"\r\n" else ord("*") for byte in range(256))
"""Masks keys typed while echo is off, as for a password: only their number leaves the shim."""


class AgentInput:
    """The agent's input. queued: not yet written to its terminal; echoes: typing is drawn; None: unknown."""

    def __init__(self, fd: int, ring_: RingWriter) -> None:
        self.queued = bytearray()
        self.echoes: bool | None = None
        self._fd = fd
        self._ring = ring_

    def write(self, data: bytes) -> None:
        """Write `data` after what is queued."""
        if not self.queued:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # full, or gone: below
        self.queued += data
        self.flush()

    def flush(self) -> None:
        """Write as much of the queue as the terminal takes."""
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
    """The steps to the end of the output.

    finishing: the agent has ended, and the rest of its output is being forwarded.
    lingering: the PTY is at its end, and a slow terminal is still taking the last output.
    unsettled: bytes from before `settle` that may still be in the PTY.
    read:      something was read in this turn.
    paused:    all output has been forwarded, and another agent may follow.
    """

    def __init__(self, *, paused: bool = False) -> None:
        self.finishing = self.lingering = self.read = False
        self.unsettled = 0
        self.paused = paused


class Forwarder:
    """The agent's terminal, the attached one, and the buffers between them.

    held:       the agent's output stays in the PTY.
    background: another job of the user's shell owns the attached terminal.
    input:      the agent's input.
    queries:    finds queries in the agent's output.
    user:       the attached terminal.
    """

    def __init__(self, loop: Loop, pty: Pty, ring_: RingWriter, listener: Listener) -> None:
        self.background = False
        self._loop = loop
        self._ring = ring_
        self._listener = listener
        self.user = UserTerminal(loop, self._lost)
        self._attached: AttachedTerminal | None = None  # the one registered in `loop`
        self.begin(pty)

    @property
    def attached_as(self) -> bytes:
        """The current data of a ring.ATTACHED record."""
        return b"watched" if self.user.watched else b"lent" if self.user.attached else b""

    @property
    def over(self) -> bool:
        """True once the agent's terminal is closed."""
        return self.pty.master < 0

    @property
    def paused(self) -> bool:
        """True between two agents, while the user's terminal stays attached."""
        return self._draining.paused

    @property
    def serves(self) -> bool:
        """True while a terminal can be attached."""
        return self.paused or not self.over

    def begin(self, pty: Pty) -> None:
        """Start forwarding for this agent, the first one or the successor of one that has ended."""
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
        """Queue the answer to a query from the agent; it counts as neither typed nor echoed."""
        if not self.over:
            self.input.write(data)

    def end_of_file(self) -> None:
        """End the agent's input: type VEOF, or Ctrl-D for a program that edits lines itself."""
        self.reply(end_of_file(self.pty.attributes()) or CTRL_D)

    def attach(self, terminal: AttachedTerminal, greeting: bytes = b"") -> None:
        """Switch to this terminal; show `greeting`, a repaint, first."""
        self.held = False
        self.user.attach(terminal, greeting)
        self._note_attached()

    def withdraw(self, restore: bool = False) -> None:
        """Stop using the attached terminal; if `restore`, restore its attributes."""
        self.held = False
        if restore and self.user.attached is not None:
            self.user.attached.restore()
        self.user.withdraw()
        self._note_attached()

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal, so only `write` types; False: read them again.

        When this starts, put RESERVED into the ring, after everything typed so far.
        """
        self._reserved = reserved
        if reserved:
            self._ring.append(ring.RESERVED)

    def settle(self) -> None:
        """Show what the stopped agent has printed so far, then put SETTLED into the ring."""
        self._draining.unsettled = PTY_LIMIT

    def resize(self, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
        self._ring.append(ring.RESIZED, b"%d %d" % (columns, rows))
        self.pty.size = (columns, rows, width, height)
        if not self.over:
            set_size(self.pty.master, columns, rows, width, height)

    def finish(self) -> None:
        """Forward the rest of the ended agent's output, put ENDED into the ring, and close its terminal."""
        self._draining.finishing = True
        self.held = False

    def pause(self) -> None:
        """Keep the user's terminal attached after the agent's is closed; the user's keys are now for us."""
        self.held = self._reserved = False
        self._draining = _Draining(paused=True)
        self._know(self.user.attached)

    # The loop.

    def turn(self) -> None:
        """Run one turn of the loop, and move the bytes that are ready."""
        user, attached = self.user, self.user.attached
        if attached is not self._attached:
            self._know(attached)
        queued = len(self.input.queued)
        if not (self.over or self._draining.lingering):
            full = self.held or len(user.queued) >= SINK_LIMIT
            self._loop.watch(
                self.pty.master, (0 if full else select.POLLIN) | (select.POLLOUT if queued else 0)
            )
        if attached is not None:
            reading = not (user.paused or self._reserved or self._draining.lingering) and queued < CHILD_LIMIT
            out = select.POLLOUT if user.queued else 0
            if attached.source == attached.sink:
                self._loop.watch(attached.source, (select.POLLIN if reading else 0) | out)
            else:
                self._loop.watch(attached.source, select.POLLIN if reading else 0)
                self._loop.watch(attached.sink, out)
        draining = (
            (self._draining.finishing or self._draining.unsettled > 0)
            and not user.queued
            and not self._draining.lingering
        )
        timeout = 0.0 if draining else self._keys_timeout()
        unannounced = self._ring.unannounced
        if unannounced:
            timeout = ECHO_TIMEOUT if timeout is None else min(ECHO_TIMEOUT, timeout)
        self._draining.read = False
        ready = self._loop.turn(timeout)
        if unannounced and not ready:
            self._ring.announce()
        if self._draining.lingering:
            if not user.queued or user.attached is None:
                self._close()
        elif draining and not self._draining.read and not self.held:
            self._say_settled()
            if self._draining.finishing:
                self._linger()

    def _know(self, attached: AttachedTerminal | None) -> None:
        """Register the descriptors of the attached terminal in the loop."""
        self._attached = attached
        if attached is not None and self.serves:
            for fd in {attached.source, attached.sink} - {-1}:
                self._loop.add(fd, 0, self._on_user)

    def _on_user(self, mask: int) -> None:
        attached = self.user.attached
        if attached is None or attached is not self._attached:
            return
        if self.user.queued:
            self.user.flush()
        if (
            self.user.attached is attached
            and attached.source >= 0
            and self._loop.masks.get(attached.source, 0) & select.POLLIN
        ):
            readable = mask & (select.POLLIN | GONE)
            if readable and not self._reserved and not self.user.paused:
                self._read_source(attached)

    def _on_master(self, mask: int) -> None:
        if mask & select.POLLOUT:
            self.input.flush()
        # A callback earlier in this turn may have set `held`.
        full = self.held or len(self.user.queued) >= SINK_LIMIT
        if mask & (select.POLLIN | GONE) and not full and not self._draining.lingering:
            self._draining.read = True
            if not self._read_master():
                self._linger()

    def _linger(self) -> None:
        """Let a slow terminal take the rest of the output, then close the PTY, which is at its end."""
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
        """Read about READ_SIZE bytes of the agent's output at most. Return False if its terminal is closed.

        A read returns one kernel buffer, however much there is. Show each piece at once, and put them all
        into one record, which costs the session a third of what records of 4 KB would.
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
            except OSError:  # EIO on Linux: the last slave descriptor was closed
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
            # We answer that reports are supported here. The user's terminal sees the query as well, and its
            # answer says whether the terminal supports them.
            if len(self.input.queued) < CHILD_LIMIT:
                self.reply(query)
            self.user.keyboard.answers.expected = True
        self.user.output(data)

    def _record(self, data: bytes) -> None:
        # The virtual screen emulates a terminal: without CRs, its lines would not start at the left edge.
        self._ring.output(data if self.pty.line_feeds_return else data.replace(b"\n", b"\r\n"))
        if self.background:
            self._listener.drawn_in_background()
        if self._draining.unsettled:
            self._draining.unsettled -= len(data)
            if self._draining.unsettled <= 0:
                self._draining.unsettled = 1
                self._say_settled()

    def _read_source(self, attached: AttachedTerminal) -> None:
        try:
            data = os.read(attached.source, READ_SIZE if attached.piece > 4096 else 4096)
        except BlockingIOError:
            return
        except OSError:
            self.user.lose("terminal")
            return
        if not data and attached.source_is_terminal:
            self.user.lose("terminal")
        elif not data:  # the end of a pipe or file
            self._loop.remove(attached.source)
            os.close(attached.source)
            attached.source = -1
            self._ring.append(ring.INPUT_OVER)
            self._listener.input_over()
        elif attached.interactive:
            passed, command = self.user.keys(data)
            self._type(passed)
            if command:
                self._listener.command(command)
        else:
            self.reply(data)  # not typed, so no draft and no echo

    def _keys_timeout(self) -> float | None:
        """Return the seconds until kept keys are due, or None without any. Type them if they are due."""
        keyboard = self.user.keyboard
        if not keyboard.due or self._reserved:
            return None
        left = keyboard.due - time.monotonic()
        if left > 0:
            return left
        self._type(keyboard.flush())
        return None

    def _type(self, data: bytes) -> None:
        """Pass the user's keys to the agent, and record them in the ring separately from ours."""
        if data and self.paused:
            self._listener.typed_in_pause(data)
        elif data and not self.over:
            echoes = self._note_echo()
            self.reply(data)
            # The reader, once awake, would delay the echo.
            self._ring.append(ring.TYPED, data if echoes else data.translate(_HIDDEN), wake=False)

    def _note_echo(self) -> bool:
        """Return False if the terminal does not draw what is typed; record a change of this in the ring."""
        canonical, echo, _ = flags(self.pty.attributes())
        echoes = echo or not canonical
        if echoes != self.input.echoes:
            self.input.echoes = echoes
            self._ring.append(ring.ECHOES, b"1" if echoes else b"", wake=False)
        return echoes

    def _lost(self, what: str) -> None:
        self._ring.append(ring.LOST, what.encode())
        self._note_attached()
        self._listener.lost(what)

    def _note_attached(self) -> None:
        attached = self.user.attached
        self._know(attached)
        self._ring.append(ring.ATTACHED, self.attached_as)

    def _say_settled(self) -> None:
        if self._draining.unsettled:
            self._draining.unsettled = 0
            self._ring.append(ring.SETTLED)
            self._listener.settled()
