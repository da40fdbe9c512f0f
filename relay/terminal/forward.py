"""The forward thread: moves bytes between the user's terminal and the agent's, and copies them to a tee.

    lent source ──read──→ to_child ──write──→ master (PTY)
    lent sink   ←─write── to_sink  ←──read─── master
                                      └─→ tee (a deque of events in the order in which they happened)

It only polls, reads, writes and appends.  It never waits for the reader of the tee.  It waits for the user's
terminal as the agent itself would: while that takes no more, it leaves the PTY unread.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque

from relay.terminal.pty import end_of_file, set_size
from relay.terminal.query import CLEAR, QUERY, SPLIT_PATIENCE, AnswerFilter, QueryFinder

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
TYPED  bytes from the user       WRITTEN bytes from `write`; both precede the echo that they cause
RESIZED (columns, rows)          GAP    number of bytes that the tee left out
ENDED  None: the output is over  LOST   "terminal" or "pipe": the lent terminal has gone
DETACH None: the user asked to detach
HELD   None: `hold` took effect; no output follows until `lend`
SETTLED None: the agent's output up to `settle` has been shown
INPUT_OVER None: the lent input, a pipe or a file, has ended
"""

READ_SIZE = 1 << 16
SINK_LIMIT = 1 << 18
"""Bytes kept for a slow terminal before the agent's output is left in the PTY."""
CHILD_LIMIT = 1 << 16
"""Bytes kept for an agent that does not read before the user's typing is left in their terminal."""
TEE_LIMIT = 1 << 25
"""Bytes in the tee beyond which output is not copied to it; a GAP follows."""

CTRL_D = b"\x04"

ECHO_PATIENCE = 2
"""Milliseconds that the news of a key waits for its echo, which the reader that it wakes would delay."""

ESCAPE_KEY, ESC = b"\x1d", b"\x1b"
"""Ctrl-], the first of the two keys that detach (as in telnet), and the start of its other forms."""

PTY_LIMIT = 1 << 17
"""An upper bound of the bytes that a PTY holds (Linux: 64 KB)."""

WITHDRAWAL = 0.5
"""Seconds that `withdraw` waits for the thread; only a terminal that blocks in a write needs them."""


