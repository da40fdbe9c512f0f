"""`relay doctor --broker`: tries out what a broker lets one agent do to another."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import secrets
from collections.abc import Sequence

from relay.errors import BrokerError
from relay.transport.attack import ANSWER_SECONDS, Attack, anybody, beside
from relay.transport.credentials import Credentials, Login, for_endpoint
from relay.transport.endpoint import Endpoint
from relay.transport.mqtt import MqttTransport
from relay.transport.probe_result import ADVICE, CLAIMS, Finding, ProbeResult
from relay.transport.raw_login import raw_login

NATS_PORT = 4222
"""The default port on which nats-server listens for NATS clients."""

_SHARED = "all log in as the user in the URL, so each can act as any other. Give every agent its own user."


async def probe(
    endpoint: Endpoint, agents: Sequence[Credentials], *, native: int = NATS_PORT
) -> list[ProbeResult]:
    """Try everything at `endpoint`; return a row for each claim, the worst that was found.

    agents: two or more with logins of their own, who attack each other; agents of different teams also try to
            reach the other team. Ignored if the URL has a login, which all share.
    native: the port for NATS clients.
    Raise BrokerError if the broker cannot be reached or refuses a login.
    """
    if endpoint.user is not None:
        await _reach(endpoint, Login(anybody(), user=endpoint.user, password=endpoint.password))
        found = [ProbeResult(key, Finding.BROKEN, _SHARED) for key in ADVICE if key != "own"]
    elif len(agents) < 2:
        raise BrokerError("it takes two agents to see what one may do to the other. Name two.")
    else:
        found = []
        for agent in agents:
            await _reach(endpoint, beside(agent))
        try:
            async with asyncio.TaskGroup() as tasks:
                attacks = [
                    tasks.create_task(Attack(endpoint, attacker, victim).rows())
                    for attacker, victim in zip(agents, (*agents[1:], agents[0]), strict=True)
                ]
        except* BrokerError as group:
            raise group.exceptions[0] from None
        found += [row for attack in attacks for row in attack.result()]
    found += [await _anonymous(endpoint), _encrypted(endpoint), await _native(endpoint, agents, native)]
    if not any(row.key == "team" for row in found):
        found.append(
            ProbeResult("team", Finding.UNPROVED, "all these agents are of one team; name one of another.")
        )
    worst = [Finding.BROKEN, Finding.UNPROVED, Finding.HOLDS]
    rows = []
    for key in CLAIMS:
        tried = sorted((row for row in found if row.key == key), key=lambda row: worst.index(row.status))
        rows += tried[:1]
    return rows


async def _anonymous(endpoint: Endpoint) -> ProbeResult:
    for what, user, password in (
        ("without user and password", None, None),
        ("with a user that nobody has", f"nobody-{secrets.token_hex(4)}", secrets.token_hex(8)),
    ):
        async with raw_login(endpoint, Login(anybody(), user=user, password=password)) as welcome:
            if welcome:
                advice = "In Mosquitto: allow_anonymous false, and a password_file."
                return ProbeResult("anonymous", Finding.BROKEN, f"a login {what} is accepted. {advice}")
    return ProbeResult(
        "anonymous", Finding.HOLDS, "logins without a user and with an unknown one are refused."
    )


def _encrypted(endpoint: Endpoint) -> ProbeResult:
    if endpoint.tls:
        return ProbeResult("tls", Finding.HOLDS, "TLS, and the certificate was verified for this host.")
    loopback = endpoint.host == "localhost"
    with contextlib.suppress(ValueError):  # a host's name
        loopback = loopback or ipaddress.ip_address(endpoint.host).is_loopback
    if loopback:
        return ProbeResult("tls", Finding.HOLDS, "it never leaves this machine (loopback).")
    return ProbeResult("tls", Finding.BROKEN, "passwords and messages travel in the clear. Use mqtts://.")


async def _native(endpoint: Endpoint, agents: Sequence[Credentials], port: int) -> ProbeResult:
    """Try the port for NATS clients (https://docs.nats.io/reference/reference-protocols/nats-protocol)."""
    logins = [for_endpoint(endpoint, agent) for agent in agents]
    users = {(None, None), *((login.user, login.password) for login in logins)}
    if endpoint.user is not None:
        users.add((endpoint.user, endpoint.password))
    for user, password in users:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await _nats_login(endpoint.host, port, user, password)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return ProbeResult("native", Finding.HOLDS, f"nothing answers as NATS at port {port}.")
        if b"PONG" in answer:
            who = "anybody" if user is None else user
            return ProbeResult(
                "native",
                Finding.BROKEN,
                f"port {port} lets {who} in, past the rights on topics. "
                'Give every user allowed_connection_types: ["MQTT"].',
            )
    return ProbeResult("native", Finding.HOLDS, f"port {port} refuses them all.")


async def _nats_login(host: str, port: int, user: str | None, password: str | None) -> bytes:
    """Return the answer of a NATS server to CONNECT and PING. Raise ValueError if it is none."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        if not (await reader.readline()).startswith(b"INFO "):
            raise ValueError(f"no NATS server at port {port}")
        login = {} if user is None else {"user": user, "pass": password}
        options = {"verbose": False, "pedantic": False} | login
        writer.write(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        return await reader.readline()
    finally:
        writer.transport.abort()


async def _reach(endpoint: Endpoint, login: Login) -> None:
    transport = MqttTransport(endpoint, login)
    await transport.connect()
    transport.close()
