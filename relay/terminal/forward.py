"""The forward thread: bytes between the person's terminal and the agent's, and a tee for the rest of us.

    lent source ──read──→ to_child ──write──→ master (PTY)
    lent sink   ←─write── to_sink  ←──read─── master
                                      └─→ tee (a deque of events, in the order in which things happened)

It does nothing but poll, read, write and append.  It never waits for the reader of the tee; it waits for
the person's terminal exactly as the agent would alone: when that takes no more, the PTY is not read.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque

from relay.terminal.pty import end_of_file, set_size
from relay.terminal.query import CLEAR, QUERY, SPLIT_PATIENCE, Answers, Queries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.terminal.aside import Asides
    from relay.terminal.detach import DetachKeys
    from relay.terminal.lend import Lent
    from relay.terminal.pty import Pty

OUTPUT, TYPED, WRITTEN, RESIZED, GAP, ENDED, LOST, DETACH, HELD, SETTLED, INPUT_OVER = range(11)
"""Kinds of events in the tee; each event is (kind, value).

OUTPUT bytes from the agent
TYPED  bytes from the person     WRITTEN bytes from `write`; both stand before the echo that they cause
RESIZED (columns, rows)          GAP    number of bytes that the tee left out
ENDED  None: the output is over  LOST   "terminal" or "pipe": the lent terminal has gone
DETACH None: the person asked to detach
HELD   None: `hold` was obeyed; no output follows until `lend`
SETTLED None: what the agent had said at `settle` has been shown
INPUT_OVER None: the lent input, a pipe or a file, has come to its end
"""

READ_SIZE = 1 << 16
SINK_LIMIT = 1 << 18
"""Bytes kept for a slow terminal before the agent's output is left in the PTY."""
CHILD_LIMIT = 1 << 16
"""Bytes kept for an agent that does not read before the person's typing is left in their terminal."""
TEE_LIMIT = 1 << 25
"""Bytes in the tee after which output is no longer copied to it (and a GAP says so)."""

CTRL_D = b"\x04"

ECHO_PATIENCE = 2
"""Milliseconds for which news of a key waits for its echo: whoever is woken competes with it."""

ESCAPE_KEY, ESC = b"\x1d", b"\x1b"
"""Ctrl-], the first of the two keys that detach (telnet's and virsh's), and what begins its other forms."""

PTY_LIMIT = 1 << 17
"""Bytes that a PTY holds at the most, generously (Linux: 64 KB)."""

WITHDRAWAL = 0.5
"""Seconds that `withdraw` waits for the thread; only a terminal that blocks in a write takes them."""


