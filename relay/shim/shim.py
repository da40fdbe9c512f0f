"""The shim's core: one loop that forwards, reaps, and keeps a session running.

client ⇄ TerminalServer ⇄ Forwarder ⇄ PTY ⇄ agent
                              │ ring
                        SessionProcess ⇄ session
"""

from __future__ import annotations

import os
import select

from relay.errors import RelayError
from relay.shim import ring
from relay.shim import signals as signal
from relay.shim.adoption import release_stopped
from relay.shim.channel import JsonChannel
from relay.shim.loop import Loop
from relay.shim.terminals import TerminalClient, TerminalServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from relay.shim.control import May
    from relay.shim.loop import Timer
    from relay.shim.pipes import Pipes
    from relay.shim.pty import Pty
    from relay.shim.session_process import Launch, SessionProcess
    from relay.shim.user_terminal import AttachedTerminal

FAREWELL = 2.0
"""Seconds by which the agent's last directives and session_end handlers may delay the user's shell."""

DECISION = 5.0
"""Seconds that a session gets to order the next agent after announcing that one follows."""

FIRST_SESSION = 30.0
"""Seconds that the starter of a detached agent waits for the agent's session."""

LEFTOVER, LEFTOVER_LOOKS = 1.0, 50
"""Seconds until we kill the processes that the agent left behind, and the number of checks in that time."""

LAST_STEPS = 30.0
"""Seconds that a session gets after its agent's end."""

KILLS = 0.5
"""Seconds between SIGTERM, SIGHUP and SIGKILL when no session stops the agent."""


class _End:
    """The steps to the shim's end.

    code:    the agent's exit code, None while it runs. shown: all of its output is out.
    lost:    some of its output could not be written.
    goodbye: the terminal was given back. swept: the agent has no processes left. over: nothing left to do.
    kept:    the session decides whether another agent follows. next: that agent.
    supervised: the session decides after each agent.
    pipes:   the pipes that replace the agent's terminal, if any.
    """

    def __init__(self, *, supervised: bool) -> None:
        self.code: int | None = None
        self.shown = self.lost = self.goodbye = self.swept = self.over = False
        self.supervised = self.kept = supervised
        self.next: AgentOrder | None = None
        self.pipes: Pipes | None = None
        self.looks = 0  # checks for processes left behind
        self.timer: Timer | None = None  # gives the terminal back if the session does not


class AgentOrder:
    """An order to start another agent, in its own new terminal, for the same users.

    argv, env, cwd: as for execve(2). hello: the first message to its sessions.
    pipes:          its descriptors (0, 1, 2) that are pipes, not its terminal; their output goes to the ring.
    """

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, hello: dict[str, Any], pipes: Sequence[int] = ()
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.hello = hello
        self.pipes = pipes


