"""The users' terminals: serves the attached client, with or without a session.

A client is the process that `relay wrap` or `relay attach` leaves in the user's foreground
(relay.terminal.client has the protocol).  The server serves one at a time; a new one takes over.

The session draws: the server asks it for a repaint, and for what restores the terminal for the shell, and
gives it a moment.  Without an answer, the server uses what it has: the last output, and a reset of all modes.
"""

from __future__ import annotations

import os
import time

from relay.shim import ring
from relay.shim import signals as signal
from relay.shim.forward import Forwarder
from relay.shim.modes import UNDO
from relay.shim.notices import PendingNotices, said
from relay.shim.pause import CHOICE, Pause
from relay.shim.pty import flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relay.shim.channel import JsonChannel
    from relay.shim.loop import Loop, Timer
    from relay.shim.pty import Pty
    from relay.shim.ring import RingWriter
    from relay.shim.user_terminal import AttachedTerminal

LEASE = 0.3
"""Seconds that bytes wait for the session."""

DETACH_WAIT = 1.0
"""Seconds that a detaching user waits for the session."""

HANG_UP = 1.0
"""Seconds for an agent's last output after its terminal has gone."""

END_CHECK_EVERY, MAX_END_CHECK_EVERY = 0.01, 0.5
"""Seconds between two checks whether the agent waits for more input after its end: initially, at most."""

RAW_ENDS = 3
"""Maximum number of Ctrl-Ds for a program that reads single keys; to it, Ctrl-D may mean something else."""

REPLAYED = 1 << 16
"""Bytes of the last output to show when no session can repaint the screen."""

KEYS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
"""Signals that a terminal's keys send to its foreground job."""

ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
"""Signals with which a user ends a job."""

HELP_LASTS = 10.0
"""Seconds to show the help; the agent's output waits meanwhile."""

_CLEAR = b"\x1b[2J\x1b[H"


class _TerminalReset:
    """What restores the user's terminal for their shell, as last reported by the session.

    modes:  undoes the modes that the agent has set. below: moves the cursor below what it has drawn.
    offset: bytes of output up to which both are valid.
    """

    def __init__(self, modes: str = "", below: str = "", offset: int = -1) -> None:
        self.modes = modes
        self.below = below
        self.offset = offset


class SessionSide:
    """The part of the agent's session that the terminals need.

    answers:  returns True while the session may answer.
    chosen:   called with the key that the user presses between two agents: r (restart) or q (quit).
    deserted: called when the owner's terminal is lost between two agents.
    outlives: the agent keeps running without its owner's terminal.
    pause:    the current pause between two agents, or None.
    """

    def __init__(self) -> None:
        self.answers: Callable[[], bool] = lambda: False
        self.chosen: Callable[[str], None] = lambda key: None
        self.deserted: Callable[[], None] = lambda: None
        self.outlives = False
        self.pause: Pause | None = None


class TerminalClient:
    """A connected client. `owner`: it started the agent, which may end if its terminal is lost.

    lost: its terminal is lost. switch: where the client goes when dismissed: "next", "previous" or "".
    """

    def __init__(self, channel: JsonChannel, *, owner: bool) -> None:
        self.channel = channel
        self.owner = owner
        self.lost = False
        self.switch = ""


