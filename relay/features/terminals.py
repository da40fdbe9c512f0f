"""The user's terminal, as the session sees it: the client that lends it, and the notices shown on it.

A client is a connection to a `relay wrap` or `relay attach` process (relay.terminal.client has the protocol).
The session serves one client at a time; a new one takes over.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.control.terminal_client import TerminalClient
from relay.errors import RelayError, UsageError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, Goodbye, SessionBegan
from relay.messaging.client import current_client
from relay.state.agent_terminal import AgentTerminal
from relay.tasks import Tasks
from relay.terminal.events import (
    AgentResumed,
    AgentStopped,
    AgentSuspended,
    DetachRequested,
    InputEnded,
    Notify,
    OutputHeld,
    OutputSettled,
    ScreenChanged,
    TerminalLost,
    WithdrawNotice,
)
from relay.terminal.forward import Forwarder
from relay.terminal.lend import Lent
from relay.terminal.pty import Pty
from relay.text import one_line

MODES_INTERVAL = 0.05
"""Seconds between two looks at the terminal modes that the agent has set."""

END_LOOK, MAX_END_LOOK = 0.01, 0.5
"""Seconds between two checks whether the agent waits for more input after the end of it: first, at most."""

RAW_ENDS = 3
"""Times that a program that reads single keys gets a Ctrl-D, which may mean something else to it."""

HANG_UP = 1.0
"""Seconds for an agent's last words after its terminal has gone."""

MAX_PENDING = 20
"""Notices kept while they would spoil the screen."""

BELL = b"\a"
"""Rung for a notice that would spoil the screen; `relay explain` shows it."""

KEYS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
"""Signals that keys of a terminal send to its foreground job."""

NOTICE_LENGTH = 300
"""Characters of a notice that are shown."""


