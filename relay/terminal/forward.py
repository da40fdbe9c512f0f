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
from functools import partial, wraps

from relay.terminal.lend import UserTerminal
from relay.terminal.pty import end_of_file, set_size
from relay.terminal.query import QueryFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec

    from relay.terminal.lend import Lent
    from relay.terminal.pty import Pty

    P = ParamSpec("P")

OUTPUT, TYPED, WRITTEN, RESIZED, GAP, ENDED, LOST, DETACH, HELD, SETTLED, RESERVED, INPUT_OVER = range(12)
"""Kinds of events in the tee; each event is (kind, value).

OUTPUT bytes from the agent
TYPED  bytes from the user       WRITTEN bytes from `write`; both precede the echo that they cause
RESIZED (columns, rows)          GAP    number of bytes that the tee left out
ENDED  None: the output is over  LOST   "terminal" or "pipe": the lent terminal has gone
DETACH None: the user asked to detach
HELD   None: `hold` took effect; no output follows until `lend`
SETTLED None: the agent's output up to `settle` has been shown
RESERVED None: `reserve` took effect; nothing of the user's follows until it ends
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

PTY_LIMIT = 1 << 17
"""An upper bound of the bytes that a PTY holds (Linux: 64 KB)."""

WITHDRAWAL = 0.5
"""Seconds that `withdraw` waits for the thread; only a terminal that blocks in a write needs them."""

_GONE = select.POLLHUP | select.POLLERR


class Tee(deque[tuple[int, object]]):
    """The events for another thread, which takes them from the left.

    wake:        a descriptor that becomes readable at the next event after `rearm`.
    produced:    bytes of output so far, and `consumed`, those that the reader has taken: it counts them.
    unannounced: there are keys of the user's that nobody was woken for yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.produced = self.consumed = 0
        self.unannounced = False
        self.wake, self._wake_write = _pipe()
        self._skipped = 0
        self._armed = True

    def output(self, data: bytes) -> None:
        """Add output of the agent, or count it as left out if there is too much already."""
        if self.produced - self.consumed > TEE_LIMIT:
            self._skipped += len(data)
            return
        if self._skipped:
            self.event(GAP, self._skipped)
            self._skipped = 0
        self.produced += len(data)
        self.event(OUTPUT, data)

    def event(self, kind: int, value: object = None) -> None:
        self.append((kind, value))
        self.announce()

    def announce(self) -> None:
        """Wake the reader, if it asked for that."""
        self.unannounced = False
        if self._armed:
            self._armed = False
            _poke(self._wake_write)

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


class Poller:
    """The descriptors that poll(2) watches, and the events asked for."""

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._poll = select.poll()

    def watch(self, fd: int, mask: int) -> None:
        """Register `fd` for `mask`; 0 unregisters it, as poll(2) reports a hang-up even unasked."""
        if fd < 0 or self.masks.get(fd, 0) == mask:
            return
        if mask:
            self._poll.register(fd, mask)
            self.masks[fd] = mask
        else:
            self._poll.unregister(fd)
            del self.masks[fd]

    def poll(self, timeout: int | None = None) -> list[tuple[int, int]]:
        """Return (descriptor, events) of those that are ready within `timeout` milliseconds (None: wait)."""
        return self._poll.poll(timeout)


class _Child:
    """The agent's terminal, and the input that it has not taken yet (`queued`).

    offered, accepted: bytes given to Forwarder.write, and those of them that the thread has taken. Each is
    changed by one thread only.
    """

    def __init__(self, pty: Pty) -> None:
        os.set_blocking(pty.master, False)
        self.pty = pty
        self.fd = pty.master
        self.queued = bytearray()
        self.offered = self.accepted = 0
        self.queries = QueryFinder()
        self.read_bytes: Callable[[int, int], bytes] = os.read
        self.write_bytes: Callable[[int, bytes], int] = os.write

    def write(self, data: bytes) -> None:
        if not self.queued:
            try:
                data = data[self.write_bytes(self.fd, data) :]
            except OSError:
                pass  # full, or gone: below
        self.queued += data
        self.flush()

    def flush(self) -> None:
        while self.queued:
            try:
                taken = os.write(self.fd, self.queued)
            except BlockingIOError:
                return
            except OSError:
                self.queued.clear()
                return
            del self.queued[:taken]


