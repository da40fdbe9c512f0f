"""Stopping an agent: polite, then firm.

session_end handlers → closing prompts, each acted on → SIGTERM → SIGHUP → SIGKILL → what it left behind
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from relay.hooks import events
from relay.hooks.context import Context
from relay.hooks.runner import Runner
from relay.injection.injection import Injection
from relay.session.giving import Giving
from relay.session.pump import OutputPump
from relay.session.work import Workers
from relay.settings import Settings
from relay.state import process_wait
from relay.state.process_wait import Wait
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty

FAREWELL = 2.0
"""Seconds that the agent's last directives and session_end handlers may delay the person's next prompt."""

LEFTOVER, LEFTOVER_LOOKS = 1.0, 50
"""Seconds until processes that the agent left in its terminal are killed, and looks at them meanwhile."""

SETTLED = 0.5
"""Seconds of quiet, with the agent waiting for input, after which it has acted on a closing prompt."""


class Waits(Protocol):
    """Who knows whether the agent waits for input."""

    def waits_for_input(self) -> bool: ...


class Subject(Protocol):
    """The session, as far as it takes to stop its agent."""

    context: Context
    pty: Pty
    pump: OutputPump
    runner: Runner
    settings: Settings
    workers: Workers
    exited: asyncio.Future[int]
    giving: Giving

    @property
    def hearing(self) -> Waits: ...


class Stopping:
    """Stops one agent. `asked`: somebody wants it stopped."""

    def __init__(self, session: Subject, forwarder: Forwarder) -> None:
        self.asked = False
        self._session = session
        self._forwarder = forwarder
        self._closing: dict[str, Callable[[], None]] = {}

    def stop(self) -> None:
        """End the agent; asked a second time, at once."""
        if self.asked:
            self._session.pty.hang_up(signal.SIGKILL)
            return
        self.asked = True
        self._session.workers.spawn(self._stop(), "stopping")

    @property
    def patience(self) -> float:
        """Seconds in which a session that was asked to stop has ended, unless something is wrong with it."""
        set_ = self._session.settings
        return 2 * set_.handler_seconds + set_.closing_seconds + 3 * set_.stop_seconds + FAREWELL + LEFTOVER

    def typed(self, injection: Injection) -> None:
        """`injection` has come to its end: a closing prompt may now be acted on."""
        if (tell := self._closing.pop(injection.id, None)) is not None:
            tell()

    async def sweep(self) -> None:
        """Kill what the agent left in its terminal and what a hang-up did not end."""
        for _ in range(LEFTOVER_LOOKS):
            if not (left := self._session.pty.groups()):
                return
            await asyncio.sleep(LEFTOVER / LEFTOVER_LOOKS)
        for group in left:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    async def _stop(self) -> None:
        session = self._session
        results = await session.runner.fire(events.SessionEnd(reason="stop"), session.context)
        with suppress(TimeoutError):
            async with asyncio.timeout(session.settings.closing_seconds):
                for result in results:
                    if result.context_injection is None:
                        session.giving.apply(result)
                    else:
                        await self._close_with(result.context_injection, result.source)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            session.pty.hang_up(number)
            await asyncio.wait({session.exited}, timeout=session.settings.stop_seconds)
            if session.exited.done():
                break
        await asyncio.to_thread(self._forwarder.join, FAREWELL)
        self._forwarder.withdraw()  # where its terminal takes nothing, what is left is lost

    async def _close_with(self, prompt: str, source: str) -> None:
        """Give the agent a closing prompt, and wait until it has acted on it."""
        session, typed = self._session, asyncio.Event()
        self._closing[session.giving.give(prompt, source, "closing").id] = typed.set
        await typed.wait()
        offset, began = session.pump.offset, time.monotonic()
        while not session.exited.done():
            await asyncio.sleep(SETTLED / 5)
            quiet = time.monotonic() - max(session.pump.last_output, began)
            acted = (
                session.pump.offset > offset or process_wait.look(session.pty.foreground()).wait is Wait.READ
            )
            if acted and quiet > SETTLED and session.hearing.waits_for_input():
                return