class Terminals:
    """Serves one client at a time, and ends the agent if the terminal of the session's owner goes away.

    first:    the client that started the session.
    detached: dismiss `first` as soon as messages for the agent are taken.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        forwarder: Forwarder,
        pty: Pty,
        terminal: AgentTerminal,
        first: TerminalClient,
        *,
        name: str,
        detached: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._forwarder = forwarder
        self._pty = pty
        self._terminal = terminal
        self._name = name
        self._client: TerminalClient | None = None
        self._first = None if detached else first
        self._notices = PendingNotices(forwarder, terminal)
        self._modes = _Modes(terminal)
        self._attaching = _Attaching()
        self._background = False
        if detached:
            tasks.spawn(self._dismiss_first(first), "the terminal")

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._first is not None:
            self._adopt(self._first)
        self._answer_queries()

    async def _dismiss_first(self, first: TerminalClient) -> None:
        with suppress(RelayError):
            await current_client(self._bus)  # who is started after this one can write to it at once
        note = f"{self._name} runs detached (pid {os.getpid()})."
        await first.dismiss("detached", notices=[note])

    @operation("attach")
    async def attach(self, request: Request) -> Answer:
        if len(request.fds) != 2:
            raise UsageError("attaching needs the descriptors of a terminal.")
        interactive, saved = bool(request.fields.get("interactive")), request.fields.get("saved")
        lent = Lent(*request.fds, interactive=interactive, saved=saved)
        request.keep = True
        await self._take_over(TerminalClient(request.channel, owner=False), lent)
        return {"event": "agent", "group": self._pty.pid}

    def _adopt(self, client: TerminalClient) -> None:
        """Serve `client`. Its terminal is lent already, or will be soon."""
        self._client = client
        self._background = False
        if (screen := self._terminal.screen) is not None:
            screen.answer_queries(None)  # the user's terminal answers them from now on
        served = client.run(lambda fields: self._asked(client, fields), lambda: self._gone(client))
        self._tasks.spawn(served, "the terminal")
        self._tell("agent", group=self._pty.pid)
        self._modes.changed()
        self._tell("modes", reset=self._modes.reset)
        self._fit()  # the size may have changed unnoticed

    def _tell(self, event: str, **fields: Any) -> None:
        if self._client is not None:
            self._tasks.spawn(self._client.tell(event, **fields), "the terminal")

    async def _take_over(self, client: TerminalClient, lent: Lent) -> None:
        """Serve another terminal instead of the current one, and repaint it.

        Close `lent` and raise RelayError if the agent has no terminal any more.
        """
        while self._client is not None and not self._forwarder.over:  # two may attach at once
            await self._dismiss(f"another terminal has attached; `relay attach {self._name}` takes it back")
        if self._forwarder.over:
            lent.close()
            raise RelayError(
                f"{self._name} has no terminal any more: it has ended, or ignores that it was taken from it. "
                f"`relay stop {self._name}` ends what is left of it."
            )
        self._pty.return_line_feeds()
        self._attaching.begin(lent)
        self._adopt(
            client
        )  # the agent gets the new terminal's size before the screen is held for the repaint
        self._forwarder.hold()

    @handles(OutputHeld)
    def held(self, _: OutputHeld) -> None:
        """Lend the new terminal and repaint it: the screen shows all output until now, and no more comes."""
        lent = self._attaching.end()
        if lent is None:
            return  # that terminal has gone again, and perhaps another has come
        if self._forwarder.over:
            lent.close()
            return
        screen = self._terminal.screen
        self._forwarder.lend(lent, b"" if screen is None else screen.repaint())

    def _answer_queries(self) -> None:
        """Answer the agent's queries from the virtual screen if there is no user's terminal to do it."""
        if self._client is None and (screen := self._terminal.screen) is not None:
            screen.answer_queries(self._forwarder.reply)

    @handles(DetachRequested)
    def detach(self, _: DetachRequested) -> None:
        """Dismiss the client; the agent runs on."""
        text = f"{self._name} runs on; `relay attach {self._name}` brings it back"
        self._tasks.spawn(self._dismiss(text), "the terminal")

    async def _dismiss(self, text: str) -> None:
        client, self._client = self._client, None
        self._modes.changed()
        self._withdraw()
        if client is not None:
            reset = self._modes.reset + self._below()
            await client.dismiss("detached", reset=reset, notices=[*self._notices.take(), text])

    @answers(Goodbye)
    async def goodbye(self, question: Goodbye, _: object) -> None:
        """Give the terminal back, with the agent's exit code."""
        client, self._client = self._client, None
        if client is not None:
            self._modes.changed()
            notices = self._notices.take()
            reset = self._modes.reset + (self._below() if notices else "")
            await client.dismiss("exit", code=question.code, reset=reset, notices=notices)

    def _below(self) -> str:
        """Return the sequence that moves the cursor below the agent's output, for the user's shell."""
        screen = self._terminal.screen
        if screen is None or screen.alternate:
            return ""
        column, row = screen.cursor
        down = max((y for y, drawn in enumerate(screen.rows()) if drawn.text), default=0) - row
        return (f"\x1b[{down}B" if down > 0 else "") + ("\r\n" if column or down > 0 else "")

    def _withdraw(self, restore: bool = False) -> None:
        self._forwarder.withdraw(restore)
        self._attaching.cancel()
        self._answer_queries()

    @handles(TerminalLost)
    def lost(self, event: TerminalLost) -> None:
        """End the agent, as without relay, if the lost terminal is its owner's; otherwise let it run on."""
        owner = self._client
        if owner is None or not owner.owner:
            self.detach(DetachRequested())
        elif event.what == "pipe":
            self._pty.signal(signal.SIGPIPE)
        else:
            self._pty.hang_up(signal.SIGHUP)

            def finish() -> None:
                if self._client is None or self._client is owner:  # else another one has attached
                    self._forwarder.finish()

            # A program that ignores SIGHUP reads an end of file, as without relay.
            self._bus.loop.call_later(HANG_UP, finish)

    @handles(InputEnded)
    def input_ended(self, _: InputEnded) -> None:
        self._tasks.spawn(self._end_input(), "the end of the input")

    async def _end_input(self) -> None:
        """Give the agent an end of file whenever it waits for more input than was piped in.

        Not earlier: a program that switches to raw mode would read it as another character.
        """
        delay, raw_ends = END_LOOK, 0
        while raw_ends < RAW_ENDS:
            await asyncio.sleep(delay)
            delay = min(delay * 1.5, MAX_END_LOOK)
            if self._terminal.waits_for_input():
                raw_ends += not self._terminal.tty().canonical
                self._forwarder.end_of_file()

    @handles(AgentStopped)
    def stopped(self, _: AgentStopped) -> None:
        """Stop the user's job with the agent; without a client nobody could continue it, so let it run."""
        if self._client is None:
            self._pty.signal(signal.SIGCONT)
        else:
            self._forwarder.pause(True)
            self._forwarder.settle()

    @handles(OutputSettled)
    def settled(self, _: OutputSettled) -> None:
        """Stop the user's job now that everything the agent wrote before is on the screen."""
        self._bus.publish(AgentSuspended())
        self._tell("stopped")

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self._notices.show(event.line if event.level == "info" else f"{event.level}: {event.line}")

    @handles(WithdrawNotice)
    def withdraw_notice(self, event: WithdrawNotice) -> None:
        self._notices.forget(event.text)

    @handles(ScreenChanged)
    def screen_changed(self, _: ScreenChanged) -> None:
        """Tell the client, at intervals, which terminal modes it must undo if this session is killed."""
        if self._modes.due(self._bus.loop, self._look_at_modes):
            self._look_at_modes()

    def _look_at_modes(self) -> None:
        if self._background and not self._terminal.tty().canonical:
            # Without relay, it would be stopped for changing the modes of another job's terminal.
            self._pty.signal(signal.SIGTTOU)
        if self._modes.changed():
            self._tell("modes", reset=self._modes.reset)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"notices": self._notices.pending}

    def _asked(self, client: TerminalClient, fields: dict[str, Any]) -> None:
        if client is not self._client:
            return
        match fields:
            case {"op": "winch"}:
                self._fit()
            case {"op": "signal", "number": int(number)} if number in signal.valid_signals():
                group = self._pty.foreground() if number in KEYS else self._pty.pid
                self._pty.signal(number, group)
            case {"op": "hangup"}:
                self._pty.hang_up(signal.SIGHUP) if client.owner else self.detach(DetachRequested())
            case {"op": "resume", "foreground": bool(foreground)}:
                self._background = not foreground
                self._fit()  # first: the user types for a screen of this size
                self._forwarder.pause(self._background)
                screen = self._terminal.screen
                if foreground and screen is not None and screen.alternate:
                    # The agent was stopped without warning, and will not redraw the screen by itself.
                    self._forwarder.show(screen.repaint())
                self._pty.signal(signal.SIGCONT)
                self._bus.publish(AgentResumed())

    def _fit(self) -> None:
        if size := self._attaching.size() or self._forwarder.lent_size():
            self._forwarder.resize(*size)

    def _gone(self, client: TerminalClient) -> None:
        """Restore the terminal of a client that was killed; the agent runs on without a terminal."""
        if client is self._client:
            self._client = None
            self._modes.changed()
            self._forwarder.show(self._modes.reset.encode())
            self._withdraw(restore=True)


