"""`relay doctor --broker`: tests what a broker lets one agent do to another."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import replace

from relay.errors import BrokerError
from relay.names import DEFAULT_TEAM
from relay.transport import nats_streams, topics
from relay.transport.attack import Attack
from relay.transport.credentials import Credentials, Login, anybody, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.health import examine, one_bus
from relay.transport.probe_result import ADVICE, CLAIMS, Finding, ProbeResult
from relay.transport.visitor import ANSWER_SECONDS, accepts

NATS_PORT = 4222
"""The default port on which nats-server listens for NATS clients."""

_SHARED = (
    "all log in as the user in the URL, so each can impersonate the others. Give every agent its own user."
)
_FAILS = "the broker does not work."


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
    found.append(await one_bus(working, len(endpoints)))
    if not any(row.key == "team" for row in found):
        one_team = "all these agents are in one team; add one of another team."
        found.append(ProbeResult("team", Finding.UNPROVED, one_team))
    worst = [Finding.BROKEN, Finding.UNPROVED, Finding.HOLDS]
    found.sort(key=lambda row: worst.index(row.status))
    first = {row.key: row for row in reversed(found)}
    return [first[key] for key in CLAIMS if key in first]


async def _node(endpoint: Endpoint, agents: Sequence[Credentials], native: int) -> list[ProbeResult]:
    """Return the rows of one address, some of them several times."""
    if endpoint.user is None and len(agents) < 2:
        raise BrokerError("this test needs two agents. Name two.")
    found = [row for rows in [await examine(endpoint, each) for each in agents] for row in rows]
    broken = {row.key for row in found if row.status is Finding.BROKEN}
    others = [key for key in CLAIMS if key not in {"cluster", *(row.key for row in found)}]
    unproved = [ProbeResult(key, Finding.UNPROVED, _FAILS) for key in others]
    if broken & {"reach", "login", "tls"}:
        return found + unproved
    if endpoint.user is not None:
        found += [ProbeResult(key, Finding.BROKEN, _SHARED) for key in ADVICE if key != "own"]
    else:
        try:
            found += await _attacks(endpoint, agents)
        except BrokerError:
            if not broken:
                raise
            return found + unproved
    return [
        *found,
        await _anonymous(endpoint),
        _encrypted(endpoint),
        await _native(endpoint, agents, native),
    ]


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
    for user, password in {(None, None), *((login.user, login.password) for login in logins)}:
        try:
            admitted = await asyncio.to_thread(
                nats_streams.admits, endpoint.host, port, user, password, ANSWER_SECONDS
            )
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
