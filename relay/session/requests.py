"""What others may ask of a session over its control socket, one method per operation."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from relay import names
from relay.agents.hook_event import NativeEvent, NativeName, known, parse
from relay.agents.hook_reply import Answered, Fate, Reply, render
from relay.agents.profile import PromptKind
from relay.control import guard
from relay.control.caller import agents
from relay.control.name_claim import Claim
from relay.control.server import Answer, Request
from relay.errors import NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.injection.queue import Injector
from relay.messaging.client import Courier
from relay.messaging.message import Priority
from relay.readers.auto import AutoReader
from relay.session.absent import NoBus
from relay.session.answers import Answers
from relay.session.mail import Mail
from relay.session.ruling import Ruling
from relay.session.services import SessionServices
from relay.session.setup import Setup
from relay.session.terminals import TerminalClient, Terminals
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.terminal.lend import Lent
from relay.terminal.pty import Pty

UNREAD = "What the tool is called with is too long, or nested too deeply, for rules to look at. Give it less."
FAULT = "The rules for this call could not be asked. The person sees why with relay events."
"""What an agent is told of a call that no rule could be asked about."""


_log = logging.getLogger(__name__)


class Hooked(Protocol):
    """What the session does with what its agent's own hooks tell."""

    @property
    def description(self) -> str: ...
    async def hook(self, event: NativeEvent, *, decide: bool) -> Answered: ...


class Subject(Protocol):
    """The session, as far as others may ask about it or of it."""

    id: str
    claim: Claim
    pty: Pty
    setup: Setup
    reader: AutoReader
    injector: Injector
    terminals: Terminals
    journal: Journal
    state: AgentState
    answers: Answers
    mail: Mail
    ruling: Ruling
    services: SessionServices

    @property
    def courier(self) -> Courier | NoBus: ...
    @property
    def bus_status(self) -> str: ...
    @property
    def native(self) -> Hooked: ...
    @property
    def patience(self) -> float: ...
    def stop(self) -> None: ...
    def tell_person(self, text: str) -> None: ...