class PendingNotices:
    """Shows notices in the user's terminal, or keeps them until it is given back."""

    def __init__(self, forwarder: Forwarder, terminal: AgentTerminal) -> None:
        self._forwarder = forwarder
        self._terminal = terminal
        self._pending: deque[str] = deque(maxlen=MAX_PENDING)

    @property
    def pending(self) -> list[str]:
        """The notices that will be shown when the terminal is given back."""
        return list(self._pending)

    def take(self) -> list[str]:
        """Return the pending notices, which the caller shows, and forget them."""
        taken = list(self._pending)
        self._pending.clear()
        return taken

    def show(self, text: str) -> None:
        """Show one line: at once if that spoils no screen, or else when the terminal is given back."""
        text = one_line(text, NOTICE_LENGTH)
        screen = self._terminal.screen
        lines = self._forwarder.watched and self._terminal.tty().canonical
        if not lines or screen is None or screen.alternate:
            self._pending.append(text)
            self._forwarder.aside(BELL)
            return
        start = "\r\n" if screen.cursor[0] else ""
        self._forwarder.show(f"{start}relay: {text}\r\n".encode())

    def forget(self, text: str) -> None:
        """Forget a pending notice."""
        past = one_line(text, NOTICE_LENGTH)
        self._pending = deque((each for each in self._pending if each != past), maxlen=MAX_PENDING)


class _Attaching:
    """A terminal that is lent once all earlier output is on the screen (Forwarder.hold)."""

    def __init__(self) -> None:
        self._lent: Lent | None = None
        self._holds = 0

    def begin(self, lent: Lent) -> None:
        self._lent = lent
        self._holds += 1

    def end(self) -> Lent | None:
        """Record that a hold took effect; return the terminal to lend, or None if another hold follows."""
        self._holds -= 1
        if self._holds:
            return None
        lent, self._lent = self._lent, None
        return lent

    def cancel(self) -> None:
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.close()

    def size(self) -> tuple[int, int, int, int] | None:
        """Return the size of the waiting terminal; None if there is none, or its size is unknown."""
        return None if self._lent is None else self._lent.size()


class _Modes:
    """The terminal modes that the agent has set. reset: the sequence that undoes them."""

    def __init__(self, terminal: AgentTerminal) -> None:
        self.reset = ""
        self._terminal = terminal
        self._timer: asyncio.TimerHandle | None = None

    def changed(self) -> bool:
        """Update `reset`; return True if it has changed."""
        screen = self._terminal.screen
        reset = "" if screen is None else screen.modes_reset().decode("ascii", "replace")
        changed, self.reset = reset != self.reset, reset
        return changed

    def due(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> bool:
        """Return True if MODES_INTERVAL has passed since the last look; call `look` after the next one."""
        if self._timer is not None:
            return False

        def again() -> None:
            self._timer = None
            look()

        self._timer = loop.call_later(MODES_INTERVAL, again)
        return True