class Forwarder:
    """The thread and its buffers.

    Other threads may call the public methods and read the public attributes; they set `consumed` as they take
    output off the tee.  `wake` is a descriptor that becomes readable when the tee has a new event after
    `rearm`.

    over: the thread has ended or will; no terminal can be lent any more.
    reserved: `reserve` took effect: what the user typed until then is in the tee, and no more follows.
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
        self._offered = 0  # bytes given to `write`: only its caller's thread changes it
        self._accepted = 0  # those that the thread has taken: only the thread changes it
        self._skipped = 0
        self._armed = True
        self._unannounced = False  # the tee holds keys of the user's that nobody was woken for yet
        self._read: Callable[[int, int], bytes] = os.read
        self._write_bytes: Callable[[int, bytes], int] = os.write
        self._detach: DetachKeys | None = None  # loaded with the first key that may be one of them
        self._queries = QueryFinder()
        self._answers = AnswerFilter()  # of the terminal that is lent
        self._report: bytes | None = None  # the status that the terminal should show
        self._asides: Asides | None = None  # loaded with the first
        self._undo = b""  # takes back an aside to the lent terminal
        self._said = b""  # the last piece of output
        self._keys_due = 0.0  # monotonic seconds at which kept keys go to the agent; 0: there are none
        self._masks: dict[int, int] = {}
        self._poll = select.poll()
        self._thread = threading.Thread(target=self._run, name="forward", daemon=True)

    # For other threads.

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended (see `finish`), at most `timeout` seconds."""
        self._thread.join(timeout)

    def hurry(self) -> None:
        """Compete less for the interpreter's lock. Loads ctypes (5 ms): call it after the agent's start."""
        from relay.terminal import direct

        self._read, self._write_bytes = direct.DirectReader(), direct.write

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what the user has typed so far."""
        self._offered += len(data)
        self._order(self._write, data)

    def reply(self, data: bytes) -> None:
        """Queue the answer to a query of the agent's, which is neither typing nor echoed."""
        self._order(self._write_child, data)

    def end_of_file(self) -> None:
        """Type VEOF, or Ctrl-D for a program that edits lines itself, to end the agent's input."""
        self._order(self._end_of_file)

    def output_pending(self) -> bool:
        """Return True if output of the agent waits in the tee or the PTY."""
        if self.tee:
            return True
        master = self._pty.master
        if master < 0:
            return False
        look = select.poll()
        look.register(master, select.POLLIN)
        return any(mask & select.POLLIN for _, mask in look.poll(0))

    def lent_size(self) -> tuple[int, int, int, int] | None:
        """Return (columns, rows, width, height) of the lent terminal, None without one."""
        lent = self._lent
        return None if lent is None else lent.size()

    @property
    def watched(self) -> bool:
        """Return True if the output goes to a terminal, not into a file, a pipe or nowhere."""
        lent = self._lent
        return lent is not None and lent.sink_is_terminal

    def show(self, data: bytes) -> None:
        """Queue `data` for the lent terminal only, between two pieces of the agent's output.

        Redirected output stays the agent's alone: nothing is added to it.
        """
        self._order(self._show_to_user, data)

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Queue what moves no cursor (a bell, a title) for the lent terminal, where it splits no sequence.

        undo: written to that terminal when it is withdrawn; b"" if there is nothing to undo any more.
        """
        self._order(self._show_aside, data, undo)

    def report(self, report: bytes) -> None:
        """Give this `report` (OSC 7501) to the lent terminal, and to each later one, if it takes reports.

        The first report asks it; until it answers, only the query is written to it.
        """
        self._order(self._tell_terminal, report)

    def lend(self, terminal: Lent, greeting: bytes = b"") -> None:
        """Serve this terminal from now on instead of another one; show `greeting`, a repaint, first."""
        self._order(self._lend, terminal, greeting)

    def hold(self) -> None:
        """Leave the agent's output in the PTY until `lend`, and put HELD into the tee.

        All that was read until then precedes HELD, so that a repaint made of it and the output that follows
        on the terminal fit together.
        """
        self._order(self._hold)

    def withdraw(self, restore: bool = False) -> None:
        """Stop using the lent terminal and wait for that; `restore` its attributes."""
        done = threading.Event()
        self._order(self._withdraw, restore, done)
        if self._thread.is_alive():
            done.wait(WITHDRAWAL)

    def pause(self, paused: bool) -> None:
        """Leave the lent terminal's input alone while its owner is stopped, or read it again."""
        self._order(self._set_paused, paused)

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal, so that only `write` types, or read them again."""
        self._order(self._set_reserved, reserved)

    def settle(self) -> None:
        """Show what the agent has printed so far, then put SETTLED into the tee. For a stopped agent."""
        self._order(self._settle)

    def resize(self, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
        self._order(self._resize, columns, rows, width, height)

    def finish(self) -> None:
        """Forward the rest of an agent that has ended, put ENDED into the tee, and end the thread."""
        self.over = True
        self._order(self._finish)

    def rearm(self) -> None:
        """Make `wake` readable at the next event. The caller empties the tee after this."""
        self.disarm()
        self._armed = True

    def disarm(self) -> None:
        """Make `wake` unreadable until `rearm`."""
        try:
            while os.read(self.wake, 512):
                pass
        except BlockingIOError:
            pass

    @property
    def unwritten(self) -> int:
        """Return the number of bytes queued for the agent that its terminal has not taken yet."""
        return len(self._to_child) + self._offered - self._accepted

    def _order(self, *order: object) -> None:
        self._orders.append(order)
        try:
            os.write(self._poke_write, b"x")
        except OSError:
            pass  # full: the thread is about to wake; closed: it has ended

    # In the thread.

    def _run(self) -> None:
        self._watch(self._poke_read, select.POLLIN)
        try:
            while self._step():
                pass
        finally:
            self.over = True
            self._obey()  # orders given before anybody could see that
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
                if readable and not full and not self._held:  # an order may have held it just now
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
        """Show the rest to a slow terminal after the PTY is over. Return False: the thread ends."""
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
        """Register `fd` for `mask`; 0 unregisters it, as poll(2) reports a hang-up even unasked."""
        if self._masks.get(fd, 0) == mask:
            return
        if mask:
            self._poll.register(fd, mask)
            self._masks[fd] = mask
        else:
            self._poll.unregister(fd)
            del self._masks[fd]

    def _read_master(self) -> bool:
        """Read the agent's output. Return False if its terminal is over."""
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
                self._asides.output(data)
                self._show_asides()
        # The virtual screen stands for a terminal: without CRs its lines would not begin at the left.
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
        """Wake the reader of the tee, if it asked for that."""
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

    def _show_to_user(self, data: bytes) -> None:
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
            self._asides.output(self._said)
        self._asides.add(data)
        self._show_asides()

    def _show_asides(self) -> None:
        if self._asides is not None and self._asides.waiting:
            self._show(self._asides.due())

    def _answer(self, query: bytes) -> None:
        """Answer that reports are taken here, before the user's terminal sees what follows the query.

        That terminal sees the query as well, and its answer tells us what it takes.
        """
        if len(self._to_child) < CHILD_LIMIT:
            self._write_child(query)
        self._answers.expect()

    def _tell_terminal(self, report: bytes) -> None:
        self._report = report
        if self._answers.answered:
            self._show_aside(report)
        else:
            self._ask_terminal()

    def _end_asides(self) -> None:
        """Take back what we wrote beside the agent's output to the terminal that we leave."""
        if self._undo:
            self._show(self._undo)
        if self._answers.answered and self._report is not None:
            self._show(CLEAR)

    def _ask_terminal(self) -> None:
        lent = self._lent
        if lent is not None and lent.interactive and not self._answers.expected:
            self._answers.expect()
            self._show_aside(QUERY)

    def _flush_sink(self) -> None:
        """Write what is queued; to a descriptor that may block, only the one piece that poll(2) promised."""
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
            self._write_child(data)  # not typed: there is no draft and no echo

    def _end_input(self, lent: Lent) -> None:
        """Close a pipe or file that was our input and has ended."""
        self._watch(lent.source, 0)
        os.close(lent.source)
        lent.source = -1
        self._event(INPUT_OVER, None)

    def _end_of_file(self) -> None:
        self._write_child(end_of_file(self._pty.attributes()) or CTRL_D)

    def _keys(self, data: bytes) -> None:
        """Pass the user's keys to the agent, but for Ctrl-] d, which detaches, and answers to our query."""
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
        spoken = self._answers.answered
        data = self._answers.feed(data)
        if self._answers.unfinished:
            self._keys_due = time.monotonic() + SPLIT_PATIENCE
        if self._answers.answered and not spoken and self._report is not None:
            self._show_aside(self._report)
        return data

    def _keys_timeout(self) -> int | None:
        """Return the milliseconds until kept keys are due, None without any. Pass them on if they are due."""
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
        """Pass bytes of the user's to the agent, and put them into the tee apart from ours."""
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
        self._answers = AnswerFilter()
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
