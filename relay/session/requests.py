"""What others may ask of a session over its control socket, one method per operation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from relay.errors import UsageError
from relay.home import Home
from relay.injection.readiness import Readiness
from relay.session import guard
from relay.session.caller import agents
from relay.session.control import Answer, Request
from relay.session.terminals import TerminalClient
from relay.terminal.lend import Lent

if TYPE_CHECKING:
    from relay.session.process import Session


class Requests:
    """Answers for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def answer(self, request: Request) -> Answer:
        """Do what `request` asks; RelayError becomes its answer."""
        operation = str(request.fields.get("op"))
        method = getattr(self, f"_on_{operation}", None)
        if method is None:
            raise UsageError(f"a session knows no operation {operation!a}.")
        try:
            guard.check(request, {self._session.pty.pid, *agents(Home.from_env())})
        except Exception:
            self._session.journal.write("refused", operation=operation, pid=request.pid)
            raise
        answer: Answer = await method(request)
        return answer

    async def _on_info(self, _: Request) -> Answer:
        session = self._session
        state, since = session.state()
        return {
            "info": {
                "name": session.claim.name,
                "team": session.claim.team,
                "agent": session.setup.profile.name,
                "pid": os.getpid(),
                "agent_pid": session.pty.pid,
                "state": state,
                "prompt": "other"
                if state == Readiness.PROMPTING
                else None,  # which kind is not told apart yet
                "since": since,
                "cwd": str(session.setup.directory),
                "id": session.id,
            }
        }

    async def _on_explain(self, _: Request) -> Answer:
        injector = self._session.injector
        verdict = injector.verdict
        return {
            "state": str(verdict.state),
            "reason": verdict.reason,
            "profile": self._session.setup.profile.name,
            "reader": self._session.reader.kind,
            "waiting": injector.pending,
            "obstacle": injector.obstacle,
        }

    async def _on_send(self, request: Request) -> Answer:
        to, body, thread = (request.fields.get(name) for name in ("to", "body", "thread"))
        if not isinstance(to, str) or not isinstance(body, str) or not isinstance(thread, str | None):
            raise UsageError("a message has a receiver and a text, and its thread, if it has one, is a word.")
        sent = await self._session.send(to, body, thread=thread)
        return {"messages": [_row(message) for message in sent]}

    async def _on_drain(self, _: Request) -> Answer:
        self._session.courier.drain()
        return {"ok": True}

    async def _on_roster(self, _: Request) -> Answer:
        return {"members": [{"name": m.name, "online": m.online} for m in self._session.roster()]}

    async def _on_stop(self, _: Request) -> Answer:
        self._session.stop()
        return {"ok": True, "patience": self._session.patience}

    async def _on_attach(self, request: Request) -> Answer:
        if len(request.fds) != 2:
            raise UsageError("attaching needs the descriptors of a terminal.")
        lent = Lent(
            *request.fds,
            interactive=bool(request.fields.get("interactive")),
            saved=request.fields.get("saved"),
        )
        request.keep = True
        client = TerminalClient(request.channel, owner=False)
        await self._session.terminals.take_over(client, lent)
        return {"event": "agent", "group": self._session.pty.pid}


def _row(message: Any) -> dict[str, Any]:
    return {
        "id": message.id,
        "from": message.sender,
        "to": message.to,
        "body": message.body,
        "state": str(message.state),
        "time": message.time,
        "thread": message.thread,
    }
