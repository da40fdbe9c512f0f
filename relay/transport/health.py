"""Checks whether a broker works: an agent connects and messages itself; each step is a row of `relay doctor`.

Several addresses must lead to one bus: messages published at the first arrive at all the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from relay.errors import BrokerError
from relay.transport import mqtt
from relay.transport.credentials import Credentials
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import LoginRefused, connected
from relay.transport.probe_result import Finding, ProbeResult
from relay.transport.visitor import Ear, beside, hearing, token

ARRIVE_SECONDS = 5.0
"""Seconds that a message may take from an agent to itself."""

_STEPS = {
    "reach": "something is listening.",
    "login": "it answers and accepts the login.",
    "subscribe": "an agent may subscribe to its inbox.",
    "passes": "published messages are acknowledged and arrive.",
}
_STUCK = (
    "If it is a broker, it hangs, its storage is full or broken, or its cluster has no majority: check its "
    "log and its disk."
)


async def examine(endpoint: Endpoint, agent: Credentials) -> list[ProbeResult]:
    """Return a row for each step; the steps after a failure cannot be proved."""
    done, failed = list[str](), list[ProbeResult]()
    try:
        await _reach(endpoint)
        done.append("reach")
        async with connected(endpoint, beside(endpoint, agent)) as transport:
            done.append("login")
            async with hearing(transport, agent) as ear:
                done.append("subscribe")
                if not await _passes(ear, ear):
                    why = f"it accepts a message, but does not deliver it within {ARRIVE_SECONDS:.0f} s."
                    raise BrokerError(f"{why} Check its access list.")
                done.append("passes")
    except BrokerError as error:
        failed.append(_failure([*_STEPS][len(done)], error))
    known = {*done, *(row.key for row in failed)}
    return [
        *(ProbeResult(key, Finding.HOLDS, _STEPS[key]) for key in done),
        *failed,
        *(
            ProbeResult(key, Finding.UNPROVED, "an earlier check fails.")
            for key in _STEPS
            if key not in known
        ),
    ]


def _failure(key: str, error: BrokerError) -> ProbeResult:
    if key == "login" and "certificate" in str(error):
        return ProbeResult("tls", Finding.BROKEN, str(error))
    stuck = key == "passes" or (key == "login" and not isinstance(error, LoginRefused))
    return ProbeResult(key, Finding.BROKEN, f"{error} {_STUCK}" if stuck else str(error))


async def one_bus(working: Sequence[tuple[Endpoint, Credentials]], count: int) -> ProbeResult:
    """Publish at the first address, and listen at each of the others, as the agent of each.

    working: those of the `count` addresses at which a message passes.
    """
    if count == 1:
        status = Finding.HOLDS if working else Finding.UNPROVED
        return ProbeResult("cluster", status, "there is only one address.")
    if len(working) < 2:
        return ProbeResult("cluster", Finding.UNPROVED, f"a message passes at {len(working)} of {count}.")
    first, *others = working
    for endpoint, agent in others:
        try:
            async with _listening(*first) as mouth, _listening(endpoint, agent) as ear:
                if mouth.own != ear.own or not await _passes(mouth, ear):
                    how = f"messages published at {first[0].url} do not arrive at {endpoint.url}"
                    what = "they are different brokers, so agents on one receive nothing from the other."
                    return ProbeResult("cluster", Finding.BROKEN, f"{how}: {what} List the URLs of only one.")
        except BrokerError as error:
            return ProbeResult("cluster", Finding.UNPROVED, str(error))
    if len(working) < count:
        why = f"the {len(working)} that work do. The rows above show what is wrong with the others."
        return ProbeResult("cluster", Finding.UNPROVED, why)
    return ProbeResult("cluster", Finding.HOLDS, "messages published at the first arrive at all the others.")


async def _reach(endpoint: Endpoint) -> None:
    try:
        async with asyncio.timeout(mqtt.CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except TimeoutError:
        why = "the host does not answer. It is off or disconnected, or a firewall drops packets."
        raise BrokerError(f"no connection to the broker at {endpoint.url}: {why}") from None
    except OSError as error:
        why = f"no connection to the broker at {endpoint.url} ({error.strerror or error})."
        raise BrokerError(f"{why} Check the host and port, and that the broker is running.") from None
    writer.transport.abort()


@contextlib.asynccontextmanager
async def _listening(endpoint: Endpoint, agent: Credentials) -> AsyncIterator[Ear]:
    async with connected(endpoint, beside(endpoint, agent)) as transport, hearing(transport, agent) as ear:
        yield ear


async def _passes(mouth: Ear, ear: Ear) -> bool:
    """Return True if what `mouth` publishes arrives at `ear` in time. Raise BrokerError if it is refused."""
    await mouth.transport.publish(ear.own, sent := token())
    return await ear.hears(sent, ARRIVE_SECONDS)
