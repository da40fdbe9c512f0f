"""`relay doctor --broker`: tests whether a broker works, and what it lets one agent do to another.

An agent connects and messages itself; then agents attack each other.  Several addresses must lead to one bus:
messages published at the first arrive at all the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
from collections.abc import Sequence

from relay.dataclass import replace
from relay.errors import BrokerError
from relay.names import DEFAULT_TEAM
from relay.transport import mqtt, nats_streams, topics
from relay.transport.attack import Attack, Ear, beside, hearing, listening, token
from relay.transport.credentials import Credentials, Login, anybody, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import LoginRefused, accepts, connected
from relay.transport.probe_result import ADVICE, CLAIMS, Finding, ProbeResult, unproved

NATS_PORT = 4222
"""The default port on which nats-server listens for NATS clients."""

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

_SHARED = (
    "all log in as the user in the URL, so each can impersonate the others. Give every agent its own user."
)


async def probe(
    endpoints: Sequence[Endpoint], agents: Sequence[Credentials], *, native: int = NATS_PORT
) -> list[ProbeResult]:
    """Try everything at each of `endpoints`; return the worst finding for each claim, as a row.

    agents: two or more with their own logins, who attack each other; agents of different teams also try to
            reach the other team. Ignored if the URL has a login, which all share.
    native: the port for NATS clients.
    Raise BrokerError if there are too few agents, or the broker goes away meanwhile.
    """
    found: list[ProbeResult] = []
    working: list[tuple[Endpoint, Credentials]] = []
    nobody = Credentials(topics.level(DEFAULT_TEAM), "doctor", "")
    for endpoint in endpoints:
        # The user in a URL logs in whatever the agent is called.
        visitors = agents if endpoint.user is None else (*agents, nobody)[:1]
        rows = await _node(endpoint, visitors, native)
        if all(row.status is Finding.HOLDS for row in rows if row.key == "passes"):
            working.append((endpoint, visitors[0]))
        if len(endpoints) > 1:
            rows = [row if row.status is Finding.HOLDS else _at(endpoint, row) for row in rows]
        found += rows
    found.append(await _one_bus(working, len(endpoints)))
    found += unproved(["team"], found, "all these agents are in one team; add one of another team.")
    worst = [Finding.BROKEN, Finding.UNPROVED, Finding.HOLDS]
    found.sort(key=lambda row: worst.index(row.status))
    first = {row.key: row for row in reversed(found)}
    return [first[key] for key in CLAIMS if key in first]


async def _node(endpoint: Endpoint, agents: Sequence[Credentials], native: int) -> list[ProbeResult]:
    """Return the rows of one address, some of them several times."""
    if endpoint.user is None and len(agents) < 2:
        raise BrokerError("this test needs two agents. Name two.")
    found = [row for rows in [await _examine(endpoint, each) for each in agents] for row in rows]
    broken = {row.key for row in found if row.status is Finding.BROKEN}
    others = unproved((key for key in CLAIMS if key != "cluster"), found, "the broker does not work.")
    if broken & {"reach", "login", "tls"}:
        return found + others
    if endpoint.user is not None:
        found += [ProbeResult(key, Finding.BROKEN, _SHARED) for key in ADVICE if key != "own"]
    else:
        try:
            found += await _attacks(endpoint, agents)
        except BrokerError:
            if not broken:
                raise
            return found + others
    return [
        *found,
        await _anonymous(endpoint),
        _encrypted(endpoint),
        await _native(endpoint, agents, native),
    ]


async def _examine(endpoint: Endpoint, agent: Credentials) -> list[ProbeResult]:
    """Return a row for each step; the steps after a failure cannot be proved."""
    rows: list[ProbeResult] = []

    def done() -> None:
        step = [*_STEPS][len(rows)]
        rows.append(ProbeResult(step, Finding.HOLDS, _STEPS[step]))

    try:
        await _reach(endpoint)
        done()
        async with connected(endpoint, beside(endpoint, agent)) as transport:
            done()
            async with hearing(transport, agent) as ear:
                done()
                if not await _passes(ear, ear):
                    why = f"it accepts a message, but does not deliver it within {ARRIVE_SECONDS:.0f} s."
                    raise BrokerError(f"{why} Check its access list.")
                done()
    except BrokerError as error:
        rows.append(_failure([*_STEPS][len(rows)], error))
    return rows + unproved(_STEPS, rows, "an earlier check fails.")


def _failure(key: str, error: BrokerError) -> ProbeResult:
    if key == "login" and "certificate" in str(error):
        return ProbeResult("tls", Finding.BROKEN, str(error))
    stuck = key == "passes" or (key == "login" and not isinstance(error, LoginRefused))
    return ProbeResult(key, Finding.BROKEN, f"{error} {_STUCK}" if stuck else str(error))


async def _one_bus(working: Sequence[tuple[Endpoint, Credentials]], count: int) -> ProbeResult:
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
            async with listening(*first) as mouth, listening(endpoint, agent) as ear:
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


async def _passes(mouth: Ear, ear: Ear) -> bool:
    """Return True if what `mouth` publishes arrives at `ear` in time. Raise BrokerError if it is refused."""
    await mouth.transport.publish(ear.own, sent := token())
    return await ear.hears(sent, ARRIVE_SECONDS)


async def _attacks(endpoint: Endpoint, agents: Sequence[Credentials]) -> list[ProbeResult]:
    try:
        async with asyncio.TaskGroup() as tasks:
            attacks = [
                tasks.create_task(Attack(endpoint, attacker, victim).rows())
                for attacker, victim in zip(agents, (*agents[1:], agents[0]), strict=True)
            ]
    except* BrokerError as group:
        raise group.exceptions[0] from None
    return [row for attack in attacks for row in attack.result()]


def _at(endpoint: Endpoint, row: ProbeResult) -> ProbeResult:
    return replace(row, detail=row.detail if endpoint.url in row.detail else f"{endpoint.url}: {row.detail}")


async def _anonymous(endpoint: Endpoint) -> ProbeResult:
    for what, user, password in (
        ("without user and password", None, None),
        ("with an unknown user", f"nobody-{secrets.token_hex(4)}", secrets.token_hex(8)),
    ):
        if await accepts(endpoint, Login(anybody(), user=user, password=password)):
            advice = "In Mosquitto: allow_anonymous false, and a password_file."
            return ProbeResult("anonymous", Finding.BROKEN, f"a login {what} is accepted. {advice}")
    return ProbeResult(
        "anonymous", Finding.HOLDS, "logins without a user or with an unknown user are refused."
    )


def _encrypted(endpoint: Endpoint) -> ProbeResult:
    if endpoint.tls:
        return ProbeResult("tls", Finding.HOLDS, "TLS, with a certificate verified for this host.")
    loopback = endpoint.host == "localhost"
    with contextlib.suppress(ValueError):  # a host name
        loopback = loopback or ipaddress.ip_address(endpoint.host).is_loopback
    if loopback:
        return ProbeResult("tls", Finding.HOLDS, "traffic never leaves this machine (loopback).")
    return ProbeResult("tls", Finding.BROKEN, "passwords and messages are sent unencrypted. Use mqtts://.")


async def _native(endpoint: Endpoint, agents: Sequence[Credentials], port: int) -> ProbeResult:
    """Try the port for NATS clients."""
    logins = [for_endpoint(endpoint, agent) for agent in agents]
    address = endpoint.host, port
    for user, password in {(None, None), *((login.user, login.password) for login in logins)}:
        try:
            admitted = await asyncio.to_thread(nats_streams.admits, address, (user, password), ARRIVE_SECONDS)
        except (OSError, ValueError):
            return ProbeResult("native", Finding.HOLDS, f"nothing answers as NATS at port {port}.")
        if admitted:
            who = "anybody" if user is None else user
            return ProbeResult(
                "native",
                Finding.BROKEN,
                f"port {port} lets {who} in, bypassing the topic rights. "
                'Give every user allowed_connection_types: ["MQTT"].',
            )
    return ProbeResult("native", Finding.HOLDS, f"port {port} refuses them all.")
