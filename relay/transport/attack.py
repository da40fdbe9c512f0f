"""Attacks by one agent on another over a real broker, which must stop them.

Each attack uses one agent's own credentials against another's mail or presence, and is judged by its effect:
a broker's acknowledgement proves nothing (nats-server acknowledges a forbidden publish, Mosquitto grants any
subscription).  Afterwards the listener sends something to itself; once that has arrived, the payloads of the
attack would have arrived, too.

Nothing is left behind: no payload is retained, and the one kept session is wiped again.  Real agents that
receive the payloads ignore them as foreign.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from relay.errors import BrokerError
from relay.transport import topics
from relay.transport.credentials import Credentials, Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import ConnectionLost, MqttTransport
from relay.transport.probe_result import ADVICE, Finding, ProbeResult
from relay.transport.raw_login import raw_login

SETTLE_SECONDS = 0.2
"""Extra seconds to wait: a cluster may deliver an earlier message later."""

ANSWER_SECONDS = 15.0
_WILL_SECONDS = 0.5  # for a broker to notice that a connection broke
_MAIL_SECONDS = 2.0  # for what was published to arrive


class Attack:
    """The attacks of `attacker` on `victim`."""

    def __init__(self, endpoint: Endpoint, attacker: Credentials, victim: Credentials) -> None:
        self._endpoint = endpoint
        self._attacker = attacker
        self._victim = victim
        self._own_inbox = topics.inbox(victim.team, victim.name, victim.name)
        self._who = f"{attacker.user} against {victim.user}"

    async def rows(self) -> list[ProbeResult]:
        """Try everything; return a row for each key of ADVICE ("team" only if their teams differ)."""
        own = await self._own()
        if own.status is not Finding.HOLDS:
            why = f"{self._who}: even what they must be able to do fails."
            others = [key for key in ADVICE if key not in {"own", "team"}]
            return [own, *(ProbeResult(key, Finding.UNPROVED, why) for key in others)]
        team, name, inbox = self._victim.team, self._victim.name, self._own_inbox
        below = f"{topics.ROOT}/{team}"
        return [
            own,
            await self._forge("publish", inbox, topics.inbox(team, name, f"nobody-{secrets.token_hex(4)}")),
            await self._forge("presence", topics.presence(team, name)),
            await self._will(inbox, topics.presence(team, name)),
            await self._overhear(
                "inbox", [inbox], topics.inbox_filter(team, name), inbox, f"{below}/agents/{name}/#"
            ),
            await self._overhear(
                "wildcard",
                [inbox],
                *("#", "+/#", "relay/#", f"{topics.ROOT}/#", f"{below}/#"),
                *(topics.inbox_filter(team, "+"), topics.inbox_filter("+", "+")),
                f"$share/doctor/{topics.inbox_filter(team, name)}",
            ),
            await self._overhear("internals", [inbox], "$SYS/#", "$MQTT/#", "$JS/#", "_INBOX/#"),
            await self._session(),
            *([await self._other_team()] if team != self._attacker.team else []),
        ]

    async def _own(self) -> ProbeResult:
        """Try what both must be able to do; otherwise the other rows mean nothing."""
        pairs = [(self._victim, self._victim), (self._attacker, self._attacker)]
        if self._victim.team == self._attacker.team:
            pairs.append((self._attacker, self._victim))
        for sender, receiver in pairs:
            inbox = topics.inbox(receiver.team, receiver.name, sender.name)
            try:
                async with self._ear(receiver) as ear, self._connection(beside(sender)) as mouth:
                    for topic in (inbox, topics.presence(sender.team, sender.name)):
                        await mouth.publish(topic, token := _token())
                        if not await ear.hears(token, _MAIL_SECONDS):
                            what = (
                                f"{receiver.user} does not receive what {sender.user} publishes to {topic}."
                            )
                            return ProbeResult("own", Finding.BROKEN, f"{what} {ADVICE['own']}")
            except ConnectionLost:
                raise
            except BrokerError as error:
                return ProbeResult("own", Finding.BROKEN, f"{receiver.user}: {error}")
        able = "each publishes under its own name, and receives its inbox and its team's presence."
        return ProbeResult("own", Finding.HOLDS, able)

    async def _forge(self, key: str, *forged: str) -> ProbeResult:
        """Publish to forbidden topics; nothing must reach the victim."""
        async with self._ear(self._victim) as ear:
            for topic in forged:
                token = _token()
                async with self._connection(beside(self._attacker)) as mouth:
                    with contextlib.suppress(ConnectionLost):  # how some brokers refuse
                        await mouth.publish(topic, token)
                await ear.settled()
                if token in ear.heard:
                    return self._broken(key, f"it published to {topic}")
        return self._held(key, "what it published did not arrive")

    async def _will(self, *forged: str) -> ProbeResult:
        async with self._ear(self._victim) as ear:
            tokens = {topic: _token() for topic in forged}
            for will in tokens.items():
                async with raw_login(self._endpoint, beside(self._attacker), will):
                    pass  # refused because of its will, or accepted, and broken here
            await ear.settled()
            await asyncio.sleep(_WILL_SECONDS)
            for topic, token in tokens.items():
                if token in ear.heard:
                    return self._broken("will", f"its will went to {topic}")
        return self._held("will", "its will was not published")

    async def _overhear(self, key: str, published: Sequence[str], *filters: str) -> ProbeResult:
        """Subscribe to forbidden topics; nothing must arrive."""
        token = _token()
        async with contextlib.AsyncExitStack() as stack:
            # One connection for each filter: a broker may close it because of a forbidden filter.
            ears = [await stack.enter_async_context(self._ear(self._attacker, each)) for each in filters]
            mouth = await stack.enter_async_context(self._connection(beside(self._victim)))
            for topic in published:
                await mouth.publish(topic, token)
            await asyncio.gather(*(ear.settled() for ear in ears))
            for ear, each in zip(ears, filters, strict=True):
                if token in ear.heard:
                    return self._broken(key, f"it received the other's messages by {each}")
                if internal := [topic for topic in ear.topics if topic.startswith(("$", "_"))]:
                    return self._broken("internals", f"it received {internal[0]} by {each}")
        return self._held(key, "it subscribed, but received nothing")

    async def _session(self) -> ProbeResult:
        """Leave mail in a mailbox of the victim, and try to wipe it with what the attacker can know."""
        name, user = self._victim.name, self._victim.user
        mailbox = beside(self._victim, keep=True)
        try:
            if not await self._survives(mailbox):
                why = (
                    "the broker keeps no messages for absent agents. relay publishes them again, which takes "
                    "longer."
                )
                return ProbeResult("session", Finding.UNPROVED, why)
            if not await self._survives(mailbox, user, name, f"relay-{name}", f"relay-{user}"):
                return self._broken("session", "it wiped it with a guessable client id")
            if not await self._survives(mailbox, mailbox.client_id):
                secret = "the client id is a 128-bit secret; with that exact id it would have wiped it"
                return self._held("session", secret)
            return self._held("session", "even with the other's client id it could not wipe it")
        finally:
            async with raw_login(self._endpoint, mailbox):
                pass  # a clean session deletes the mailbox

    async def _survives(self, mailbox: Login, *guesses: str) -> bool:
        """Return True if mail for `mailbox` survives the attacker's logins with `guesses`."""
        token = _token()
        async with self._ear(self._victim, mailbox=mailbox):
            pass
        async with self._connection(beside(self._victim)) as mouth:
            await mouth.publish(self._own_inbox, token)
        for client_id in guesses:
            async with raw_login(self._endpoint, replace(beside(self._attacker), client_id=client_id)):
                pass
        async with self._ear(self._victim, mailbox=mailbox) as ear:
            await ear.settled()  # queued mail arrives before new mail
            return token in ear.heard

    async def _other_team(self) -> ProbeResult:
        team, name, own = self._victim.team, self._victim.name, self._attacker.name
        forged = await self._forge("team", topics.inbox(team, name, own), topics.presence(team, own))
        if forged.status is not Finding.HOLDS:
            return forged
        filters = topics.presence_filter(team), topics.presence_filter("+"), topics.inbox_filter(team, name)
        return await self._overhear("team", (self._own_inbox, topics.presence(team, name)), *filters)

    @contextlib.asynccontextmanager
    async def _connection(self, login: Login) -> AsyncIterator[MqttTransport]:
        transport = MqttTransport(self._endpoint, login)
        await transport.connect()
        with contextlib.closing(transport):
            yield transport

    @contextlib.asynccontextmanager
    async def _ear(
        self, agent: Credentials, filter: str | None = None, *, mailbox: Login | None = None
    ) -> AsyncIterator[_Ear]:
        """Yield a connection of `agent` that listens to its inbox and `filter` (default: team presence)."""
        async with self._connection(mailbox or beside(agent)) as transport:
            ear = _Ear(transport, topics.inbox(agent.team, agent.name, agent.name))
            await transport.subscribe(topics.inbox_filter(agent.team, agent.name), 1, insist=True)
            try:
                await transport.subscribe(filter or topics.presence_filter(agent.team), 0)
            except BrokerError:
                if filter is None:
                    raise
                ear.deaf = True
            listening = asyncio.create_task(ear.listen())
            try:
                yield ear
            finally:
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening

    def _broken(self, key: str, how: str) -> ProbeResult:
        return ProbeResult(key, Finding.BROKEN, f"{self._who}: {how}. {ADVICE[key]}")

    def _held(self, key: str, how: str) -> ProbeResult:
        return ProbeResult(key, Finding.HOLDS, f"{self._who}: {how}.")


