"""The shim's side of an agent's session process: starts it, carries out its orders, replaces it.

The shim owns everything that belongs to the agent, so a session may be killed, crash, hang or be replaced at
any moment.  The next one resumes in the ring where the last one stopped.
"""

from __future__ import annotations

import _socket
import os
import time

from relay.shim import ring
from relay.shim import signals as signal
from relay.shim.channel import JsonChannel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.loop import Loop, Timer
    from relay.shim.ring import RingWriter
    from relay.shim.terminals import TerminalServer

    Launch = Callable[[dict[str, int]], int]

TRIES = 3
"""Deaths before a session is ready, or at the same record of the ring, after which we stop restarting it."""

SKIPPED_AFTER = 2
"""Deaths at one record of the ring after which that record is skipped."""

SKIPPED = (ring.OUTPUT, ring.TYPED, ring.WRITTEN, ring.RESIZED)
"""Kinds of records that may be skipped; without the other kinds, a session would never learn of an end."""

STEADY = 5.0
"""Seconds after which the death of a ready session counts as a kill, not as a failure to run."""

SHORT_LIVED = 16
"""Short-lived sessions in a row after which restarts back off; four more are tried."""

PAUSE = 0.2
"""Seconds until the restart after a session that never became ready; doubled each time."""

RETIREMENT = 3.0
"""Seconds that a session gets to finish its work before it is replaced."""

MAX_ORDER = 1 << 26
"""Bytes of one order: a repaint of a large screen."""


