"""Answers requests to a session's control socket: checks the caller, and calls the operation of a feature."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from relay import names
from relay.control import guard
from relay.control.lineage import Lineage, claims_here, complete, connected, nearest
from relay.control.name_claim import Noted
from relay.control.operations import operation
from relay.control.server import NOBODY, OWN, USER, Answer, ControlServer, Request
from relay.control.sessions import PROGRAM, not_an_agent
from relay.errors import NotAllowed, UsageError
from relay.eventbus import EventBus, handles
from relay.home import Home
from relay.lifecycle import Describe, Identity, SessionBegan
from relay.storage.journal import Journal

LOOKS = frozenset({"info", "explain", "peek"})
"""Operations that need nothing of the other features; the others wait until the session has begun."""

_FRESH = 1.0  # seconds for which the claims of all agents are read only once

_HIDDEN = {
    "reason": "its screen is not yours to see",
    "lines": [],
    "rule": "",
    "notices": [],
    "configuration": [],
}
"""What another agent gets instead of what `explain` quotes from the agent's screen, or keeps for the user."""


class Requests:
    """Serves the control socket of one session. Call `offer` once all features exist.

    listener:          the socket that clients connect to.
    agent:             the name of the agent's profile.
    pid, terminal_pid: the agent's process, and its shim's.
    restarts:          the number of agents that this shim has started before.
    shown_to:          the team whose agents may look at this one (the setting `look`); None: no team.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        session: Identity,
        home: Home,
        listener: int,
        *,
        agent: str,
        pid: int,
        terminal_pid: int,
        restarts: int,
        shown_to: str | None,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._session = session
        self._home = home
        self._lineage = Lineage(pid, terminal_pid, os.getpid())
        self._server = ControlServer(listener, self.answer, self._owners)
        self._claims: tuple[float, list[Noted]] = 0.0, []
        self._agent = agent
        self._restarts = restarts
        self._shown_to = shown_to
        self._operations: dict[str, Callable[[Request], Awaitable[Answer]]] = {}
        self._begun = asyncio.Event()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._begun.set()

    def offer(self, operations: dict[str, Callable[[Request], Awaitable[Answer]]]) -> None:
        """Answer these operations (relay.control.operations)."""
        self._operations = operations

    async def run(self) -> None:
        await self._server.run()

    async def answer(self, request: Request) -> Answer:
        """Run the operation that `request` names. Raise UsageError if unknown, NotAllowed if forbidden."""
        if "type" in request.fields:  # a line of the protocol in which an agent writes to those in its list
            request.fields.setdefault("op", "peer")
        operation = str(request.fields.get("op"))
        method = self._operations.get(operation)
        if method is None:
            if self._agent == PROGRAM:
                raise not_an_agent(self._session.name, os.getpid())
            raise UsageError(f"a session has no operation {operation!r}.")
        try:
            guard.check(request, self._lineage, self._home, self._shown_to)
        except NotAllowed:
            self._journal.write("refused", operation=operation, pid=request.pid)
            raise
        if not (operation in LOOKS or self._begun.is_set()):
            if operation == "hook":
                await request.connection.show_life()
            await self._begun.wait()
        return await method(request)

    def _may_look(self, request: Request) -> bool:
        """Return True for the user, the agent itself and, if the setting `look` allows it, its team."""
        self._claims = -_FRESH, []  # the agent that asks may just have started
        (owner,) = self._owners([request.channel.fileno()])
        team = owner.rpartition("/")[0]
        allowed = bool(team) and self._shown_to is not None and names.same(team, self._shown_to)
        return allowed or owner in {OWN, USER}

    def _owners(self, fds: Sequence[int]) -> list[str]:
        """Return whose these sockets are (relay.control.server)."""
        read, claims = self._claims
        if time.monotonic() > read + _FRESH:
            claims = claims_here(self._home)
            self._claims = time.monotonic(), claims
        return [self._owner(connected(fd), claims) for fd in fds]

    def _owner(self, pids: Sequence[int], claims: Sequence[Noted]) -> str:
        if self._lineage.through(pids):
            return OWN
        if (found := nearest(claims, pids)) is not None:
            return f"{found[0].team}/{found[0].name}"
        return USER if complete(pids) else NOBODY

    @operation("info")
    async def info(self, request: Request) -> Answer:
        """Return the session's entry for `relay ps`; its words only to those who may see its screen."""
        session = self._session
        described = await self._described(brief=True)
        said = {key: "" for key in ("question", "last_line") if described.get(key)}
        if said and not self._may_look(request):
            described |= said
        return {
            "info": {
                "name": session.name,
                "team": session.team,
                "agent": self._agent,
                "pid": os.getpid(),
                "agent_pid": self._lineage.agent,
                "terminal_pid": self._lineage.shim,
                "cwd": str(session.directory),
                "id": session.id,
                "restarts": self._restarts,
                **described,
            }
        }

    @operation("explain")
    async def explain(self, request: Request) -> Answer:
        """Return the reasons for the agent's state and for waiting messages, for `relay explain`."""
        pids = {"session_pid": os.getpid(), "terminal_pid": self._lineage.shim}
        return {
            "profile": self._agent,
            **pids,
            "restarts": self._restarts,
            **await self._described(brief=False),
            **({} if self._may_look(request) else _HIDDEN),
        }

    async def _described(self, *, brief: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for facts in await self._bus.ask_all(Describe(brief)):
            found |= facts
        return found