class Requests:
    """Answers for one session."""

    def __init__(self, session: Subject) -> None:
        self._session = session

    async def answer(self, request: Request) -> Answer:
        """Do what `request` asks; RelayError becomes its answer."""
        operation = str(request.fields.get("op"))
        method = getattr(self, f"_on_{operation}", None)
        if method is None:
            raise UsageError(f"a session knows no operation {operation!a}.")
        try:
            own = self._session.pty.pid
            # A hook's client is waited for by the agent: who else runs does not matter there.
            known = set() if operation in guard.OWN else agents(Home.from_env())
            guard.check(request, own, {own, *known})
        except NotAllowed:
            self._session.journal.write("refused", operation=operation, pid=request.pid)
            raise
        answer: Answer = await method(request)
        return answer

    async def _on_info(self, _: Request) -> Answer:
        session = self._session
        state = session.state.look()
        return {
            "info": {
                "name": session.claim.name,
                "team": session.claim.team,
                "agent": session.setup.profile.name,
                "pid": os.getpid(),
                "agent_pid": session.pty.pid,
                "state": state,
                "prompt": session.state.prompt,
                "since": session.state.since,
                "cwd": str(session.setup.directory),
                "id": session.id,
                "bus": "connected" if session.courier.connected else session.bus_status,
                "held": _known(session.courier.held),
                "waiting": _known(session.courier.stored),
            }
        }

    async def _on_explain(self, _: Request) -> Answer:
        injector, state, courier = self._session.injector, self._session.state, self._session.courier
        self._session.mail.look()  # so that nothing counts as waiting that is gone
        name = state.look()
        verdict = state.verdict
        return {
            "state": name,
            "reason": state.reason,
            "prompt": state.prompt,
            "rule": "" if verdict is None else verdict.rule,
            "lines": [] if verdict is None else list(verdict.lines),
            "bridge": self._session.native.description,
            "rules": self._session.ruling.description,
            "profile": self._session.setup.profile.name,
            "reader": self._session.reader.kind,
            "waiting": injector.pending,
            "obstacle": injector.obstacle,
            "notices": self._session.terminals.untold,
            "bus": self._session.bus_status,
            "held": _known(courier.held),
            "stored": _known(courier.stored),
        }

    async def _on_question(self, _: Request) -> Answer:
        asked = await self._session.answers.asked()
        return {
            "id": asked.token,
            "kind": self._session.state.prompt or PromptKind.OTHER,
            "lines": asked.lines,
            "options": [{"number": each.number, "text": each.text} for each in asked.options],
            "selected": asked.selected,
        }

    async def _on_answer(self, request: Request) -> Answer:
        id, choice, text = (request.fields.get(name) for name in ("id", "choice", "text"))
        if not isinstance(id, str) or not isinstance(choice, str) or not isinstance(text, str | None):
            raise UsageError("an answer has the id of its question, and a choice or a text.")
        by = f"pid {request.pid}"
        return {"result": await self._session.answers.give(id, choice=choice, text=text, by=by)}

    async def _on_send(self, request: Request) -> Answer:
        fields = request.fields
        to, body, thread, reply_to = (fields.get(name) for name in ("to", "body", "thread", "reply_to"))
        priority, ttl = fields.get("priority") or Priority.NORMAL, fields.get("ttl")
        if not isinstance(to, str) or not isinstance(body, str):
            raise UsageError("a message has a receiver and a text.")
        if not isinstance(thread, str | None) or not isinstance(reply_to, str | None):
            raise UsageError("the thread of a message, and the id of what it answers, are words.")
        if priority not in set(Priority) or not isinstance(ttl, int | float | None):
            raise UsageError("a message is urgent, normal or low, and expires after a number of seconds.")
        sent = await self._session.services.send(
            to, body, thread=thread, reply_to=reply_to, priority=Priority(priority), ttl=ttl
        )
        return {"messages": [message.public() for message in sent]}

    async def _on_drain(self, _: Request) -> Answer:
        self._session.courier.drain()
        self._session.mail.look()
        return {"ok": True}

    async def _on_join(self, request: Request) -> Answer:
        return self._membership(self._session.courier.join(_channel(request)))

    async def _on_leave(self, request: Request) -> Answer:
        self._session.courier.leave(_channel(request))
        return self._membership(True)

    def _membership(self, changed: bool) -> Answer:
        claim, courier = self._session.claim, self._session.courier
        return {"name": claim.name, "team": claim.team, "changed": changed, "channels": courier.channels()}

    async def _on_rules(self, _: Request) -> Answer:
        return self._session.ruling.book.public()

    async def _on_reload_rules(self, _: Request) -> Answer:
        return self._session.ruling.reload().public()

    async def _on_switch_rules(self, _: Request) -> Answer:
        return self._session.ruling.switch(Home.from_env()).public()

    async def _on_roster(self, _: Request) -> Answer:
        return {"members": [{"name": m.name, "online": m.online} for m in self._session.services.roster()]}

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

    async def _on_hook(self, request: Request) -> Answer:
        """An event of the agent's own hooks (relay/agents/hook_client.py has the exchange)."""
        connection, fields = request.connection, request.fields
        with suppress(OSError):  # a client that gave up, too, has told what its agent does
            await connection.write(b" ")  # JSON allows it before the answer: somebody is there
        kind = str(fields.get("agent") or self._session.setup.profile.native.hooks)
        name, decide = str(fields.get("event", "")), fields.get("decide") is True
        try:
            event = parse(kind, name, str(fields.get("payload", "")))
            answered = await self._session.native.hook(event, decide=decide) if event else None
        except RecursionError:  # what can be read may still be nested too deeply to be written
            answered = None
        except Exception:  # noqa: BLE001 (logged; the agent goes on, but not past its guards)
            _log.exception("an event of the agent's hooks")
            self._session.tell_person(f"{name} of the agent's hooks could not be answered: see session.log.")
            return {"stdout": self._guarded(kind, name, FAULT) if decide else "", "code": 0}
        if answered is None:
            return {"stdout": self._guarded(kind, name, UNREAD) if decide else "", "code": 0}
        connection.settled(Fate.UNKNOWN)  # of an earlier event, whose client was answered and never said more
        connection.settle = answered.settle
        return {"stdout": answered.stdout if decide else "", "code": 0}

    def _guarded(self, kind: str, event: str, why: str) -> str:
        """What an event is answered about which nobody can be asked: rules are not got around so."""
        own, name = known(kind, event) or ("", None)
        if name is not NativeName.TOOL_PRE or not self._session.ruling.has("PreToolUse"):
            return ""
        return render(NativeEvent(name, kind, event=own), Reply(deny=why))

    async def _on_hook_printed(self, request: Request) -> Answer:
        """The client has given the agent what it was answered."""
        request.connection.settled(Fate.PRINTED)
        return {"ok": True}


def _known(ids: Callable[[], set[str]]) -> int | None:
    """How many messages `ids` finds in the ledger; None where that cannot be read."""
    try:
        return len(ids())
    except RelayError:
        return None


def _channel(request: Request) -> str:
    channel = request.fields.get("channel")
    if not isinstance(channel, str):
        raise UsageError("a channel is named by a word, such as '#ops'.")
    return names.channel(channel)
