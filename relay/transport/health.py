"""Checks whether a broker works: an agent connects and messages itself; each step is a row of `relay doctor`.

Several addresses must lead to one bus: messages published at the first arrive at all the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from relay.errors import BrokerError
from relay.transport import mqtt, topics
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import LoginRefused, MqttTransport
from relay.transport.probe_result import Finding, ProbeResult

ARRIVE_SECONDS = 5.0
"""Seconds that a message may take from an agent to itself."""

_STEPS = ("reach", "login", "subscribe", "passes")
_STUCK = (
    "If it is a broker, it hangs, its storage is full or broken, or its cluster has no majority: check its "
    "log and its disk."
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """An agent that tries a broker: its login, and the levels of its team and name."""

    login: Login
    team: str
    name: str

    @property
    def inbox(self) -> str:
        return topics.inbox(self.team, self.name, self.name)


async def examine(endpoint: Endpoint, visitor: Visitor) -> list[ProbeResult]:
    """Return a row for each step; the steps after a failure cannot be proved."""
    found: list[ProbeResult] = []
    try:
        async for key, detail in _steps(endpoint, visitor):
            found.append(ProbeResult(key, Finding.HOLDS, detail))
    except _Failed as failed:
        found.append(ProbeResult(failed.key, Finding.BROKEN, failed.detail))
    known = {row.key for row in found}
    why = "an earlier check fails."
    return found + [ProbeResult(key, Finding.UNPROVED, why) for key in _STEPS if key not in known]


async def one_bus(working: Sequence[tuple[Endpoint, Visitor]], count: int) -> ProbeResult:
    """Publish at the first address, and listen at each of the others, with the visitor of each.

    working: those of the `count` addresses at which a message passes.
    """
    if count == 1:
        status = Finding.HOLDS if working else Finding.UNPROVED
        return ProbeResult("cluster", status, "there is only one address.")
    if len(working) < 2:
        return ProbeResult("cluster", Finding.UNPROVED, f"a message passes at {len(working)} of {count}.")
    first, *others = working
    for endpoint, visitor in others:
        try:
            async with _visit(*first) as mouth, _visit(endpoint, visitor) as ear:
                if visitor.inbox != first[1].inbox or not await _passes(mouth, ear, visitor.inbox):
                    how = f"messages published at {first[0].url} do not arrive at {endpoint.url}"
                    what = "they are different brokers, so agents on one receive nothing from the other."
                    return ProbeResult("cluster", Finding.BROKEN, f"{how}: {what} List the URLs of only one.")
        except BrokerError as error:
            return ProbeResult("cluster", Finding.UNPROVED, str(error))
    if len(working) < count:
        why = f"the {len(working)} that work do. The rows above show what is wrong with the others."
        return ProbeResult("cluster", Finding.UNPROVED, why)
    return ProbeResult("cluster", Finding.HOLDS, "messages published at the first arrive at all the others.")


class _Failed(Exception):
    def __init__(self, key: str, detail: str) -> None:
        super().__init__(detail)
        self.key = key
        self.detail = detail


async def _steps(endpoint: Endpoint, visitor: Visitor) -> AsyncIterator[tuple[str, str]]:
    """Yield the completed steps, and their findings. Raise _Failed."""
    await _reach(endpoint)
    yield "reach", "something is listening."
    transport = MqttTransport(endpoint, visitor.login)
    try:
        await transport.connect()
    except LoginRefused as error:
        raise _Failed("login", str(error)) from None
    except BrokerError as error:
        if "certificate" in str(error):
            raise _Failed("tls", str(error)) from None
        raise _Failed("login", f"{error} {_STUCK}") from None
    with contextlib.closing(transport):
        yield "login", "it answers and accepts the login."
        try:
            await transport.subscribe(topics.inbox_filter(visitor.team, visitor.name), 1, insist=True)
        except BrokerError as error:
            raise _Failed("subscribe", str(error)) from None
        yield "subscribe", "an agent may subscribe to its inbox."
        try:
            if not await _passes(transport, transport, visitor.inbox):
                why = f"it accepts a message, but does not deliver it within {ARRIVE_SECONDS:.0f} s."
                raise _Failed("passes", f"{why} Check its access list. {_STUCK}")
        except BrokerError as error:
            raise _Failed("passes", f"{error} {_STUCK}") from None
        yield "passes", "published messages are acknowledged and arrive."


async def _reach(endpoint: Endpoint) -> None:
    try:
        async with asyncio.timeout(mqtt.CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except TimeoutError:
        why = "the host does not answer. It is off or disconnected, or a firewall drops packets."
        raise _Failed("reach", f"no connection to the broker at {endpoint.url}: {why}") from None
    except OSError as error:
        why = f"no connection to the broker at {endpoint.url} ({error.strerror or error})."
        raise _Failed("reach", f"{why} Check the host and port, and that the broker is running.") from None
    writer.transport.abort()


@contextlib.asynccontextmanager
async def _visit(endpoint: Endpoint, visitor: Visitor) -> AsyncIterator[MqttTransport]:
    transport = MqttTransport(endpoint, visitor.login)
    await transport.connect()
    with contextlib.closing(transport):
        await transport.subscribe(topics.inbox_filter(visitor.team, visitor.name), 1, insist=True)
        yield transport


async def _passes(mouth: MqttTransport, ear: MqttTransport, topic: str) -> bool:
    """Return True if what `mouth` publishes arrives at `ear` in time. Raise BrokerError if it is refused.

    topic: the one to which `ear` has subscribed.
    """
    token = f"relay doctor {secrets.token_hex(8)}".encode()

    async def arrives() -> None:
        async for inbound in ear.arriving():
            if inbound.payload == token:
                return

    arriving = asyncio.create_task(arrives())
    try:
        await mouth.publish(topic, token)
        async with asyncio.timeout(ARRIVE_SECONDS):
            await arriving
    except TimeoutError:
        return False
    finally:
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    return True
