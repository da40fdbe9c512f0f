"""Attacks by one agent on another over a real broker, which must stop them.

Each attack uses one agent's own credentials against another's mail or presence, and is judged by its effect:
a broker's acknowledgement proves nothing (nats-server acknowledges a forbidden publish, Mosquitto grants any
subscription).  Afterwards the listener sends something to itself; once that has arrived, the payloads of the
attacks would have arrived, too.

Nothing is left behind: no payload is retained, and the one kept session is wiped again.  Real agents that
receive the payloads ignore them as foreign.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from relay.dataclass import dataclass, field, replace
from relay.errors import BrokerError
from relay.transport import topics
from relay.transport.credentials import Credentials, Login, anybody, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import ConnectionLost, MqttTransport, accepts, connected
from relay.transport.probe_result import ADVICE, Finding, ProbeResult, unproved

SETTLE_SECONDS = 0.2
"""Extra seconds to wait: a cluster may deliver an earlier message later."""

_ANSWER_SECONDS = 15.0
_WILL_SECONDS = 0.5  # for a broker to notice that a connection broke
_MAIL_SECONDS = 2.0  # for what was published to arrive


def beside(endpoint: Endpoint, agent: Credentials, *, keep: bool = False) -> Login:
    """Return the login for a connection of `agent` beside its real ones."""
    return replace(for_endpoint(endpoint, agent), client_id=anybody(), keep=keep)


def token() -> bytes:
    """Return a payload that nobody else publishes; agents ignore it as foreign."""
    return f"relay doctor {secrets.token_hex(8)}".encode()


@dataclass(eq=False, slots=True)
class Ear:
    """The payloads and topics that one connection receives. own: the topic on which it publishes to itself.

    deaf: the broker refused a subscription, or the connection was lost.
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

    async def hears(self, token: bytes, seconds: float) -> bool:
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
        await self.transport.publish(self.own, fence := token())
        if not await self.hears(fence, _ANSWER_SECONDS) and not self.deaf:
            raise BrokerError(f"a message published to {self.own} did not arrive. Try again.")
        await asyncio.sleep(SETTLE_SECONDS)


@contextlib.asynccontextmanager
async def listening(endpoint: Endpoint, agent: Credentials, login: Login | None = None) -> AsyncIterator[Ear]:
    """Yield a connection of `agent` that listens to its inbox and its team's presence. Raise BrokerError.

    login: of the connection; by default, one beside its real ones.
    """
    presences = topics.presence_filter(agent.team)
    async with (
        connected(endpoint, login or beside(endpoint, agent)) as transport,
        hearing(transport, agent, presences) as ear,
    ):
        yield ear


@contextlib.asynccontextmanager
async def hearing(transport: MqttTransport, agent: Credentials, *presences: str) -> AsyncIterator[Ear]:
    """Listen over `transport` to the inbox of `agent`, and to `presences`. Raise BrokerError."""
    ear = Ear(transport, topics.inbox(agent.team, agent.name, agent.name))
    await transport.subscribe(topics.inbox_filter(agent.team, agent.name), 1, insist=True)
    for filter in presences:
        await transport.subscribe(filter, 0)
    listening = asyncio.create_task(ear.listen())
    try:
        yield ear
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