class TerminalServer:
    """Serves one client at a time, and may end the agent if its owner's terminal goes away.

    forwarder: between the attached terminal and the agent's.
    session:   the agent's session.
    ended:     called when the agent's terminal is closed.
    """

    def __init__(
        self, loop: Loop, pty: Pty, ring_: RingWriter, *, name: str, ended: Callable[[], None]
    ) -> None:
        self.forwarder = Forwarder(loop, pty, ring_, self)
        self.session = SessionSide()
        self._loop = loop
        self._ring = ring_
        self._name = name
        self._ended = ended
        self._client: TerminalClient | None = None
        self._reset = _TerminalReset()
        self.notices = PendingNotices(self.forwarder)
        self._repaints = _Repaints()
        self._dismissing: Timer | None = None
        self._reserved: Timer | None = None

    @property
    def attached(self) -> bool:
        return self._client is not None

    @property
    def deserted(self) -> bool:
        """True once the owner's terminal is lost, which ends the agent."""
        return self._client is not None and self._client.owner and self._client.lost

    # Clients.

    def adopt(self, client: TerminalClient) -> None:
        """Serve `client`. Its terminal is attached already, or will be soon."""
        self._client = client
        self.forwarder.background = False
        client.channel.on_line = lambda fields, fds: self._ordered(client, fields, fds)
        client.channel.on_gone = lambda: self._gone(client)
        self._fit()  # the size may have changed unnoticed

    def introduce(self) -> None:
        """Tell the client what it needs if we die: the agent's group, and how to undo the agent's modes."""
        self._tell("agent", group=0 if self.forwarder.paused else self.forwarder.pty.pid)
        self._tell("modes", reset=self._reset.modes)

    def begin(self, attached: AttachedTerminal, *, foreground: bool) -> None:
        """Attach the terminal of the client that started the agent."""
        self.forwarder.attach(attached)
        self.forwarder.user.paused = not foreground
        self._fit()

    def take_over(self, client: TerminalClient, attached: AttachedTerminal) -> bool:
        """Switch to another terminal, and repaint it.

        Close `attached` and return False if the agent no longer has a terminal.
        """
        if self._client is not None:
            text = (
                f"another terminal has attached; take over again with `relay attach --takeover {self._name}`"
            )
            self._leave("detached", self._last_reset(), text, taken=True)
        if not self.forwarder.serves:
            attached.close()
            return False
        self.forwarder.pty.return_line_feeds()
        if self._repaints.waiting is not None:
            self._repaints.waiting.cancel()
        self._repaints.waiting = None
        self._hold(attached)
        self.adopt(client)
        self.introduce()  # the agent gets the new terminal's size before the screen is held for the repaint
        if self._client is client:  # else the client has already died
            self._ask_repaint()
        return True

    def _hold(
        self,
        attached: AttachedTerminal | None,
        then: Callable[[], None] | None = None,
        *,
        covered: bool = False,
    ) -> None:
        self._repaints.count += 1
        self._repaints.waiting = _Repaint(
            self._repaints.count, attached, then, covered=covered or attached is not None
        )

    def _ask_repaint(self) -> None:
        """Leave the agent's output in the PTY until the session has repainted the screen."""
        assert self._repaints.waiting is not None
        self.forwarder.held = True
        id = self._repaints.waiting.id
        self._repaints.offset = self._ring.offset
        self._ring.append(ring.HELD, b"%d %d" % (id, self._repaints.waiting.attached is not None))
        wait = LEASE if self.session.answers() else 0.0
        self._repaints.waiting.timer = self._loop.later(wait, lambda: self.repaint(id, None))

    def repaint(self, id: int, drawn: bytes | None) -> None:
        """Show what the session has `drawn` on the waiting terminal; None: the session did not answer."""
        waiting = self._repaints.waiting
        if waiting is None or waiting.id != id:
            if drawn and waiting is None and id == self._repaints.count:
                self._show_late(drawn)
            return
        self._repaints.waiting = None
        waiting.cancel()
        self.forwarder.held = False
        greeting = drawn or b""
        if not drawn and waiting.covered:
            from relay.shim.replayed import harmless

            greeting = _CLEAR + harmless(self._ring.last_output(REPLAYED))
        if waiting.attached is not None:
            if not self.forwarder.serves:
                waiting.attached.close()
            else:
                self.forwarder.attach(waiting.attached, greeting)
                if self.session.pause is not None:
                    lines = said(*self.session.pause.lines)
                    self.forwarder.user.show(UNDO + b"\x1b[999B\r\n" + lines)
                elif drawn is None:
                    self.forwarder.pty.signal(signal.SIGWINCH, self.forwarder.pty.foreground())
        elif greeting:
            self.forwarder.user.show(greeting)
            if not drawn:
                self.forwarder.pty.signal(signal.SIGWINCH, self.forwarder.pty.foreground())
        if waiting.then is not None:
            waiting.then()

    def _show_late(self, drawn: bytes) -> None:
        """Show a repaint that came too late, then the output since it was requested."""
        from relay.shim.replayed import harmless

        self._repaints.count += 1  # shown once
        if self._ring.offset - self._repaints.offset > REPLAYED:
            return  # a flood has drawn over the repaint, and the ring may not hold all of the flood
        self.forwarder.user.show(drawn + harmless(self._ring.output_since(self._repaints.offset)))

    # What happens at the terminals (forward.Listener).

    def drawn_in_background(self) -> None:
        """Stop an agent that draws as a background job: without relay, setting modes would stop it."""
        if not flags(self.forwarder.pty.attributes())[0]:
            self.forwarder.pty.signal(signal.SIGTTOU)

    def lost(self, what: str) -> None:
        """End the agent, as without relay, if its owner's terminal is lost; otherwise keep it running."""
        owner = self._client
        if owner is not None:
            owner.lost = True
        if owner is None or not owner.owner or (self.session.outlives and what != "pipe"):
            self._dismiss_now()
        elif self.forwarder.paused:
            self.session.deserted()
        elif what == "pipe":
            self.forwarder.pty.signal(signal.SIGPIPE)
        else:
            self.forwarder.pty.hang_up(signal.SIGHUP)

            def finish() -> None:
                if self._client is None or self._client is owner:  # else another client has attached
                    self.forwarder.finish()

            # A program that ignores SIGHUP then reads an end of file, as without relay.
            self._loop.later(HANG_UP, finish)

    def command(self, command: str) -> None:
        """Carry out the command of the user's keys (relay.shim.command_keys).

        Dismiss the client once the session has reported how to restore its terminal; the agent keeps running.
        """
        from relay.shim.command_keys import DETACH, HELP

        if self._dismissing is not None or self._client is None:
            return
        if command == HELP:
            self._help()
            return
        self.forwarder.user.paused = True  # from now on, keys are for the shell or another agent
        self._client.switch = "" if command == DETACH else command
        self._ring.append(ring.DETACH)
        self._dismissing = self._loop.later(DETACH_WAIT if self.session.answers() else 0.0, self._dismiss_now)

    def _help(self) -> None:
        """Show the available keys until one is pressed; the agent's output waits meanwhile."""
        from relay.shim.command_keys import help_text

        user = self.forwarder.user
        if self._repaints.waiting is not None or self.forwarder.over:
            return

        def close() -> None:
            if user.any_key is close:
                timer.cancel()
                user.any_key = None
                if self._repaints.waiting is None and not self.forwarder.over:
                    self._hold(None, covered=True)
                    self._ask_repaint()

        self.forwarder.held = True
        user.any_key = close
        user.show(help_text(self._name, user.keyboard.prefix, self.notices.unread))
        timer = self._loop.later(HELP_LASTS, close)

    def settled(self) -> None:
        """Stop the user's job, now that everything the stopped agent wrote is on the screen."""
        self._tell("stopped", asked=self._asked())

    def typed_in_pause(self, keys: bytes) -> None:
        """Carry out the user's choice after the agent's end."""
        choice = self.session.pause.choice(keys) if self.session.pause is not None else ""
        if choice == "d":
            self.command("detach")
        elif choice:
            self.session.chosen(choice)

    def input_over(self) -> None:
        self._end_input(END_CHECK_EVERY, 0)

    def ended(self) -> None:
        self._ended()

    def _end_input(self, delay: float, raw_ends: int) -> None:
        """Send the agent an end of file whenever it waits for more input than was piped in.

        Not earlier: a program that switches to raw mode would read it as an ordinary character.
        """

        def look() -> None:
            from relay.shim.process_wait import look as look_at
            from relay.shim.process_wait import waits_for_input

            ends = raw_ends
            if self.forwarder.over or ends >= RAW_ENDS:
                return
            looked = look_at(self.forwarder.pty.foreground())
            if not self.forwarder.pty.output_pending() and waits_for_input(
                looked, time.monotonic() - self._ring.last_output_at
            ):
                ends += not flags(self.forwarder.pty.attributes())[0]
                self.forwarder.end_of_file()
            self._end_input(min(delay * 1.5, MAX_END_CHECK_EVERY), ends)

        self._loop.later(delay, look)

    def stopped(self) -> None:
        """Stop the user's job along with the agent; without a client to resume the agent, continue it."""
        if self._client is None:
            self.forwarder.pty.signal(signal.SIGCONT)
        else:
            self.forwarder.user.paused = True
            self.forwarder.settle()

    def goodbye(self, code: int, *, answered: bool) -> None:
        """Give the terminal back, with the agent's exit code. answered: `note_reset` has just been called."""
        self._end_pause()
        reset = self._reset if answered else self._last_reset()
        # Without notices, the cursor stays where the agent left it.
        below = reset.below if self.notices.pending else ""
        self._leave("exit", _TerminalReset(reset.modes, below), code=code)

    def wait_for_another(self, *, answered: bool) -> None:
        """Undo the modes that the ended agent has set: another one follows in the same terminal.

        answered: as in `goodbye`.
        """
        self._end_pause()
        self._say_between(f"restarting {self._name}.", answered=answered)

    def pause(self, text: str) -> None:
        """Keep the user's terminal attached between two agents, and show `text`, which says what follows."""
        if self.session.pause is None:
            self.session.pause = Pause(self._loop, self._name, self._offer)
        self.session.pause.text = text
        self.forwarder.pause()
        self._say_between(*self.session.pause.lines, answered=True)

    def _offer(self) -> None:
        if self.forwarder.user.watched:
            self.forwarder.user.show(said(CHOICE))

    def _end_pause(self) -> None:
        if self.session.pause is not None:
            self.session.pause.close()
            self.session.pause = None

    def _say_between(self, *texts: str, answered: bool) -> None:
        """Undo the modes that the ended agent has set; show `texts` below what it drew."""
        self._tell("agent", group=0)
        reset = self._reset if answered else self._last_reset()
        if self.forwarder.user.watched:
            put_right = f"{reset.modes}{reset.below}".encode()
            self.forwarder.user.show(put_right + said(*self.notices.take(), *texts))
        self.note_reset("", "", -1, False)

    def renew(self, pty: Pty) -> None:
        """Connect the same client to another agent's terminal."""
        self.forwarder.begin(pty)
        self._ring.append(ring.ATTACHED, self.forwarder.attached_as)
        # While the client is stopped, the user's shell owns the terminal.
        self.forwarder.background = self.forwarder.background or self.forwarder.user.paused
        self._tell("agent", group=pty.pid)
        self._fit()

    # Orders of the session.

    def note_reset(self, reset: str, below: str, offset: int, lines: bool) -> None:
        """Record what restores the user's terminal for their shell, as in _TerminalReset.

        lines: the agent has only printed lines in the output that its session has read.
        """
        self.notices.note(lines=lines)
        if reset != self._reset.modes:
            self._tell("modes", reset=reset)
        self._reset = _TerminalReset(reset, below, offset)

    def dismiss(self) -> None:
        """Dismiss the client that asked to detach; the session has just called `note_reset`."""
        if self._dismissing is not None:
            self._dismiss_now(self._reset)

    def outlive(self, outlives: bool) -> None:
        """Set whether the agent keeps running when its owner's terminal is lost."""
        self.session.outlives = outlives

    def reserve(self, reserved: bool) -> None:
        """Leave the user's keys in their terminal for LEASE, or longer if renewed."""
        if self._reserved is not None:
            self._reserved.cancel()
        self.forwarder.reserve(reserved)
        self._reserved = self._loop.later(LEASE, lambda: self.forwarder.reserve(False)) if reserved else None

    def prolong(self) -> None:
        """Renew `reserve` for another LEASE."""
        if self._reserved is not None and self._reserved.call is not None:
            self._reserved.cancel()
            self._reserved = self._loop.later(LEASE, lambda: self.forwarder.reserve(False))

    def session_gone(self) -> None:
        """Stop waiting for answers: the session has ended."""
        if self._reserved is not None:
            self.reserve(False)
        if self._repaints.waiting is not None:
            self.repaint(self._repaints.waiting.id, None)
        if self._dismissing is not None:
            self._dismiss_now()

    # Requests of the client.

    def _ordered(self, client: TerminalClient, fields: dict[str, Any], fds: list[int]) -> None:
        for fd in fds:  # unrequested
            os.close(fd)
        if client is not self._client:
            return
        match fields:
            case {"op": "winch"}:
                self._fit()
            case {"op": "signal", "number": int(number)} if self.forwarder.paused:
                if number in ENDING:
                    self.session.chosen("q")
            case {"op": "signal", "number": int(number)} if number in signal.valid_signals():
                group = self.forwarder.pty.foreground() if number in KEYS else self.forwarder.pty.pid
                self.forwarder.pty.signal(number, group)
            case {"op": "detach"}:
                self.command("detach")
            case {"op": "hangup"}:
                client.lost = True
                if not client.owner or self.session.outlives:
                    self._ring.append(ring.LOST, b"terminal")
                    self._dismiss_now()
                elif self.forwarder.paused:
                    self.session.deserted()
                else:
                    self.forwarder.pty.hang_up(signal.SIGHUP)
            case {"op": "resume", "foreground": bool(foreground)}:
                self._resume(foreground)

    def _resume(self, foreground: bool) -> None:
        """Continue the agent once its screen is repainted: it may have been stopped without warning."""
        self.forwarder.background = not foreground
        self._fit()  # first: the user types for a screen of this size
        self.forwarder.user.paused = not foreground
        self._ring.append(ring.RESUMED)
        if not foreground or self._repaints.waiting is not None or self.forwarder.over:
            self.forwarder.pty.signal(signal.SIGCONT)
            return
        self._hold(None, lambda: self.forwarder.pty.signal(signal.SIGCONT))
        self._ask_repaint()

    def _fit(self) -> None:
        waiting = self._repaints.waiting.attached if self._repaints.waiting is not None else None
        attached = waiting or self.forwarder.user.attached
        if attached is not None and (size := attached.size()):
            self.forwarder.resize(*size)

    def _tell(self, event: str, **fields: Any) -> None:
        if self._client is not None:
            self._client.channel.send(event=event, **fields)

    def _last_reset(self) -> _TerminalReset:
        """Return what the session last reported if it is still valid, or else what resets every mode."""
        if self._reset.offset == self._ring.offset:
            return self._reset
        if not self.forwarder.queries.sequences:
            return _TerminalReset("", "\r\n")
        drawn = not self.forwarder.over and not flags(self.forwarder.pty.attributes())[0]
        return _TerminalReset(UNDO.decode(), "\x1b[999B\r\n" if drawn else "\r\n")

    def _asked(self) -> bool:
        """Return True if answers to the agent's queries may be on their way from the user's terminal."""
        if not self.forwarder.queries.sequences:
            return False
        from relay.shim.replayed import asks

        return asks(self._ring.last_output(REPLAYED))

    def _dismiss_now(self, reset: _TerminalReset | None = None) -> None:
        switch = self._client.switch if self._client is not None else ""
        text = "" if switch else f"{self._name} keeps running; `relay attach {self._name}` brings it back"
        self._leave("detached", reset or self._last_reset(), text, switch=switch)

    def _leave(self, event: str, reset: _TerminalReset, text: str = "", **fields: Any) -> None:
        """Stop using the client's terminal, and tell it to end."""
        client, self._client = self._client, None
        if self._dismissing is not None:
            self._dismissing.cancel()
            self._dismissing = None
        self._withdraw()
        if client is not None:
            notices = [*self.notices.take(), text] if text else self.notices.take()
            undo = reset.modes + reset.below
            client.channel.finish(event=event, reset=undo, asked=self._asked(), notices=notices, **fields)

    def _withdraw(self, restore: bool = False) -> None:
        self.forwarder.withdraw(restore)
        waiting, self._repaints.waiting = self._repaints.waiting, None
        if waiting is not None:
            waiting.cancel()
            if waiting.attached is not None:
                waiting.attached.close()
            if waiting.then is not None:
                waiting.then()

    def _gone(self, client: TerminalClient) -> None:
        """Restore the terminal of a client that was killed; the agent keeps running without a terminal."""
        if client is self._client:
            self._client = None
            self.forwarder.user.show(self._last_reset().modes.encode())
            self._withdraw(restore=True)


class _Repaint:
    """A repaint requested from the session. attached: the terminal that waits for it; None: the current one.

    then: called afterwards. covered: the terminal shows something other than the agent's screen.
    """

    def __init__(
        self, id: int, attached: AttachedTerminal | None, then: Callable[[], None] | None, *, covered: bool
    ) -> None:
        self.covered = covered
        self.id = id
        self.attached = attached
        self.then = then
        self.timer: Timer | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class _Repaints:
    """The repaints requested from the session.

    waiting: the pending one. count: of all. offset: bytes of output before the last one.
    """

    def __init__(self) -> None:
        self.waiting: _Repaint | None = None
        self.count = self.offset = 0
