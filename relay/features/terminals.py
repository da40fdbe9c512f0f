"""The user's terminal, as the session sees it: repaints, detaching and notices. The shim serves it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, Goodbye, SessionBegan
from relay.messaging.events import AddItem, EndItem, UnreadCounted, current_client
from relay.shim.modes import UNDO
from relay.state.agent_terminal import AgentTerminal
from relay.tasks import Tasks
from relay.terminal.events import (
    AttachmentChanged,
    DetachRequested,
    Notify,
    OutputHeld,
    ScreenChanged,
    TerminalLost,
    WithdrawNotice,
)
from relay.terminal.shim_link import ShimLink

RESET_EVERY = 0.05
"""Seconds between two checks of what would restore the user's terminal for their shell."""


class Terminals:
    """Draws for the attached terminal. pid: the agent's process; detached: it was started without a terminal.

    detach_key: the setting; the key begins a relay command.
    outlives: the agent keeps running if the terminal that started it is lost (the setting `on_hangup`).
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        shim: ShimLink,
        terminal: AgentTerminal,
        *,
        name: str,
        pid: int,
        detached: bool,
        detach_key: str,
        outlives: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._shim = shim
        self._terminal = terminal
        self._name = name
        self._pid = pid
        self._detached = detached
        self._detach_key = detach_key
        self._outlives = outlives
        self._lost = f"Its terminal was closed. `relay attach {name}` brings it back."
        self._looking: asyncio.TimerHandle | None = None
        self._changed = False

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._shim.prefix(self._detach_key)
        self._shim.outlive(self._outlives)
        if self._detached:
            self._tasks.spawn(self._let_go(), "the terminal")

    async def _let_go(self) -> None:
        """Release the client that started the agent, once messages for the agent are accepted."""
        with suppress(RelayError):
            await current_client(self._bus)  # agents started after this one can write to it at once
        self._shim.started(f"{self._name} is running detached (pid {self._pid}).")

    @handles(OutputHeld)
    def held(self, event: OutputHeld) -> None:
        """Repaint a terminal: output is paused, and the screen shows all of it so far."""
        self._shim.repaint(event.id, self._terminal.drawn(history=event.blank))

    @handles(DetachRequested)
    def detach(self, _: DetachRequested) -> None:
        self._note_reset()
        self._shim.dismiss()

    @handles(TerminalLost)
    def lost(self, event: TerminalLost) -> None:
        """Say in the inbox how to return to the agent: the terminal has gone."""
        if self._outlives and event.what == "terminal":
            self._bus.publish(AddItem("notice", self._lost))

    @answers(Goodbye)
    async def goodbye(self, _: Goodbye, __: object) -> None:
        self._note_reset()
        self._shim.goodbye()

    def _below(self) -> bytes:
        """Return the sequence that moves the cursor below the agent's output, for the user's shell."""
        screen = self._terminal.screen
        if screen is None or screen.alternate:
            return b""
        column, row = screen.cursor
        down = max((y for y, drawn in enumerate(screen.rows()) if drawn.text), default=0) - row
        return (b"\x1b[%dB" % down if down > 0 else b"") + (b"\r\n" if column or down > 0 else b"")

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self._note_reset()
        self._shim.notice(event.shown)

    @handles(WithdrawNotice)
    def withdraw_notice(self, event: WithdrawNotice) -> None:
        self._shim.forget(Notify(event.text).shown)

    @handles(AttachmentChanged)
    def attached(self, event: AttachmentChanged) -> None:
        if self._shim.state.attached:
            self._note_reset()
        if event.watched:
            self._bus.publish(EndItem("notice", self._lost))

    @handles(ScreenChanged)
    def screen_changed(self, _: ScreenChanged) -> None:
        """Tell the shim, at intervals, how to restore the user's terminal if this session is killed."""
        if self._looking is None:
            self._note_reset()
            self._looking = self._bus.loop.call_later(RESET_EVERY, self._look_again)
        else:
            self._changed = True

    def _look_again(self) -> None:
        self._looking = None
        if self._changed:
            self._changed = False
            self.screen_changed(ScreenChanged())

    @handles(UnreadCounted)
    def unread(self, event: UnreadCounted) -> None:
        self._shim.unread(event.number)

    def _note_reset(self) -> None:
        screen = self._terminal.screen
        reset = UNDO if screen is None else screen.modes_reset()
        lines = self._terminal.prints_lines()
        # Finding the end of the drawing takes the longest: skip it without an attached terminal.
        below = self._below() if self._shim.state.attached else b""
        self._shim.note_reset(reset, below, self._terminal.output_offset(), lines=lines)

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        return None if question.brief else {"notices": self._shim.notices()}