class Attack:
    """The attacks of `attacker` on `victim`."""

    def __init__(self, endpoint: Endpoint, attacker: Credentials, victim: Credentials) -> None:
        self._endpoint = endpoint
        self._attacker = attacker
        self._victim = victim
        self._inbox = topics.inbox(victim.team, victim.name, victim.name)
        self._presence = topics.presence(victim.team, victim.name)
        self._who = f"{attacker.user} against {victim.user}"
        self._done: dict[str, str] = {}  # the attacks that succeeded, by key, and how

    async def rows(self) -> list[ProbeResult]:
        """Try everything; return a row for each key of ADVICE ("team" only if their teams differ)."""
        keys = [key for key in ADVICE if key != "team" or self._attacker.team != self._victim.team]
        own = await self._own()
        if own.status is not Finding.HOLDS:
            return [own, *unproved(keys, [own], f"{self._who}: even what they must be able to do fails.")]
        await self._forge()
        await self._overhear()
        rows = [own]
        if not await self._wipe():
            why = "the broker keeps no messages for absent agents. relay publishes them again, after a while."
            rows.append(ProbeResult("session", Finding.UNPROVED, why))
        rows += [
            ProbeResult(key, Finding.BROKEN, f"{self._who}: {how}. {ADVICE[key]}")
            for key, how in self._done.items()
        ]
        known = {row.key for row in rows}
        held = f"{self._who}: every attempt failed."
        return [*rows, *(ProbeResult(key, Finding.HOLDS, held) for key in keys if key not in known)]

    async def _own(self) -> ProbeResult:
        """Try what both must be able to do; otherwise the other rows mean nothing."""
        pairs = [(self._victim, self._victim), (self._attacker, self._attacker)]
        if self._victim.team == self._attacker.team:
            pairs.append((self._attacker, self._victim))
        for sender, receiver in pairs:
            inbox = topics.inbox(receiver.team, receiver.name, sender.name)
            try:
                async with self._ear(receiver) as ear, self._mouth(sender) as mouth:
                    for topic in (inbox, topics.presence(sender.team, sender.name)):
                        await mouth.publish(topic, sent := token())
                        if not await ear.hears(sent, _MAIL_SECONDS):
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

    async def _forge(self) -> None:
        """Publish to forbidden topics, and leave wills there; nothing must reach the victim."""
        team, name = self._victim.team, self._victim.name
        forged = [
            ("publish", self._inbox),
            ("publish", topics.inbox(team, name, f"nobody-{secrets.token_hex(4)}")),
            ("presence", self._presence),
        ]
        if team != self._attacker.team:
            own = self._attacker.name
            forged += [("team", topics.inbox(team, name, own)), ("team", topics.presence(team, own))]
        sent: dict[bytes, tuple[str, str]] = {}
        async with self._ear(self._victim) as ear:
            for key, topic in forged:
                sent[payload := token()] = key, f"it published to {topic}"
                async with self._mouth(self._attacker) as mouth:
                    with contextlib.suppress(ConnectionLost):  # how some brokers refuse
                        await mouth.publish(topic, payload)
            for topic in (self._inbox, self._presence):  # refused for its will, or accepted and published
                sent[payload := token()] = "will", f"its will went to {topic}"
                login = beside(self._endpoint, self._attacker)
                await accepts(self._endpoint, replace(login, farewell=(topic, payload), retained=False))
            await asyncio.sleep(_WILL_SECONDS)
            await ear.settled()
            for payload, (key, how) in sent.items():
                if payload in ear.heard:
                    self._done.setdefault(key, how)

    async def _overhear(self) -> None:
        """Subscribe to forbidden topics; nothing must arrive."""
        team, name = self._victim.team, self._victim.name
        inbox, below = topics.inbox_filter(team, name), f"{topics.ROOT}/{team}"
        every = ("#", "+/#", "relay/#", f"{topics.ROOT}/#", f"{below}/#", f"$share/doctor/{inbox}")
        filters = {
            "inbox": (inbox, self._inbox, f"{below}/agents/{name}/#"),
            "wildcard": (*every, topics.inbox_filter(team, "+"), topics.inbox_filter("+", "+")),
            "internals": ("$SYS/#", "$MQTT/#", "$JS/#", "_INBOX/#"),
        }
        if team != self._attacker.team:
            filters["team"] = (topics.presence_filter(team), topics.presence_filter("+"), inbox)
        async with contextlib.AsyncExitStack() as stack:
            # One connection for each filter: a broker may close it because of a forbidden filter.
            ears: list[tuple[str, str, Ear]] = []
            for key, filter in [(key, each) for key, some in filters.items() for each in some]:
                ear = await stack.enter_async_context(self._ear(self._attacker))
                ears.append((key, filter, ear))
                try:
                    await ear.transport.subscribe(filter, 0)
                except BrokerError:
                    ear.deaf = True
            mouth = await stack.enter_async_context(self._mouth(self._victim))
            await mouth.publish(self._inbox, mail := token())
            await mouth.publish(self._presence, presence := token())
            await asyncio.gather(*(ear.settled() for *_, ear in ears))
            for key, filter, ear in ears:
                if mail in ear.heard or (key == "team" and presence in ear.heard):
                    self._done.setdefault(key, f"it received the other's messages by {filter}")
                if internal := [topic for topic in ear.topics if topic.startswith(("$", "_"))]:
                    self._done.setdefault("internals", f"it received {internal[0]} by {filter}")

    async def _wipe(self) -> bool:
        """Leave mail in a mailbox of the victim, and try to wipe it with what the attacker can know.

        Return False if the broker keeps no mail.
        """
        name, user = self._victim.name, self._victim.user
        mailbox = beside(self._endpoint, self._victim, keep=True)
        try:
            keeps = await self._survives(mailbox)
            if keeps and not await self._survives(mailbox, user, name, f"relay-{name}", f"relay-{user}"):
                self._done["session"] = "it wiped it with a guessable client id"
            return keeps
        finally:
            await accepts(self._endpoint, replace(mailbox, keep=False))  # which deletes the mailbox

    async def _survives(self, mailbox: Login, *guesses: str) -> bool:
        """Return True if mail for `mailbox` survives the attacker's logins with `guesses`."""
        sent = token()
        async with self._ear(self._victim, mailbox):
            pass
        async with self._mouth(self._victim) as mouth:
            await mouth.publish(self._inbox, sent)
        for client_id in guesses:
            login = replace(beside(self._endpoint, self._attacker), client_id=client_id)
            await accepts(self._endpoint, login)
        async with self._ear(self._victim, mailbox) as ear:
            await ear.settled()  # queued mail arrives before new mail
            return sent in ear.heard

    def _mouth(self, agent: Credentials) -> contextlib.AbstractAsyncContextManager[MqttTransport]:
        return connected(self._endpoint, beside(self._endpoint, agent))

    def _ear(
        self, agent: Credentials, mailbox: Login | None = None
    ) -> contextlib.AbstractAsyncContextManager[Ear]:
        return listening(self._endpoint, agent, mailbox)
