"""Shows the agent the others of its team in its own list of sessions, and sends what it writes to them there.

Alice's session                                             Bob's session
  every tick: Bob in her list (relay.agents.peers)
  Alice's process connects to Bob's control socket ───────→ on_frame: an agent's process? whose?
  on_say ←───────────────────────────────────────────────── asks the session of that agent
    SendMessage, as for a directive; a failure is told to Alice
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relay import names
from relay.clock import until_tick
from relay.control.caller import agent_of
from relay.control.lineage import claims_here, connected
from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.control.sessions import call
from relay.errors import MessageRefused, NotAllowed, RelayError, UsageError
from relay.eventbus import EventBus, answers, handles
from relay.home import Home
from relay.hooks.commands import SendMessage
from relay.injection.events import Inject
from relay.injection.injection import notice
from relay.lifecycle import Describe, Identity
from relay.message import OutgoingMessage
from relay.messaging.events import current_client
from relay.place import REQUEST, Place
from relay.storage.journal import Journal
from relay.terminal.events import AgentExited
from relay.transport.wire import is_id

if TYPE_CHECKING:
    from relay.agents.peers import Peer, PeerList

LOOK_EVERY = 5.0
"""Seconds between two looks at who is running."""


class Peers:
    """The agent among its peers.

    listing: the agent's own list; None: it has none. shows: relay adds the others to it.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        session: Identity,
        home: Home,
        listing: PeerList | None,
        *,
        shows: bool,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._session = session
        self._home = home
        self._listing = listing
        self._kept = listing if shows else None  # while the agent runs
        self._team: list[Peer] | None = None  # at the last look
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        while self._kept is not None:
            self._look(self._kept)
            await asyncio.sleep(until_tick(LOOK_EVERY))

    def _look(self, kept: PeerList) -> None:
        from relay.agents.peers import Peer  # only agents with a list need it

        with suppress(OSError, RelayError):  # an unreadable folder stays as it is
            team = sorted(
                Peer(claim.name, claim.shim, claim.socket)
                for claim in claims_here(self._home)
                if claim.shim and names.same(claim.team, self._session.team)
                if not names.same(claim.name, self._session.name)
            )
            if team != self._team or not kept.complete() or kept.shown < len(team):
                kept.show(team)
                self._team = team

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.show(())  # others with this list add theirs again

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief or self._kept is None:
            return None
        return {"peers": self._kept.shown, "peers_closed": self._kept.closed()}

    @operation("peer")
    async def on_frame(self, request: Request) -> Answer:
        """Pass on what a process has written to this agent as to a peer, without an answer: that is taken.

        Only the process says whose words these are. Raise NotAllowed if it is not an agent's: the words of
        the user's other agents are not the user's.
        """
        if request.fields.get("type") != "user":
            return {}
        sender = agent_of(self._home, connected(request.channel.fileno()))
        try:
            if sender is None:
                raise NotAllowed("only agents that relay wraps may write to one another. Use `relay send`.")
            say = {"op": "say", "to": self._session.name, "team": self._session.team, "frame": request.fields}
            await asyncio.to_thread(call, sender.socket, say)
        except RelayError as error:
            self._journal.write("refused", operation="peer", pid=request.pid, why=str(error))
            raise
        return {}

    @operation("say")
    async def on_say(self, request: Request) -> Answer:
        """Send what the agent has written to a peer. If that fails, tell the agent: nothing else does."""
        to, team, frame = (request.fields.get(name) for name in ("to", "team", "frame"))
        message = self._listing.message(frame) if self._listing and isinstance(frame, dict) else None
        if message is None or not (isinstance(to, str) and isinstance(team, str) and is_id(message.id)):
            raise UsageError("that is not a message of this agent.")
        try:
            if not names.same(team, self._session.team):
                raise MessageRefused(f"{to} is in the team {team}, which is not yours.")
            await self._send(to, message.text, Place(f"{REQUEST}/{message.id}", 0))
        except RelayError as error:
            self._bus.publish(Inject(notice(f"your message to {to} was not sent: {error}")))
        return {"ok": True}

    async def _send(self, to: str, text: str, place: Place) -> Sequence[object]:
        """Send a message once, also if it is asked for again."""
        client = await current_client(self._bus)
        async with self._sending:
            sent = await client.ask(lambda ledger: ledger.outbox.sent_for(self._session.id, place))
            return sent or await self._bus.ask(SendMessage(OutgoingMessage(to, text, place=place)))