class Forwarder:
    """The thread and its buffers.

    Other threads may call `write`, `hold`, `lend`, `withdraw`, `pause`, `settle`, `finish`, `resize`, `show`,
    `aside`, `report` and read `tee`, `unwritten` and `produced`; they set `consumed` as they take output off
    the tee.  `wake` is a descriptor that becomes readable when the tee holds something new after `rearm` was
    called.

    over: the thread has ended or was told to; no terminal can be lent any more.
    reserved: `reserve` was obeyed: what the person typed until then is in the tee, and no more follows.
    """

    def __init__(self, pty: Pty) -> None:
        self.tee: deque[tuple[int, object]] = deque()
        self.produced = 0
        self.consumed = 0
        self.over = False
        self.reserved = False
        self.wake, self._wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._wake_write, False)
        os.set_blocking(pty.master, False)
        self._pty = pty
        self._master = pty.master
        self._poke_read, self._poke_write = os.pipe()
        os.set_blocking(self._poke_read, False)
        os.set_blocking(self._poke_write, False)
        self._orders: deque[tuple[object, ...]] = deque()
        self._lent: Lent | None = None
        self._paused = False
        self._held = False
        self._unsettled = 0  # bytes that may still be in the PTY from before `settle`
        self._finishing = False
        self._to_child = bytearray()
        self._to_sink = bytearray()
        self._offered = 0  # bytes given to `write`: changed by its caller's thread alone
        self._accepted = 0  # those of them that the thread has seen: changed by the thread alone
        self._skipped = 0
        self._armed = True
        self._unannounced = False  # the tee holds what a person typed, and nobody was woken for it yet
        self._read: Callable[[int, int], bytes] = os.read
        self._write_bytes: Callable[[int, bytes], int] = os.write
        self._detach: DetachKeys | None = None  # loaded with the first key that may be one of them
        self._queries = Queries()
        self._answers = Answers()  # of the terminal that is lent
        self._report: bytes | None = None  # what the terminal is to know of the agent
        self._asides: Asides | None = None  # loaded with the first
        self._undo = b""  # what takes back an aside to the terminal that is lent
        self._said = b""  # the last piece of output
        self._keys_due = 0.0  # monotonic seconds at which what it keeps goes to the agent; 0: nothing is kept
        self._masks: dict[int, int] = {}
        self._poll = select.poll()
        self._thread = threading.Thread(target=self._run, name="forward", daemon=True)

    # What other threads call.

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended (see `finish`), at most `timeout` seconds."""
        self._thread.join(timeout)

    def hurry(self) -> None:
        """Compete for the interpreter's lock as little as can be; loads ctypes (5 ms), so not at first."""
        from relay.terminal import direct

        self._read, self._write_bytes = direct.Reader(), direct.write

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what the person has typed so far."""
        self._offered += len(data)
        self._order(self._write, data)

    def reply(self, data: bytes) -> None:
        """Queue the answer to a query of the agent's: nobody typed it, and it is not echoed."""
        self._order(self._write_child, data)

    def end_of_file(self) -> None:
        """Type what ends the input of a terminal: VEOF, or Ctrl-D for a program that edits lines itself."""
        self._order(self._end_of_file)

    def output_pending(self) -> bool:
        """Whether the agent has said something that is not off the tee yet."""
        if self.tee:
            return True
        master = self._pty.master
        if master < 0:
            return False
        look = select.poll()
        look.register(master, select.POLLIN)
        return any(mask & select.POLLIN for _, mask in look.poll(0))

    def lent_size(self) -> tuple[int, int, int, int] | None:
        """(columns, rows, width, height) of the terminal that is lent now; None without one."""
        lent = self._lent
        return None if lent is None else lent.size()

    @property
    def watched(self) -> bool:
        """Whether the output goes to a person's terminal: not into a file, not into a pipe, not nowhere."""
        lent = self._lent
        return lent is not None and lent.sink_is_terminal

    def show(self, data: bytes) -> None:
        """Queue `data` for the lent terminal alone, between two pieces of the agent's output.

        Output that is redirected stays what the agent said: nothing is shown then.
        """
        self._order(self._show_person, data)

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Queue what moves no cursor (a bell, a title) for the lent terminal, where it cuts no sequence.

        undo: written to that terminal when it is withdrawn; b"" when there is nothing to undo any more.
        """
        self._order(self._show_aside, data, undo)

    def report(self, report: bytes) -> None:
        """Have the lent terminal, and each later one, know this `report` (OSC 7501) if it takes reports.

        It is asked so with the first; until it has answered, nothing but the question is written to it.
        """
        self._order(self._tell_terminal, report)

    def lend(self, terminal: Lent, greeting: bytes = b"") -> None:
        """Serve this terminal from now on; `greeting` (a repaint) is shown first. Replaces another."""
        self._order(self._lend, terminal, greeting)

    def hold(self) -> None:
        """Leave the agent's output in the PTY until `lend`, and say HELD: what was read until then is in
        the tee, so that a repaint made of it and what follows on the terminal fit together.
        """
        self._order(self._hold)

    def withdraw(self, restore: bool = False) -> None:
        """Stop using the lent terminal, and return when it is so; `restore`: give back its attributes."""
        done = threading.Event()
        self._order(self._withdraw, restore, done)
        if self._thread.is_alive():
            done.wait(WITHDRAWAL)

    def pause(self, paused: bool) -> None:
        """Leave the lent terminal's input alone (its owner is stopped), or read it again."""
        self._order(self._set_paused, paused)

    def reserve(self, reserved: bool) -> None:
        """Leave what the person types in their terminal, apart from what `write` is given; or no longer."""
        self._order(self._set_reserved, reserved)

    def settle(self) -> None:
        """The agent was stopped: show what it has said until now, then say SETTLED."""
        self._order(self._settle)

    def resize(self, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
        self._order(self._resize, columns, rows, width, height)

    def finish(self) -> None:
        """The agent has ended: forward what is left in the PTY, then ENDED, then stop."""
        self.over = True
        self._order(self._finish)

    def rearm(self) -> None:
        """Ask for `wake` at the next event; the caller empties the tee after this."""
        self.disarm()
        self._armed = True

    def disarm(self) -> None:
        """Make `wake` unreadable, until `rearm`."""
        try:
            while os.read(self.wake, 512):
                pass
        except BlockingIOError:
            pass

    @property
    def unwritten(self) -> int:
        """Bytes queued for the agent that its terminal has not taken."""
        return len(self._to_child) + self._offered - self._accepted

    def _order(self, *order: object) -> None:
        self._orders.append(order)
        try:
            os.write(self._poke_write, b"x")
        except OSError:
            pass  # full: the thread is about to wake; closed: it has ended

    # What the thread does.

    def _run(self) -> None:
        self._watch(self._poke_read, select.POLLIN)
        try:
            while self._step():
                pass
        finally:
            self.over = True
            self._obey()  # what was ordered before anybody could see that
            self._event(ENDED, None)
            self._end_asides()
            self._drop_terminal()
            self._pty.close()
            os.close(self._poke_read)

    def _step(self) -> bool:
        lent = self._lent
        full = self._held or len(self._to_sink) >= SINK_LIMIT
        self._watch(
            self._master,
            (0 if full else select.POLLIN) | (select.POLLOUT if self._to_child else 0),
        )
        if lent is not None:
            reading = not (self._paused or self.reserved) and len(self._to_child) < CHILD_LIMIT
            if lent.source >= 0:
                self._watch(lent.source, select.POLLIN if reading else 0)
            if lent.sink >= 0:
                self._watch(lent.sink, select.POLLOUT if self._to_sink else 0)
        draining = (self._finishing or self._unsettled > 0) and not self._to_sink
        timeout = 0 if draining else self._keys_timeout()
        if self._unannounced:
            ready = self._poll.poll(ECHO_PATIENCE if timeout is None else min(ECHO_PATIENCE, timeout))
            if not ready:
                self._announce()
                return True
        else:
            ready = self._poll.poll(timeout)
        read_something = False
        for fd, mask in ready:
            if fd == self._master:
                if mask & select.POLLOUT:
                    self._flush_child()
                readable = mask & (select.POLLIN | select.POLLHUP | select.POLLERR)
                if readable and not full and not self._held:  # an order may just have held it
                    if not self._read_master():
                        return self._linger()
                    read_something = True
            elif fd == self._poke_read:
                self._obey()
            elif self._lent is lent and lent is not None:
                if fd == lent.sink and mask & (select.POLLOUT | select.POLLHUP | select.POLLERR):
                    self._flush_sink()
                gone = mask & (select.POLLHUP | select.POLLERR)
                if fd == lent.source and (gone or (mask & select.POLLIN and not self.reserved)):
                    self._read_source(lent)
        if draining and not read_something:
            self._say_settled()
            return not self._finishing
        return True

    def _linger(self) -> bool:
        """The PTY is over. Go on while a terminal is still to be given what it has not taken."""
        self._watch(self._master, 0)
        if self._lent is not None:
            self._watch(self._lent.source, 0)
        while self._to_sink and self._lent is not None:
            self._watch(self._lent.sink, select.POLLOUT)
            for fd, _ in self._poll.poll():
                if fd == self._poke_read:
                    self._obey()
                elif self._lent is not None and fd == self._lent.sink:
                    self._flush_sink()
        return False

    def _watch(self, fd: int, mask: int) -> None:
        """Register `fd` for `mask`; 0 leaves it out, since poll reports a hang-up unasked for ever."""
        if self._masks.get(fd, 0) == mask:
            return
        if mask:
            self._poll.register(fd, mask)
            self._masks[fd] = mask
        else:
            self._poll.unregister(fd)
            del self._masks[fd]

    def _read_master(self) -> bool:
        """Take what the agent said; false when its terminal is over."""
        try:
            data = self._read(self._master, READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:  # EIO on Linux: the last descriptor of the other side was closed
            return False
        if not data:
            return False
        for query in self._queries.feed(data):
            self._answer(query)
        if self._lent is not None and self._lent.sink >= 0:
            self._said = data
            self._show(data)
            if self._asides is not None:
                self._asides.said(data)
                self._show_asides()
        # Without its CRs the virtual screen, which stands for a terminal, would begin no line at the left.
        self._tee(data if self._pty.line_feeds_return else data.replace(b"\n", b"\r\n"))
        if self._unsettled:
            self._unsettled -= len(data)
            if self._unsettled <= 0:
                self._say_settled()
        return True

    def _tee(self, data: bytes) -> None:
        if self.produced - self.consumed > TEE_LIMIT:
            self._skipped += len(data)
            return
        if self._skipped:
            self._event(GAP, self._skipped)
            self._skipped = 0
        self.produced += len(data)
        self._event(OUTPUT, data)

    def _event(self, kind: int, value: object) -> None:
        self.tee.append((kind, value))
        self._announce()

    def _announce(self) -> None:
        """Wake whoever reads the tee."""
        self._unannounced = False
        if self._armed:
            self._armed = False
            try:
                os.write(self._wake_write, b"x")
            except OSError:
                pass  # nobody listens any more

    def _show(self, data: bytes) -> None:
        lent = self._lent
        if lent is None or lent.sink < 0:
            return
        if lent.blocks:
            self._to_sink += data  # poll(2) says when it takes a piece
            return
        if not self._to_sink:
            try:
                data = data[self._write_bytes(lent.sink, data) :]
            except OSError:
                pass  # full, or gone: below
        self._to_sink += data
        self._flush_sink()

    def _show_person(self, data: bytes) -> None:
        if self.watched:
            self._show(data)

    def _show_aside(self, data: bytes, undo: bytes | None = None) -> None:
        if not self.watched:
            return
        if undo is not None:
            self._undo = undo
        if self._asides is None:
            from relay.terminal.aside import Asides  # needs `re`: 5 ms, after the agent's start

            self._asides = Asides()
            self._asides.said(self._said)
        self._asides.add(data)
        self._show_asides()

    def _show_asides(self) -> None:
        if self._asides is not None and self._asides.waiting:
            self._show(self._asides.due())

    def _answer(self, query: bytes) -> None:
        """Say that reports are taken here, before the person's terminal sees what follows the query.

        It sees the query as well, and what it answers tells us what it takes.
        """
        if len(self._to_child) < CHILD_LIMIT:
            self._write_child(query)
        self._answers.expected = True

    def _tell_terminal(self, report: bytes) -> None:
        self._report = report
        if self._answers.spoken:
            self._show_aside(report)
        else:
            self._ask_terminal()

    def _end_asides(self) -> None:
        """What we said beside the agent's output is no longer true of the terminal that we leave."""
        if self._undo:
            self._show(self._undo)
        if self._answers.spoken and self._report is not None:
            self._show(CLEAR)

    def _ask_terminal(self) -> None:
        lent = self._lent
        if lent is not None and lent.interactive and not self._answers.expected:
            self._answers.expected = True
            self._show_aside(QUERY)

    def _flush_sink(self) -> None:
        """Write what waits; to a descriptor that may block, the one piece that poll(2) has promised."""
        lent = self._lent
        if lent is None or lent.sink < 0:
            self._to_sink.clear()
            return
        while self._to_sink:
            try:
                taken = os.write(lent.sink, self._to_sink[: lent.piece])
            except BlockingIOError:
                return
            except OSError as error:
                self._lose("pipe" if isinstance(error, BrokenPipeError) else "terminal")
                return
            del self._to_sink[:taken]
            if lent.blocks:
                return

    def _read_source(self, lent: Lent) -> None:
        try:
            data = os.read(lent.source, READ_SIZE if lent.piece > 4096 else 4096)
        except BlockingIOError:
            return
        except OSError:
            self._lose("terminal")
            return
        if not data:
            if lent.source_is_terminal:
                self._lose("terminal")
            else:
                self._end_input(lent)
            return
        if lent.interactive:
            self._keys(data)
        else:
            self._write_child(data)  # typed by nobody: there is no draft to mind and no echo to expect

    def _end_input(self, lent: Lent) -> None:
        """A pipe or file that was our input is over."""
        self._watch(lent.source, 0)
        os.close(lent.source)
        lent.source = -1
        self._event(INPUT_OVER, None)

    def _end_of_file(self) -> None:
        self._write_child(end_of_file(self._pty.attributes()) or CTRL_D)

    def _keys(self, data: bytes) -> None:
        """What a person typed: to the agent, but for Ctrl-] d, which detaches, and answers to our query."""
        if self._answers.expected:
            data = self._without_answers(data)
        if not self._keys_due and ESC not in data and ESCAPE_KEY not in data:
            self._type(data)
            return
        if self._detach is None:
            from relay.terminal.detach import DetachKeys  # needs `re`: 5 ms, after the agent's start

            self._detach = DetachKeys()
        passed, detached = self._detach.feed(data)
        patience = SPLIT_PATIENCE if self._answers.unfinished else self._detach.patience
        self._keys_due = 0.0 if patience is None else time.monotonic() + patience
        self._type(passed)
        if detached:
            self._paused = True  # what is typed now is for the shell
            self._event(DETACH, None)

    def _without_answers(self, data: bytes) -> bytes:
        spoken = self._answers.spoken
        data = self._answers.feed(data)
        if self._answers.unfinished:
            self._keys_due = time.monotonic() + SPLIT_PATIENCE
        if self._answers.spoken and not spoken and self._report is not None:
            self._show_aside(self._report)
        return data

    def _keys_timeout(self) -> int | None:
        """Milliseconds until what was kept of the person's keys goes to the agent, which it does here."""
        if not self._keys_due or self.reserved:
            return None
        left = self._keys_due - time.monotonic()
        if left > 0:
            return int(left * 1000) + 1
        self._keys_due = 0.0
        kept = self._answers.flush()
        if self._detach is not None:
            kept = self._detach.feed(kept)[0] + self._detach.flush()
        self._type(kept)
        return None

    def _type(self, data: bytes) -> None:
        """Bytes of the person's, to be told apart from ours by the reader of the tee."""
        if data:
            self._write_child(data)
            self.tee.append((TYPED, data))
            self._unannounced = True

    def _write(self, data: bytes) -> None:
        self._event(WRITTEN, data)
        self._write_child(data)
        self._accepted += len(data)

    def _write_child(self, data: bytes) -> None:
        if not self._to_child:
            try:
                data = data[self._write_bytes(self._master, data) :]
            except OSError:
                pass  # full, or gone: below
        self._to_child += data
        self._flush_child()

    def _flush_child(self) -> None:
        while self._to_child:
            try:
                taken = os.write(self._master, self._to_child)
            except BlockingIOError:
                return
            except OSError:
                self._to_child.clear()
                return
            del self._to_child[:taken]

    def _lend(self, terminal: Lent, greeting: bytes) -> None:
        self._drop_terminal()
        self._lent = terminal
        self._paused = self._held = False
        if greeting:
            self._show(greeting)
        if self._report is not None:
            self._ask_terminal()

    def _hold(self) -> None:
        self._held = True
        self._event(HELD, None)

    def _withdraw(self, restore: bool, done: threading.Event) -> None:
        if restore and self._lent is not None:
            self._lent.restore()
        self._end_asides()
        self._drop_terminal()
        self._held = False
        done.set()

    def _drop_terminal(self) -> None:
        lent, self._lent = self._lent, None
        self._to_sink.clear()
        self._answers = Answers()
        self._undo = b""
        if self._asides is not None:
            self._asides.clear()
        if self._detach is not None:
            self._detach.flush()
        self._keys_due = 0.0
        if lent is not None:
            for fd in (lent.source, lent.sink):
                self._watch(fd, 0)
            lent.close()

    def _lose(self, what: str) -> None:
        self._drop_terminal()
        self._event(LOST, what)

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused

    def _set_reserved(self, reserved: bool) -> None:
        self.reserved = reserved

    def _resize(self, columns: int, rows: int, width: int, height: int) -> None:
        self._event(RESIZED, (columns, rows))
        set_size(self._master, columns, rows, width, height)

    def _settle(self) -> None:
        self._unsettled = PTY_LIMIT

    def _say_settled(self) -> None:
        if self._unsettled:
            self._unsettled = 0
            self._event(SETTLED, None)

    def _finish(self) -> None:
        self._finishing = True
        self._held = False

    def _obey(self) -> None:
        try:
            os.read(self._poke_read, 512)
        except BlockingIOError:
            pass
        while self._orders:
            method, *arguments = self._orders.popleft()
            method(*arguments)  # type: ignore[operator]
