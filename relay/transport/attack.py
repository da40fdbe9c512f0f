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

from relay.dataclass import replace
from relay.errors import BrokerError
from relay.transport import topics
from relay.transport.credentials import Credentials, Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import ConnectionLost, MqttTransport, connected
from relay.transport.probe_result import ADVICE, Finding, ProbeResult, unproved
from relay.transport.visitor import Ear, accepts, beside, hearing, token

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
            others = (key for key in ADVICE if key != "team")
            why = f"{self._who}: even what they must be able to do fails."
            return [own, *unproved(others, [own], why)]
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

    async def _forge(self, key: str, *forged: str) -> ProbeResult:
        """Publish to forbidden topics; nothing must reach the victim."""
        async with self._ear(self._victim) as ear:
            for topic in forged:
                sent = token()
                async with self._mouth(self._attacker) as mouth:
                    with contextlib.suppress(ConnectionLost):  # how some brokers refuse
                        await mouth.publish(topic, sent)
                await ear.settled()
                if sent in ear.heard:
                    return self._broken(key, f"it published to {topic}")
        return self._held(key, "what it published did not arrive")

    async def _will(self, *forged: str) -> ProbeResult:
        async with self._ear(self._victim) as ear:
            tokens = {topic: token() for topic in forged}
            for will in tokens.items():  # refused because of its will, or accepted and published
                login = replace(beside(self._endpoint, self._attacker), farewell=will, retained=False)
                await accepts(self._endpoint, login)
            await ear.settled()
            await asyncio.sleep(_WILL_SECONDS)
            for topic, sent in tokens.items():
                if sent in ear.heard:
                    return self._broken("will", f"its will went to {topic}")
        return self._held("will", "its will was not published")

    async def _overhear(self, key: str, published: Sequence[str], *filters: str) -> ProbeResult:
        """Subscribe to forbidden topics; nothing must arrive."""
        sent = token()
        async with contextlib.AsyncExitStack() as stack:
            # One connection for each filter: a broker may close it because of a forbidden filter.
            ears = [await stack.enter_async_context(self._ear(self._attacker)) for _ in filters]
            for ear, each in zip(ears, filters, strict=True):
                try:
                    await ear.transport.subscribe(each, 0)
                except BrokerError:
                    ear.deaf = True
            mouth = await stack.enter_async_context(self._mouth(self._victim))
            for topic in published:
                await mouth.publish(topic, sent)
            await asyncio.gather(*(ear.settled() for ear in ears))
            for ear, each in zip(ears, filters, strict=True):
                if sent in ear.heard:
                    return self._broken(key, f"it received the other's messages by {each}")
                if internal := [topic for topic in ear.topics if topic.startswith(("$", "_"))]:
                    return self._broken("internals", f"it received {internal[0]} by {each}")
        return self._held(key, "it subscribed, but received nothing")

    async def _session(self) -> ProbeResult:
        """Leave mail in a mailbox of the victim, and try to wipe it with what the attacker can know."""
        name, user = self._victim.name, self._victim.user
        mailbox = beside(self._endpoint, self._victim, keep=True)
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
            await accepts(self._endpoint, replace(mailbox, keep=False))  # which deletes the mailbox

    async def _survives(self, mailbox: Login, *guesses: str) -> bool:
        """Return True if mail for `mailbox` survives the attacker's logins with `guesses`."""
        sent = token()
        async with self._ear(self._victim, mailbox):
            pass
        async with self._mouth(self._victim) as mouth:
            await mouth.publish(self._own_inbox, sent)
        for client_id in guesses:
            login = replace(beside(self._endpoint, self._attacker), client_id=client_id)
            await accepts(self._endpoint, login)
        async with self._ear(self._victim, mailbox) as ear:
            await ear.settled()  # queued mail arrives before new mail
            return sent in ear.heard

    async def _other_team(self) -> ProbeResult:
        team, name, own = self._victim.team, self._victim.name, self._attacker.name
        forged = await self._forge("team", topics.inbox(team, name, own), topics.presence(team, own))
        if forged.status is not Finding.HOLDS:
            return forged
        filters = topics.presence_filter(team), topics.presence_filter("+"), topics.inbox_filter(team, name)
        return await self._overhear("team", (self._own_inbox, topics.presence(team, name)), *filters)

    def _mouth(self, agent: Credentials) -> contextlib.AbstractAsyncContextManager[MqttTransport]:
        return connected(self._endpoint, beside(self._endpoint, agent))

    @contextlib.asynccontextmanager
    async def _ear(self, agent: Credentials, mailbox: Login | None = None) -> AsyncIterator[Ear]:
        """Yield a connection of `agent` that listens to its inbox and its team's presence."""
        login, presences = mailbox or beside(self._endpoint, agent), topics.presence_filter(agent.team)
        async with connected(self._endpoint, login) as mouth, hearing(mouth, agent, presences) as ear:
            yield ear

    def _broken(self, key: str, how: str) -> ProbeResult:
        return ProbeResult(key, Finding.BROKEN, f"{self._who}: {how}. {ADVICE[key]}")

    def _held(self, key: str, how: str) -> ProbeResult:
        return ProbeResult(key, Finding.HOLDS, f"{self._who}: {how}.")
