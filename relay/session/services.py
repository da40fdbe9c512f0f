"""What a session does for its handlers (relay.hooks.services.Services)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from relay import names
from relay.control.name_claim import Claim
from relay.hooks.problem import Problem
from relay.hooks.result import HookResult
from relay.hooks.services import Member
from relay.messaging.client import Courier
from relay.messaging.message import Message, Priority
from relay.session.absent import NoBus
from relay.session.giving import Giving
from relay.session.mail import Mail
from relay.session.terminals import Terminals
from relay.storage.journal import Journal, preview


class Subject(Protocol):
    """The session, as far as its handlers need it."""

    loop: asyncio.AbstractEventLoop
    claim: Claim
    journal: Journal
    giving: Giving
    mail: Mail
    terminals: Terminals

    @property
    def courier(self) -> Courier | NoBus: ...


class SessionServices:
    """The services of one session."""

    def __init__(self, session: Subject) -> None:
        self._session = session

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._session.loop

    def inject(self, text: str, source: str) -> None:
        self._session.giving.inject(HookResult.inject(text, source=source))

    async def send(
        self,
        to: str,
        body: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        priority: Priority = Priority.NORMAL,
        ttl: float | None = None,
    ) -> Sequence[Message]:
        return self._session.mail.send(to, body, thread=thread, reply_to=reply_to, priority=priority, ttl=ttl)

    async def outcomes(self, messages: Sequence[Message], seconds: float) -> Sequence[Message]:
        return await self._session.mail.outcomes(messages, seconds)

    def roster(self) -> Sequence[Member]:
        courier, own = self._session.courier, self._session.claim.name
        absent = False if courier.informed else None
        return [
            Member(each.name, each.online or absent)
            for each in courier.roster()
            if not names.same(each.name, own)
        ]

    def report(self, problem: Problem) -> None:
        """What is wrong with a handler goes into the journal and before the person."""
        said = str(problem)
        self._session.journal.write(
            "handler_problem", handler=problem.handler, kind=problem.kind, problem=said
        )
        self._session.terminals.tell(said)

    def printed(self, handler: str, text: str) -> None:
        """What a handler has printed."""
        self._session.journal.write("handler_printed", handler=handler, text=preview(text))