class Shim:
    """Owns the terminal of one agent until its end, then the next agent's, if another one is ordered.

    memory:   for the ring (ring.make).
    spawn:    starts another agent, as ordered, in a terminal like the last one.
    channel:  to the first client. detached: that client leaves as soon as a session runs.
    started:  called with the pid of each session.
    supervised: the session decides, each time an agent ends, whether another one follows.
    beginning: calls `keep_session`; due at once if the agent ends before.
    """

    def __init__(
        self,
        pty: Pty,
        memory: int,
        *,
        name: str,
        channel: int,
        detached: bool,
        started: Callable[[int], None],
        spawn: Callable[[AgentOrder, Pty], Pty],
        supervised: bool = False,
    ) -> None:
        self.loop = Loop()
        wake = _Wake()
        self._fds = {"ring": memory, "wake": wake.read}  # of sessions
        self._ring = ring.RingWriter(memory, wake.up)
        self.terminals = TerminalServer(self.loop, pty, self._ring, name=name, ended=self._output_ended)
        self._session: SessionProcess | None = None
        self.beginning: Timer | None = None
        self._pty = pty
        self._name = name
        self._started = started
        self._spawn = spawn
        self._end = _End(supervised=supervised)
        client = JsonChannel(self.loop, channel, lambda fields, fds: None, lambda: None)
        self._first = client if detached else None
        if not detached:
            self.terminals.adopt(TerminalClient(client, owner=True))
        signals = _Wake()
        signal.set_wakeup_fd(signals.write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _woken)
        self.loop.add(signals.read, select.POLLIN, lambda _: self._on_signals(signals.take()))

    def begin(self, attached: AttachedTerminal, *, foreground: bool) -> None:
        self.terminals.begin(attached, foreground=foreground)

    def pipe(self, users: dict[int, int]) -> None:
        """Forward between the agent's pipes and these descriptors of the user's (Pipes.users)."""
        from relay.shim.pipes import Pipes

        self._end.pipes = Pipes(self.loop, self._ring, self._pty.pipes, users, self._drained, self._lost)

    def _lost(self, error: OSError) -> None:
        """Report that some of the agent's output could not be written; the agent does not learn why."""
        if not self._end.lost:
            self._end.lost = True
            self.terminals.notices.add(f"the output of {self._name} cannot be written: {error.strerror}.")

    def keep_session(self, launch: Launch, hello: dict[str, Any], path: str, may: May) -> None:
        """Start a session for the agent, and keep one running. Until now, the first client heard nothing.

        path: of the session's control socket. may: as in ShimControl.
        """
        from relay.shim.control import ShimControl, bind
        from relay.shim.session_process import Launcher, SessionProcess

        self.terminals.introduce()
        fds = {**self._fds, "listener": bind(path).detach()}
        launcher = Launcher(launch, hello, self._started, self._session_failed)
        self._session = SessionProcess(self.loop, self._ring, self.terminals, fds, launcher)
        self._session.orders |= {
            "goodbye": lambda: self._goodbye(answered=True),
            "started": self._session_started,
            "finish": self._finish,
            "keep": self._keep,
            "pause": self._pause,
            "start": self._follow_with,
        }
        beside = self.terminals.session
        beside.answers = lambda: self._session is not None and self._session.ready
        beside.chosen, beside.deserted = self._session.chosen, self._stop_gently
        if self._first is not None:
            when = "its session is not ready yet: `relay ps` shows when it is."
            text = f"{self._name} is running detached; {when}"
            self.loop.later(FIRST_SESSION, lambda: self._let_go(text))
        ShimControl(self.loop, self._session, self.terminals, path, may, self._stop).listen(self._name)
        self._session.start()
        if self._end.shown:
            self._output_ended()

    @property
    def agent_pid(self) -> int:
        return self._pty.pid

    @property
    def session_pid(self) -> int:
        """The process id of the session, or 0 while none is running."""
        return 0 if self._session is None else self._session.pid

    def run(self) -> None:
        """Run until the agent, its session and the processes they left behind have ended."""
        # The agent may have ended before we handled SIGCHLD. Forward its last output first.
        self.loop.later(0, self._reap)
        while not self._end.over:
            forwarder = self.terminals.forwarder
            self.loop.attempt(self.loop.turn if forwarder.over and not forwarder.paused else forwarder.turn)

    # The agent and the session.

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stop_gently()
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            session = self._session
            if pid == self._pty.pid:
                if os.WIFSTOPPED(status):
                    self.terminals.stopped()
                else:
                    self._agent_ended(status)
            elif session is not None and pid == session.pid and not os.WIFSTOPPED(status):
                session.reap(status)
                if self._end.timer is not None and self._end.kept:
                    self._await_decision()  # give the next session its full time
                self._look_for_end()
            elif os.WIFSTOPPED(status):
                release_stopped(pid, os.WSTOPSIG(status), self._pty.pid)

    def _agent_ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._end.code = 128 - code if code < 0 else code
        self._ring.append(ring.EXITED, b"%d" % self._end.code)
        self._pty.hang_up(signal.SIGHUP)
        if self._end.pipes is None:
            self._drained()
        else:
            self._end.pipes.finish()

    def _drained(self) -> None:
        """Forward what is left in the ended agent's terminal; its pipes are drained."""
        self.terminals.forwarder.finish()
        if self.terminals.forwarder.over:  # the terminal was closed before the agent ended
            self._output_ended()

    def _output_ended(self) -> None:
        """Give the session a moment for the agent's last output, now that all of it is out."""
        end = self._end
        end.shown = True
        if end.code is None:
            # The agent has closed or lost its terminal, but may still be running.
            self.loop.later(FAREWELL, lambda: self._close_terminal(end))
            return
        session = self._session
        if session is None and self.beginning is not None:
            self.beginning.when = 0.0
        if session is not None and session.ended is not None:
            self._await_goodbye(0.0)
        elif end.kept:
            self._await_decision()
        elif not self._ring.offset and session is not None and not session.ready:
            self._await_goodbye(0.0)  # it has said nothing, and no session has anything to show
        else:
            self._await_goodbye(FAREWELL)

    def _await_decision(self) -> None:
        """Give the session time to decide; one that is still starting knows best what to undo and report."""
        session = self._session
        self._await_goodbye(DECISION if session is not None and session.ready else FIRST_SESSION)

    def _await_goodbye(self, patience: float) -> None:
        end = self._end
        if end.timer is not None:
            end.timer.cancel()
        end.timer = self.loop.later(patience, lambda: self._goodbye(end=end))

    def _close_terminal(self, end: _End) -> None:
        """Kill a session that hangs with the agent's terminal open: the agent would never see the hang-up.

        end: that agent's; leave another agent's session alone, which may be starting.
        """
        session = self._session
        if end is not self._end or end.code is not None or session is None:
            return
        if self._ring.words[ring.READ] < self._ring.head:
            session.kill()

    def _goodbye(self, *, answered: bool = False, end: _End | None = None) -> None:
        """Return the user to their shell, unless another agent follows, and leave no process behind.

        answered: as in TerminalServer.goodbye. end: of the agent in question; None: of the current one.
        """
        if self._end.goodbye or self._end.code is None or end not in {None, self._end}:
            return
        self._end.goodbye = True
        if self._end.next is None:
            if self._end.kept and not answered:
                self.terminals.notices.add(f"{self._name} is not restarted: its session did not say how.")
            self._let_go(f"{self._name} has ended with exit code {self._end.code}.", self._end.code)
            code = self._end.code or int(self._end.lost)  # as if the agent had written it itself
            self.terminals.goodbye(code, answered=answered)
        else:
            self.terminals.wait_for_another(answered=answered)
        self._sweep()
        over = self._end
        self.loop.later(LAST_STEPS, lambda: self._end_session(over))

    def _sweep(self) -> None:
        """Kill the processes in the agent's terminal that survive the hang-up for LEFTOVER."""
        left = self._pty.groups()
        if left and self._end.looks < LEFTOVER_LOOKS:
            self._end.looks += 1
            self.loop.later(LEFTOVER / LEFTOVER_LOOKS, self._sweep)
            return
        for group in left:
            self._pty.signal(signal.SIGKILL, group)
        self._end.swept = True
        self._look_for_end()

    def _end_session(self, end: _End) -> None:
        if self._session is not None and end is self._end:
            self._session.finish()
        self._look_for_end()

    def _look_for_end(self) -> None:
        session = self._session
        idle = session is None or (session.pid == 0 and session.ended is not None)
        if self._end.code is not None and self._end.shown and idle and not self._end.goodbye:
            self._goodbye()
        if self._end.swept and idle and not self._end.over and not self._start_another():
            self._end.over = True
            if self._end.code is not None:
                self.terminals.goodbye(self._end.code, answered=False)  # if the client waited for the next

    def _start_another(self) -> bool:
        """Start the next agent. Return False if there is none."""
        order, self._end.next = self._end.next, None
        session = self._session
        if order is None or session is None or session.failed or self.terminals.deserted:
            return False
        try:
            pty = self._spawn(order, self._pty)
        except Exception as error:  # noqa: BLE001 - also for another version's order: the user must be told
            self._end.code, why = 1, f"{error}"
            if isinstance(error, RelayError):
                self._end.code = error.exit_code
            elif not isinstance(error, OSError):
                self.loop.log(error)
            elif error.strerror:
                why = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
            self.terminals.notices.add(f"{self._name} is not restarted: {why}")
            return False
        self._pty, self._end = pty, _End(supervised=self._end.supervised)
        self._ring.restart()
        self.terminals.renew(pty)
        if pty.pipes:
            self.pipe({})
        about = {"agent": pty.pid, "size": pty.size[:2], "line_feeds_return": pty.line_feeds_return}
        session.renew({**order.hello, **about})
        return True

    def _session_failed(self, why: str) -> None:
        if self._end.code is None:
            text = f"relay's session failed, and {self._name} keeps running without it: {why}. "
            text += f"See session.log; `relay reload {self._name}` starts a new one."
        else:
            text = f"relay's session failed after {self._name} had ended: {why}. See session.log."
        self._let_go(text)
        self.terminals.notices.add(text)

    def _stop(self, now: bool) -> None:
        """Stop the agent without starting another. now: kill it."""
        if not now:
            self._stop_gently()
            return
        self._keep(False, "stop")
        self._pty.hang_up(signal.SIGKILL)

    def _stop_gently(self) -> None:
        """Stop the agent through its session, or without one, with signals as init does."""
        self._keep(False, "stop")
        if self._session is not None and self._session.ready:
            self._session.signal(signal.SIGTERM)
            return
        if self.terminals.forwarder.paused:
            if self._session is not None:
                self._session.finish()
            self._goodbye()
            return
        for turn, number in enumerate((signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)):
            self.loop.later(turn * KILLS, lambda number=number: self._pty.hang_up(number))  # type: ignore[misc]

    # Orders of the session.

    def _session_started(self, text: str) -> None:
        """Release the client that started a detached agent; an agent that has ended does so itself."""
        if self._end.code is None:
            self._let_go(text)

    def _let_go(self, text: str, code: int | None = None) -> None:
        """Release the client that started a detached agent. code: the exit code if the agent has ended."""
        if self._first is not None:
            event: dict[str, Any] = {"event": "detached"} if code is None else {"event": "exit", "code": code}
            self._first.finish(**event, reset="", notices=[text])
            self._first = None

    def _keep(self, kept: bool, ordered: str = "") -> None:
        """Set whether to wait, after the agent's end, for the session to order the next agent.

        ordered: what the next session must continue: how another agent follows, or "stop".
        """
        self._end.kept = kept
        if self._session is not None:
            self._session.about["kept"] = ordered
        if not kept:
            self._end.next = None

    def _pause(self, text: str) -> None:
        """Wait as long as the session needs after the agent's end; show `text` meanwhile."""
        end = self._end
        if end.code is None or not end.shown or end.goodbye:
            return
        if not end.kept:  # the agent was stopped before this session was ready to be told
            if self._session is not None:
                self._session.signal(signal.SIGTERM)
            return
        if end.timer is not None:
            end.timer.cancel()
            end.timer = None
        self._let_go(f"{self._name} {text}")
        if self.terminals.deserted:  # the owner's terminal was lost as the agent ended
            self._stop_gently()
            return
        self.terminals.pause(text)

    def _follow_with(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        hello: dict[str, Any],
        pipes: Sequence[int] = (),
        **_: object,
    ) -> None:
        """Start this agent once the last one, its session, and the processes they left behind have ended."""
        if self._end.kept and not self._end.goodbye:
            self._end.next = AgentOrder(argv, env, cwd, hello, pipes)

    def _finish(self) -> None:
        """Discard what the user's terminal and the pipes' readers have not taken yet."""
        if self._end.pipes is not None:
            self._end.pipes.lose()
        if not self.terminals.forwarder.over:
            self.terminals.forwarder.finish()
            self.terminals.forwarder.withdraw()


class _Wake:
    """A pipe that wakes the poller of `read`, once for many writes."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        for fd in (self.read, self.write):
            os.set_blocking(fd, False)

    def up(self) -> None:
        try:
            os.write(self.write, b"x")
        except OSError:
            pass  # full: the poller is about to wake

    def take(self) -> bytes:
        try:
            return os.read(self.read, 512)
        except BlockingIOError:
            return b""


def _woken(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor reports the signal."""
