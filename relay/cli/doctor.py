"""Check that everything relay needs is here, or what a broker lets agents do to each other.

Without --broker: this machine and this home. With it: attacks on that broker, made with agents' own
credentials, one row for each thing that nobody may do. The embedded broker is tried with agents made for it.
On a broker of your own name two or more that it knows (of different teams, if there are): they attack each
other, and what real agents hear of it they ignore. It also looks whether port 4222 of that host, for NATS
clients, lets them in.

  relay doctor
  relay doctor --broker
  relay doctor --broker mqtts://broker.example.org --as Alice --as Bob --as web/Carol

The exit code is 1 if anything fails or does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay import names, settings
from relay.cli.arguments import add_json
from relay.cli.output import print_json, table
from relay.control import guard
from relay.doctor import CheckResult, all_checks
from relay.errors import BrokerError, UsageError
from relay.home import Home
from relay.text import visible
from relay.transport import broker
from relay.transport.broker import Endpoint
from relay.transport.credentials import Credentials

_CONFIGURED = ""  # what --broker without a URL stands for


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker",
        nargs="?",
        const=_CONFIGURED,
        metavar="URL",
        help="try this broker instead; without URL: the one in relay.toml, else the embedded one",
    )
    parser.add_argument(
        "--as",
        dest="agents",
        action="append",
        default=[],
        metavar="[TEAM/]NAME",
        help="with --broker: use the credentials of this agent; give it twice or more",
    )
    add_json(parser, "print JSON")


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the answer. bad: the user should do something about it."""

    name: str
    result: str
    detail: str
    bad: bool


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if args.broker is None:
        if args.agents:
            raise UsageError("--as says who tries the broker: it needs --broker.")
        lines = [
            _Line(check.name, check.result, check.detail, check.result is CheckResult.FAIL)
            for check in all_checks(home, Path.cwd())
        ]
    else:
        guard.person_only(home, "doctor", "an agent may not try the broker. The person can.")
        lines = _try_broker(home.ensure(), args.broker, args.agents)
    bad = sum(line.bad for line in lines)
    if args.json:
        keys = ("name", "result", "detail")
        print_json([{key: getattr(line, key) for key in keys} for line in lines])
    else:
        rows = [(line.result, f"{visible(line.name)}: {visible(line.detail)}") for line in lines]
        print("\n".join(table(rows)))
        print(f"\n{bad} of {len(lines)} to be mended." if bad else "\nNothing is to be mended.")
    return 1 if bad else 0


def _try_broker(home: Home, url: str, agents: list[str]) -> list[_Line]:
    from relay.transport.probe import NATS_PORT, probe  # loads the MQTT client
    from relay.transport.probe_result import Verdict

    url = url or settings.load(home, Path.cwd(), lambda _: False)[0].broker
    with _tried(home, url, agents) as (endpoint, credentials):
        native = (broker.native_port(home) if endpoint.kind == "embedded" else None) or NATS_PORT
        rows = asyncio.run(probe(endpoint, credentials, native=native))
    return [_Line(row.claim, row.verdict, row.detail, row.verdict is Verdict.BROKEN) for row in rows]


@contextlib.contextmanager
def _tried(home: Home, url: str, agents: list[str]) -> Iterator[tuple[Endpoint, list[Credentials]]]:
    """Yield the broker and the credentials with which to try it."""
    if url:
        endpoint = broker.external(url)
        if endpoint.user is None and len(agents) < 2:
            raise UsageError(
                f"to try {endpoint.url}, name two agents or more that it knows, and whose credentials this "
                "home has: --as Alice --as Bob. `relay broker acl` makes them, for both."
            )
        yield endpoint, _credentials(home, agents)
    elif agents:
        with broker.use(home):
            found = _credentials(home, agents)
            yield [broker.admit(home, each.team, each.name)[0] for each in found][-1], found
    else:
        team = f"doctor-{secrets.token_hex(4)}"
        made = [(team, "one"), (team, "two"), (f"{team}-b", "three")]
        with broker.use(home):
            try:
                admitted = [broker.admit(home, *each) for each in made]
                yield admitted[-1][0], [credentials for _, credentials in admitted]
            finally:
                for each in made:
                    broker.dismiss(home, *each)


def _credentials(home: Home, agents: list[str]) -> list[Credentials]:
    """Return the credentials of agents that are named like `Alice` or `web/Alice`."""
    found = []
    for text in agents:
        team, slash, name = text.rpartition("/")
        team = names.validate(team if slash else names.DEFAULT_TEAM, "team")
        credentials = broker.known_credentials(home, team, name)
        if credentials is None:
            raise BrokerError(
                f"this home has no credentials of {name!a} in team {team!a}. Make them with "
                "`relay broker acl`, or take them from another home with `relay broker credentials`."
            )
        if credentials in found:
            raise UsageError(
                f"{name!a} is named twice, and what it may do to itself says nothing. Name another."
            )
        found.append(credentials)
    return found