def _order(method: Callable[Concatenate[Forwarder, P], None]) -> Callable[Concatenate[Forwarder, P], None]:
    """Make a method an order: any thread calls it, and the forward thread carries it out."""

    @wraps(method)
    def give(self: Forwarder, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._orders.append(partial(method, self, *args, **kwargs))
        _poke(self._order_pipe[1])

    return give


class Forwarder:
    """The thread and its buffers. Other threads may call the public methods and read the public attributes.

    over: the thread has ended or will; no terminal can be lent any more.
    """

    def __init__(self, pty: Pty) -> None:
        self.tee = Tee()
        self.over = False
        self._reserved = False
        self._child = _Child(pty)
        self._poller = Poller()
        self._user = UserTerminal(self._poller, lambda what: self.tee.event(LOST, what))
        self._orders: deque[Callable[[], None]] = deque()
        self._order_pipe = _pipe()
        self._held = False
        self._unsettled = 0  # bytes that may still be in the PTY from before `settle`
        self._finishing = False
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

        self._child.read_bytes = direct.DirectReader()
        self._child.write_bytes = self._user.write_bytes = direct.write

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what the user has typed so far."""
        self._child.offered += len(data)
        self._write(data)

    @_order
    def reply(self, data: bytes) -> None:
        """Queue the answer to a query of the agent's, which is neither typing nor echoed."""
        self._child.write(data)

    @_order
    def end_of_file(self) -> None:
        """Type VEOF, or Ctrl-D for a program that edits lines itself, to end the agent's input."""
        self._child.write(end_of_file(self._child.pty.attributes()) or CTRL_D)

    def output_pending(self) -> bool:
        """Return True if output of the agent waits in the tee or the PTY."""
        if self.tee:
            return True
        master = self._child.pty.master
        if master < 0:
            return False
        look = select.poll()
        look.register(master, select.POLLIN)
        return any(mask & select.POLLIN for _, mask in look.poll(0))

    def lent_size(self) -> tuple[int, int, int, int] | None:
        """Return (columns, rows, width, height) of the lent terminal, None without one."""
        lent = self._user.lent
        return None if lent is None else lent.size()

    @property
    def watched(self) -> bool:
        """True if the output goes to a terminal, not into a file, a pipe or nowhere."""
        return self._user.watched

    @_order
    def show(self, data: bytes) -> None:
        """Queue `data` for the lent terminal only, between two pieces of the agent's output.

        Redirected output stays the agent's alone: nothing is added to it.
        """
        if self._user.watched:
            self._user.show(data)

    @_order
    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Queue what moves no cursor (a bell, a title) for the lent terminal, where it splits no sequence.

        undo: written to that terminal when it is withdrawn; b"" if there is nothing to undo any more.
        """
        self._user.aside(data, undo)

    @_order
    def report(self, report: bytes) -> None:
        """Give this `report` (OSC 7501) to the lent terminal, and to each later one, if it takes reports.

        The first report asks it; until it answers, only the query is written to it.
        """
        self._user.report(report)

    @_order
    def lend(self, terminal: Lent, greeting: bytes = b"") -> None:
        """Serve this terminal from now on instead of another one; show `greeting`, a repaint, first."""
        self._held = False
        self._user.lend(terminal, greeting)

    @_order
    def hold(self) -> None:
        """Leave the agent's output in the PTY until `lend`, and put HELD into the tee.

        All that was read until then precedes HELD, so that a repaint made of it and the output that follows
        on the terminal fit together.
        """
        self._held = True
        self.tee.event(HELD)

    def withdraw(self, restore: bool = False) -> None:
        """Stop using the lent terminal and wait for that; `restore` its attributes."""
        done = threading.Event()
        self._withdraw(restore, done)
        if self._thread.is_alive():
            done.wait(WITHDRAWAL)

    @_order
    def pause(self, paused: bool) -> None:
        """Leave the lent terminal's input alone while its owner is stopped, or read it again."""
        self._user.paused = paused

    @_order
    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal, so that only `write` types, or read them again.

        As they are left there, RESERVED is put into the tee, behind all that was typed until then.
        """
        self._reserved = reserved
        if reserved:
            self.tee.event(RESERVED)

    @_order
    def settle(self) -> None:
        """Show what the agent has printed so far, then put SETTLED into the tee. For a stopped agent."""
        self._unsettled = PTY_LIMIT

    @_order
    def resize(self, columns: int, rows: int, width: int = 0, height: int = 0) -> None:
        self.tee.event(RESIZED, (columns, rows))
        set_size(self._child.fd, columns, rows, width, height)

    def finish(self) -> None:
        """Forward the rest of an agent that has ended, put ENDED into the tee, and end the thread."""
        self.over = True
        self._finish()

    @property
    def unwritten(self) -> int:
        """The number of bytes queued for the agent that its terminal has not taken yet."""
        return len(self._child.queued) + self._child.offered - self._child.accepted

    # In the thread.

    def _run(self) -> None:
        self._poller.watch(self._order_pipe[0], select.POLLIN)
        try:
            while self._step():
                pass
        finally:
            self.over = True
            self._obey()  # orders given before anybody could see that
            self.tee.event(ENDED)
            self._user.withdraw()
            self._child.pty.close()
            os.close(self._order_pipe[0])

    def _step(self) -> bool:
        child, user, lent = self._child, self._user, self._user.lent
        full = self._held or len(user.queued) >= SINK_LIMIT
        wanted = (0 if full else select.POLLIN) | (select.POLLOUT if child.queued else 0)
        self._poller.watch(child.fd, wanted)
        if lent is not None:
            reading = not (user.paused or self._reserved) and len(child.queued) < CHILD_LIMIT
            self._poller.watch(lent.source, select.POLLIN if reading else 0)
            self._poller.watch(lent.sink, select.POLLOUT if user.queued else 0)
        draining = (self._finishing or self._unsettled > 0) and not user.queued
        timeout = 0 if draining else self._keys_timeout()
        if self.tee.unannounced:
            ready = self._poller.poll(ECHO_PATIENCE if timeout is None else min(ECHO_PATIENCE, timeout))
            if not ready:
                self.tee.announce()
                return True
        else:
            ready = self._poller.poll(timeout)
        read_something = False
        for fd, mask in ready:
            if fd == child.fd:
                if mask & select.POLLOUT:
                    child.flush()
                # An order may have held it just now.
                if mask & (select.POLLIN | _GONE) and not full and not self._held:
                    if not self._read_master():
                        return self._linger()
                    read_something = True
            elif fd == self._order_pipe[0]:
                self._obey()
            elif user.lent is lent and lent is not None:
                if fd == lent.sink and mask & (select.POLLOUT | _GONE):
                    user.flush()
                if fd == lent.source and (mask & _GONE or (mask & select.POLLIN and not self._reserved)):
                    self._read_source(lent)
        if draining and not read_something:
            self._say_settled()
            return not self._finishing
        return True

    def _linger(self) -> bool:
        """Show the rest to a slow terminal after the PTY is over. Return False: the thread ends."""
        user = self._user
        self._poller.watch(self._child.fd, 0)
        if user.lent is not None:
            self._poller.watch(user.lent.source, 0)
        while user.queued and user.lent is not None:
            self._poller.watch(user.lent.sink, select.POLLOUT)
            for fd, _ in self._poller.poll():
                if fd == self._order_pipe[0]:
                    self._obey()
                elif user.lent is not None and fd == user.lent.sink:
                    user.flush()
        return False

    def _read_master(self) -> bool:
        """Read the agent's output. Return False if its terminal is over."""
        child = self._child
        try:
            data = child.read_bytes(child.fd, READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:  # EIO on Linux: the last descriptor of the other side was closed
            return False
        if not data:
            return False
        for query in child.queries.feed(data):
            # We answer that reports are taken here. The user's terminal sees the query as well, and its
            # answer tells us what it takes.
            if len(child.queued) < CHILD_LIMIT:
                child.write(query)
            self._user.keyboard.answers.expected = True
        self._user.output(data)
        # The virtual screen stands for a terminal: without CRs its lines would not begin at the left.
        self.tee.output(data if child.pty.line_feeds_return else data.replace(b"\n", b"\r\n"))
        if self._unsettled:
            self._unsettled -= len(data)
            if self._unsettled <= 0:
                self._say_settled()
        return True

    def _read_source(self, lent: Lent) -> None:
        try:
            data = os.read(lent.source, READ_SIZE if lent.piece > 4096 else 4096)
        except BlockingIOError:
            return
        except OSError:
            self._user.lose("terminal")
            return
        if not data and lent.source_is_terminal:
            self._user.lose("terminal")
        elif not data:  # a pipe or a file, which has ended
            self._poller.watch(lent.source, 0)
            os.close(lent.source)
            lent.source = -1
            self.tee.event(INPUT_OVER)
        elif lent.interactive:
            passed, detached = self._user.keys(data)
            self._type(passed)
            if detached:
                self._user.paused = True  # what is typed now is for the shell
                self.tee.event(DETACH)
        else:
            self._child.write(data)  # not typed: there is no draft and no echo

    def _keys_timeout(self) -> int | None:
        """Return the milliseconds until kept keys are due, None without any. Pass them on if they are due."""
        keyboard = self._user.keyboard
        if not keyboard.due or self._reserved:
            return None
        left = keyboard.due - time.monotonic()
        if left > 0:
            return int(left * 1000) + 1
        self._type(keyboard.flush())
        return None

    def _type(self, data: bytes) -> None:
        """Pass bytes of the user's to the agent, and put them into the tee apart from ours."""
        if data:
            self._child.write(data)
            self.tee.append((TYPED, data))
            self.tee.unannounced = True

    @_order
    def _write(self, data: bytes) -> None:
        self.tee.event(WRITTEN, data)
        self._child.write(data)
        self._child.accepted += len(data)

    @_order
    def _withdraw(self, restore: bool, done: threading.Event) -> None:
        if restore and self._user.lent is not None:
            self._user.lent.restore()
        self._user.withdraw()
        self._held = False
        done.set()

    def _say_settled(self) -> None:
        if self._unsettled:
            self._unsettled = 0
            self.tee.event(SETTLED)

    @_order
    def _finish(self) -> None:
        self._finishing = True
        self._held = False

    def _obey(self) -> None:
        try:
            os.read(self._order_pipe[0], 512)
        except BlockingIOError:
            pass
        while self._orders:
            self._orders.popleft()()


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe that never blocks."""
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def _poke(fd: int) -> None:
    try:
        os.write(fd, b"x")
    except OSError:
        pass  # full: the reader is about to wake; closed: it has ended
