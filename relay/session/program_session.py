"""The session of a program that has joined a team (`relay.connect`): an agent's, without agent and terminal.

It has its own thread and event loop, so whatever the program does, messages keep arriving.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from relay import names, settings
from relay.control import guard
from relay.control.claiming import claim
from relay.control.name_claim import Claim
from relay.control.operations import operations
from relay.control.sessions import PROGRAM
from relay.errors import NameInUse, RelayError, UsageError
from relay.eventbus import EventBus, handles
from relay.features.bus_connection import BusConnection
from relay.features.injection_audit import InjectionAudit
from relay.features.mailbox import Mailbox
from relay.features.program_inbox import MessageLoop, ProgramInbox
from relay.features.requests import Requests
from relay.features.sender import MessageSender
from relay.home import Home
from relay.hooks.context import RelayService
from relay.hooks.trust import Trust
from relay.injection.audit_log import AuditLog
from relay.injection.budget import Budget
from relay.lifecycle import Describe, Identity, SessionBegan, SessionClosed, SessionReady
from relay.messaging.client import MessagingClient
from relay.messaging.events import current_client
from relay.messaging.name_owners import Owner
from relay.messaging.runaway import Limits
from relay.settings import Settings
from relay.shim.control import bind
from relay.state.readiness import Readiness, Verdict
from relay.storage.journal import Journal, WritingFailed
from relay.tasks import TaskFailed, Tasks
from relay.terminal.events import Notify

NOT_AGENTS = "an agent's programs do not join its team; they send as the agent, with `relay send`."

T = TypeVar("T")

_log = logging.getLogger("relay")


class ProgramSession:
    """Makes this process the member `name` of `team`. Its methods may be called from any thread.

    inbox, relay: what the program's calls use, once it has joined.
    """

    inbox: ProgramInbox
    relay: RelayService
    _loop: asyncio.AbstractEventLoop

    def __init__(self, name: str, team: str | None, channels: Sequence[str]) -> None:
        """Raise InvalidName."""
        self._name = names.validate(name)
        self._team = names.team(team)
        self._channels = tuple(names.channel(each) for each in channels)
        self._joined: Future[None] = Future()
        self._over: Future[None] = Future()
        self._leaving: Future[bool] = Future()  # True: the bodies of its loops are done

    def enter(self) -> Future[None]:
        """Start to join. The future raises NameInUse, NotAllowed, HomeError or LedgerError."""
        # As a daemon, it does not keep a program alive that ends without leaving.
        threading.Thread(target=self._main, name=f"relay: {self._name}", daemon=True).start()
        return self._joined

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` in the session. Raise UsageError if the program has left."""
        if self._leaving.done():
            work.close()
            raise UsageError(f"{self._name} has left the team {self._team}: use it inside its `with` block.")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @contextmanager
    def message_loop(self, runner: object) -> Iterator[MessageLoop]:
        """Yield a loop of `runner`, which ends with the block."""
        loop = MessageLoop(runner)
        try:
            yield loop
        except GeneratorExit:
            loop.left = True
            raise
        except BaseException:  # cancelled, perhaps just as a message came
            with suppress(RuntimeError):  # the program has left meanwhile
                self._loop.call_soon_threadsafe(self.inbox.finish, loop)
            raise

    def leave(self, *, done: bool) -> Future[None]:
        """Start to leave. done: so are the bodies of its loops; else their messages wait again."""
        self._leaving.set_result(done)
        return self._over

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 (raised in the program)
            (self._over if self._joined.done() else self._joined).set_exception(error)
        else:
            self._over.set_result(None)

    async def _run(self) -> None:
        home = Home.from_env().ensure()
        guard.user_only(home, "connect", NOT_AGENTS)
        claimed = self._claim(home)
        try:
            listener = bind(claimed.socket).detach()
            claimed.note(0, os.getpid(), shim=0)  # what this program starts is not an agent's
            async with asyncio.TaskGroup() as group:
                error = await self._live(home, listener, group)
            if error is not None:
                raise error
        finally:
            claimed.release()

    def _claim(self, home: Home) -> Claim:
        try:
            return claim(home, self._team, self._name)
        except NameInUse:
            raise NameInUse(
                f"the name {self._name} is in use in team {self._team} (`relay ps`). Connect with another."
            ) from None

    async def _live(self, home: Home, listener: int, group: asyncio.TaskGroup) -> RelayError | None:
        """Be a member until the program leaves; return the error if it cannot join."""
        session = Identity(secrets.token_hex(8), self._name, self._team, Path.cwd())
        found, notices = settings.load(home, session.directory, Trust(home).covers)
        bus = EventBus()
        journal = Journal(home.journal, session.id, session.name, bus)
        audit = AuditLog(home.audit, session.id, session.name, session.team, bus=bus)
        tasks = Tasks(group, bus)
        self._loop = bus.loop
        self.inbox = ProgramInbox(bus)
        self.relay = RelayService(bus)
        requests = Requests(
            *(bus, journal, session, home, listener),
            agent=PROGRAM,
            pid=0,
            terminal_pid=0,
            restarts=0,
            shown_to=None,
        )
        features = (
            MessageSender(bus, journal, session),
            Mailbox(bus, tasks, journal, lambda: Verdict(Readiness.READY, "")),
            BusConnection(
                bus,
                journal,
                partial(_open, home, session, found, bus),
                name=session.name,
                channels=(*found.channels, *self._channels),
            ),
            InjectionAudit(bus, journal, audit, Budget(found.injection_budget)),
            self.inbox,
            requests,
        )
        for feature in features:
            bus.add(feature)
        offered = operations(features)
        del offered["send"]  # only an agent's own processes send through its session
        requests.offer(offered)
        for feature in features:
            if (run := getattr(feature, "run", None)) is not None:
                tasks.spawn(run(), type(feature).__name__)
        done = False
        try:
            await current_client(bus)
            bus.add(_Log())  # until now, an error says it
            for notice in notices:
                _log.warning(notice)
            bus.publish(SessionBegan())
            bus.publish(SessionReady())
            await bus.ask_all(Describe(brief=False))  # once the mailbox has read what waits
            self._joined.set_result(None)
            done = await asyncio.wrap_future(self._leaving)
        except RelayError as error:
            return error
        finally:
            self.inbox.close(done=done)
            await bus.ask_all(SessionClosed(ended=True))
            tasks.cancel()
        return None


class _Log:
    """Logs what an agent's terminal would show."""

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        _log.warning(event.line)

    @handles(TaskFailed)
    def failed(self, event: TaskFailed) -> None:
        _log.warning(event.text)

    @handles(WritingFailed)
    def not_written(self, event: WritingFailed) -> None:
        _log.warning(event.text)


async def _open(
    home: Home, session: Identity, found: Settings, bus: EventBus, in_hand: frozenset[str]
) -> MessagingClient:
    return await MessagingClient.open(
        home,
        session.team,
        session.name,
        publish=bus.publish,
        broker_url=found.broker or None,
        limits=Limits.of(found),
        in_hand=in_hand,
        owner=Owner.of_folder(session.directory),
    )
