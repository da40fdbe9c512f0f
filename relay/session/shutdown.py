"""Stops an agent: politely, then by force.

session_end handlers → closing prompts, each acted on → SIGTERM → SIGHUP → SIGKILL → leftover processes
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from contextlib import suppress

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.errors import UsageError
from relay.eventbus import EventBus, handles
from relay.hooks import events
from relay.hooks.apply import apply
from relay.injection.events import EarlierInjectionEnded, Inject, InjectionEnded
from relay.injection.injection import Injection
from relay.lifecycle import Order, StopRequested
from relay.rules.events import Consult
from relay.settings import Settings
from relay.shim.shim import FAREWELL, LAST_STEPS, LEFTOVER
from relay.state.agent_terminal import AgentTerminal
from relay.supervision.events import EndAgent, RestartAgent
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, Notify, OutputEnded
from relay.terminal.shim_link import ShimLink

SETTLED = 0.5
"""Seconds of quiet, with the agent waiting for input, after which a closing prompt counts as acted on."""


class Shutdown:
    """Stops one agent. asked: stopping was requested. again: how to start the agent again afterwards."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        shim: ShimLink,
        terminal: AgentTerminal,
        settings: Settings,
        *,
        piped: bool,
    ) -> None:
        self.asked = False
        self.again: Order = ""
        self._bus = bus
        self._tasks = tasks
        self._pty = shim.pty
        self._shim = shim
        self._terminal = terminal
        self._settings = settings
        self._piped = piped
        self._exited = asyncio.Event()
        self._over = asyncio.Event()
        self._closing: dict[str, asyncio.Event] = {}

    @operation("stop")
    async def request(self, request: Request) -> Answer:
        """Stop the agent. patience: the maximum seconds that a healthy session takes."""
        if not (request.fields.get("again") and self.asked and not self.again):
            self.stop(by_user=True)  # else an earlier session was asked, and this one continues the stop
        return {"ok": True, "patience": self._patience()}

    @operation("restart")
    async def request_again(self, request: Request) -> Answer:
        """Stop the agent, and start it again. now: kill it. how: as in `Order`.

        patience: as in `request`, including the start.
        """
        if self._piped:
            raise UsageError("its input is a pipe or a file, which cannot be read twice.")
        if self.asked and not self.again:
            raise UsageError("it is ending. Then start it again with `relay wrap`.")
        how = request.fields.get("how")
        self.restart("resume" if how == "resume" else "fresh" if how == "fresh" else "restart")
        if request.fields.get("now") is True:
            self._pty.hang_up(signal.SIGKILL)
        return {"ok": True, "patience": self._patience() + LAST_STEPS}

    def _patience(self) -> float:
        set_ = self._settings
        most = 2 * set_.handler_seconds + set_.closing_seconds + 3 * set_.stop_seconds
        return most + FAREWELL + LEFTOVER

    @handles(EndAgent)
    def end(self, _: EndAgent) -> None:
        """Stop the agent on behalf of its supervision."""
        if not self.asked:
            self.stop()

    @handles(RestartAgent)
    def start_again(self, event: RestartAgent) -> None:
        """Restart the agent on behalf of its supervision."""
        if self._piped:
            self._bus.publish(Notify("it is not restarted: its input is a pipe or a file."))
        else:
            self.restart("resume" if event.resumes else "fresh", by_user=False)

    def restart(self, again: Order, *, by_user: bool = True) -> None:
        """Stop the agent, and start it again under the same name, in the same terminal.

        by_user: the user requested it.
        """
        if not self.asked:
            self.asked, self.again = True, again
            self._shim.keep(True, ordered=again)
            self._bus.publish(StopRequested(again, by_user))
            self._tasks.spawn(self._stop(), "stopping")

    def stop(self, *, by_user: bool = False) -> None:
        """Stop the agent; kill it if a stop was already requested. by_user: the user requested it."""
        self.again = ""
        self._shim.keep(False, ordered="stop")
        self._bus.publish(StopRequested(by_user=by_user))
        if self.asked:
            self._pty.hang_up(signal.SIGKILL)
            return
        self.asked = True
        self._tasks.spawn(self._stop(), "stopping")

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._exited.set()

    @handles(InjectionEnded, EarlierInjectionEnded)
    def typed(self, event: InjectionEnded) -> None:
        if (ended := self._closing.pop(event.injection.id, None)) is not None:
            ended.set()

    @handles(OutputEnded)
    def over(self, _: OutputEnded) -> None:
        self._over.set()

    async def _stop(self) -> None:
        if self._exited.is_set() and self._over.is_set():
            return  # the agent has ended; it only has to stay so, or to start again
        reason = "restart" if self.again else "stop"
        results = await self._bus.gather(Consult(handlers=events.SessionEnd(reason=reason)))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.closing_seconds):
                for result in results:
                    if result.context_injection is None:
                        apply(self._bus, [result])
                    else:
                        await self._close_with(result.context_injection, result.source)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            self._pty.hang_up(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.stop_seconds):
                    await self._exited.wait()
                    break
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._over.wait()
        self._shim.finish()

    async def _close_with(self, prompt: str, source: str) -> None:
        """Give the agent a closing prompt, and wait until it has acted on the prompt."""
        id, typed = secrets.token_hex(8), asyncio.Event()
        self._closing[id] = typed
        self._bus.publish(Inject(Injection(id, prompt, source, "closing", time=time.time())))
        await typed.wait()
        offset, began = self._terminal.output_offset(), time.monotonic()
        while not self._exited.is_set():
            await asyncio.sleep(SETTLED / 5)
            quiet = time.monotonic() - max(self._terminal.last_output(), began)
            acted = self._terminal.output_offset() > offset or self._terminal.reads_input()
            if acted and quiet > SETTLED and self._terminal.waits_for_input():
                return