@dataclass(eq=False, slots=True)
class _Ear:
    """The payloads and topics that one connection receives. own: the topic on which it publishes to itself.

    deaf: the broker refused its subscription, or the connection was lost.
    """

    transport: MqttTransport
    own: str
    heard: set[bytes] = field(default_factory=set)
    topics: list[str] = field(default_factory=list)
    deaf: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        try:
            async for inbound in self.transport.arriving():
                self.heard.add(inbound.payload)
                self.topics.append(inbound.topic)
                self._news.set()
        except ConnectionLost:
            self.deaf = True
            self._news.set()

    async def hears(self, token: bytes, seconds: float = ANSWER_SECONDS) -> bool:
        """Return True if `token` arrives in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while token not in self.heard and not self.deaf:
                    self._news.clear()
                    await self._news.wait()
        return token in self.heard

    async def settled(self) -> None:
        """Wait until earlier payloads have arrived, if they arrive at all. Raise BrokerError."""
        if self.deaf:
            return
        await self.transport.publish(self.own, fence := _token())
        if not await self.hears(fence) and not self.deaf:
            raise BrokerError(f"a message published to {self.own} did not arrive. Try again.")
        await asyncio.sleep(SETTLE_SECONDS)


def beside(agent: Credentials, *, keep: bool = False) -> Login:
    """Return the login for a connection of `agent` beside its real ones."""
    return Login(anybody(), keep, agent.user, agent.password)


def anybody() -> str:
    """Return a client id that nobody has."""
    return f"relay-{secrets.token_hex(16)}"


def _token() -> bytes:
    return f"relay doctor {secrets.token_hex(8)}".encode()