class Launcher:
    """The means to start a session.

    start:   starts one with these descriptors, by name, and returns its pid.
    hello:   the first message to each session.
    started: called with the pid of each session.
    failed:  called with the reason when we stop restarting sessions.
    first:   the generation of this agent's first session.
    """

    def __init__(
        self,
        start: Launch,
        hello: dict[str, Any],
        started: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        self.start = start
        self.hello = hello
        self.started = started
        self.failed = failed
        self.first = 1


class _Deaths:
    """Counts the deaths of one agent's sessions towards giving up.

    skip: the position at which the next session starts reading; 0: no skip.
    """

    def __init__(self) -> None:
        self.skip = 0
        self._early = self._same = self._short = 0
        self._place = -1  # where the last one died

    def forgive(self) -> None:
        self._early = self._same = self._short = 0

    def count(self, ready: bool, ring_: RingWriter) -> None:
        """Count one more. ready: the session had become ready.

        A ready session that dies while processing no record was killed: it counts only towards SHORT_LIVED.
        """
        worked = time.monotonic() - ring_.words[ring.READY_SINCE] / 1e9 if ready else 0.0
        self._short = self._short + 1 if worked < STEADY else 0
        place = ring_.words[ring.AT] - 1
        self._early = 0 if ready or place >= 0 else self._early + 1
        self._same = 0 if place < 0 else self._same + 1 if place == self._place else 1
        self._place = place
        if self._same >= SKIPPED_AFTER and ring_.kind(place) in SKIPPED:
            self.skip = ring_.after(place)

    @property
    def too_many(self) -> int:
        """The number of deaths if they are too many to start another session, otherwise 0."""
        if self._early >= TRIES or self._same > TRIES:
            return TRIES
        return self._short if self._short >= SHORT_LIVED + 4 else 0

    @property
    def pause(self) -> float:
        """Seconds until the next start."""
        doubled = max(self._early, self._short - SHORT_LIVED + 1)
        return PAUSE * 2 ** (doubled - 1) if doubled > 0 else 0.0


class _Replacement:
    """The ordered replacement of a session.

    begun: the running session was told to end. kill: timer that kills it; start: timer that starts the next.
    """

    def __init__(self) -> None:
        self.begun = False
        self.kill: Timer | None = None
        self.start: Timer | None = None

    def cancel(self) -> None:
        for timer in (self.kill, self.start):
            if timer is not None:
                timer.cancel()
        self.kill = self.start = None


class SessionProcess:
    """Starts and replaces the session of one agent.

    pid:    of the running session; 0 if there is none.
    ended:  None; or, when no session follows: "" if the work is done, else why the sessions failed.
    orders: the orders that a session may give, by name.
    """

    def __init__(
        self,
        loop: Loop,
        ring_: RingWriter,
        terminals: TerminalServer,
        fds: dict[str, int],
        launcher: Launcher,
    ) -> None:
        self.pid = 0
        self.ended: str | None = None
        self.generation = 0
        self._loop = loop
        self._ring = ring_
        self._terminals = terminals
        self._fds = fds
        self._launcher = launcher
        self._channel: JsonChannel | None = None
        self._deaths = _Deaths()
        self._replacement = _Replacement()
        self.orders: dict[str, Callable[..., None]] = {
            "write": lambda data: terminals.forwarder.write(data.encode("latin-1")),
            "reply": lambda data: terminals.forwarder.reply(data.encode("latin-1")),
            "aside": self._aside,
            "report": lambda data: terminals.forwarder.user.report(data.encode("latin-1")),
            "prefix": lambda key: terminals.forwarder.user.use_prefix(key),
            "outlive": terminals.outlive,
            "reserve": terminals.reserve,
            "renew": terminals.prolong,
            "repaint": lambda id, data: terminals.repaint(id, data.encode("latin-1")),
            "parting": terminals.note_reset,
            "notice": terminals.notices.add,
            "forget": terminals.notices.forget,
            "unread": terminals.notices.count_unread,
            "dismiss": terminals.dismiss,
            "over": self._say_over,
        }

    @property
    def ready(self) -> bool:
        return self.pid != 0 and self._ring.words[ring.READY] == self.generation

    @property
    def failed(self) -> str:
        """The reason why we stopped restarting sessions; "" if we have not."""
        return self.ended or ""

    def start(self) -> None:
        """Start a session unless one is running."""
        if self.pid:
            return
        self.generation += 1
        self._ring.words[ring.READY] = self._ring.words[ring.AT] = 0
        self._ring.words[ring.ARMED] = 0
        fds = {**self._fds, "master": self._terminals.forwarder.pty.master}
        pair: tuple[_socket.socket, ...] = ()
        try:
            ours, theirs = pair = _socket.socketpair()
            fds["orders"] = theirs.fileno()
            self.pid = self._launcher.start({name: fd for name, fd in fds.items() if fd >= 0})
        except OSError as error:
            for each in pair:
                each.close()
            self._deaths.count(False, self._ring)
            self._again(f"cannot start a process: {error.strerror}")
            return
        theirs.close()
        self._channel = JsonChannel(self._loop, ours.detach(), self._ordered, self._hung_up, most=MAX_ORDER)
        about = {
            "generation": self.generation,
            "resumed": self.generation > self._launcher.first,
            "skip": self._deaths.skip,
            "shim": os.getpid(),
        }
        del fds["orders"]
        self._channel.send(**self._launcher.hello, fds=fds, **about)
        self._launcher.started(self.pid)

    def renew(self, hello: dict[str, Any]) -> None:
        """Start a session for the next agent; the last agent's are done. hello: describes the next agent."""
        self._launcher.hello.update(hello)
        self._launcher.first = self.generation + 1
        self._deaths = _Deaths()
        self.ended = None
        self.start()

    @property
    def about(self) -> dict[str, Any]:
        return self._launcher.hello

    def reap(self, status: int) -> None:
        """Handle the session's end; start another one unless it had reported its work as done."""
        ready = self.ready
        if self._channel is not None:
            self._channel.drain()  # its last orders
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.pid = 0
        self._replacement.cancel()
        self._terminals.session_gone()
        if self.ended is not None:
            return
        if self._replacement.begun:
            self._replacement.begun = False
            self._deaths.forgive()
            self.start()
            return
        how = os.waitstatus_to_exitcode(status)
        self._deaths.count(ready, self._ring)
        self._again(f"signal {-how}" if how < 0 else f"exit code {how}")

    def _again(self, why: str) -> None:
        if times := self._deaths.too_many:
            self.give_up(f"it ended {times} times ({why})")
        elif self._deaths.pause:
            self._replacement.start = self._loop.later(self._deaths.pause, self.start)
        else:
            self.start()

    def give_up(self, why: str) -> None:
        """Stop restarting sessions; the agent continues without one."""
        self.ended = why
        listener = self._fds.pop("listener", -1)
        if listener >= 0:
            os.close(listener)
        self._launcher.failed(why)

    def listen_at(self, listener: int) -> None:
        """Let the next session accept connections on `listener`: `give_up` has closed the last listener."""
        self._fds["listener"] = listener

    def replace(self) -> None:
        """End the session, if there is one, and start another."""
        self._replacement.cancel()
        self.ended = None
        self._deaths.forgive()
        if not self.pid:
            self.start()
            return
        self._replacement.begun = True
        if self._channel is not None:
            self._channel.send(retire=True)
        self._replacement.kill = self._loop.later(RETIREMENT if self.ready else 0.0, self.kill)

    def chosen(self, key: str) -> None:
        """Tell the session which key the user has pressed between two agents."""
        if self._channel is not None:
            self._channel.send(chosen=key)

    def finish(self) -> None:
        self.ended = self.ended or ""
        self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send signal `number` to the running session, if there is one."""
        if self.pid:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass  # `reap` is handling its last orders

    def _hung_up(self) -> None:
        """Handle that the session closed its end, so it can give no more orders."""
        self._channel = None
        self._terminals.session_gone()

    def _ordered(self, fields: dict[str, Any], fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
        if (question := fields.pop("ask", None)) is not None:
            id = fields.pop("id", 0)
            if self._channel is not None:
                answer = _look(**fields) if question == "look" else self._terminals.notices.pending
                self._channel.send(id=id, answer=answer)
        elif (order := self.orders.get(str(fields.pop("do", "")))) is not None:
            order(**fields)

    def _aside(self, data: str, undo: str | None) -> None:
        taken_back = None if undo is None else undo.encode("latin-1")
        self._terminals.forwarder.user.aside(data.encode("latin-1"), taken_back)

    def _say_over(self) -> None:
        self.ended = ""


def _look(group: int) -> list[object]:
    """Return what a process group waits for (process_wait.Waiting): the kernel may tell only an ancestor."""
    from relay.shim.process_wait import look

    looked = look(group)
    return [looked.wait.value, looked.nap, looked.alone]
