"""Check this machine for everything that relay needs, or test what a broker lets agents do to each other.

Without --broker, checks this machine, this home, and whether its running agents' own inboxes are open; none
gets a text. With it, checks step by step whether that broker works, at each of its URLs, and whether these
lead to the same bus; then attacks it with agents' own credentials, one row for each forbidden action. relay
creates the agents that attack the embedded broker.
For your own broker, name at least two agents that it knows, of different teams if possible: they attack each
other, and real agents ignore any traffic they see from it. It also checks whether port 4222 of that host, for
NATS clients, lets them in.

--report prints a report to paste into an issue: versions, the platform, the terminal, the installed agents,
settings that differ from their defaults, failed checks, and the latest problems in the journal. It contains
no paths, no user, host or agent names, no secrets, no messages and no agent output.

  relay doctor
  relay doctor --report
  relay doctor --broker
  relay doctor --broker mqtts://broker.example.org --as Alice --as Bob --as web/Carol

The exit code is 1 if any check fails; with --report it is 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import textwrap
from collections.abc import Iterator
from pathlib import Path

from relay import names, settings
from relay.cli.arguments import add_json, agent_name, team_name
from relay.cli.output import GREEN, RED, YELLOW, print_json, print_table, terminal_columns
from relay.control import guard
from relay.doctor import CheckResult, all_checks
from relay.errors import BrokerError, UsageError
from relay.home import Home
from relay.text import visible
from relay.transport import broker
from relay.transport.credentials import Credentials
from relay.transport.endpoint import Endpoint, endpoints
from relay.transport.probe_result import Finding


def configure(parser: argparse.ArgumentParser) -> None:
    help = (
        "test this broker instead, at each of its URLs (separate them with commas, or repeat --broker); "
        "without URL: the one in relay.toml, else the embedded one"
    )
    parser.add_argument("--broker", nargs="?", const="", action="append", metavar="URL", help=help)
    help = "with --broker: use the credentials of this agent; give at least two"
    parser.add_argument(
        "--as", dest="agents", action="append", default=[], type=_agent, metavar="[TEAM/]NAME", help=help
    )
    parser.add_argument("--report", action="store_true", help="print a report to paste into an issue")
    add_json(parser, "print JSON")


def _agent(text: str) -> tuple[str, str]:
    """Return the team and the name of an agent, given as `Alice` or `web/Alice`. Raise InvalidName."""
    team, slash, name = text.rpartition("/")
    return team_name(team) if slash else names.DEFAULT_TEAM, agent_name(name)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if args.report:
        if args.broker is not None or args.agents:
            raise UsageError("--report covers this machine only: leave out --broker and --as.")
        return _report(home, as_json=args.json)
    if args.broker is None:
        if args.agents:
            raise UsageError("--as needs --broker: it names the agents to test the broker as.")
        found = [(check.name, check.result.value, check.detail) for check in all_checks(home, Path.cwd())]
    else:
        guard.user_only(home, "doctor", "an agent may not test the broker. The user can.")
        from relay.transport.probe import NATS_PORT, probe  # loads the MQTT client

        home = home.ensure()
        urls = ",".join(filter(None, args.broker)) or settings.load(home, Path.cwd())[0].broker
        with _tried(home, urls, args.agents) as (tried, credentials):
            native = (broker.native_port(home) if tried[0].kind == "embedded" else None) or NATS_PORT
            rows = asyncio.run(probe(tried, credentials, native=native))
        found = [(row.claim, row.status.value, row.detail) for row in rows]
    if args.json:
        print_json([dict(zip(("name", "result", "detail"), each, strict=True)) for each in found])
    else:
        _print(found)
    bad = sum(result in {CheckResult.FAIL, Finding.BROKEN} for _, result, _ in found)
    if not args.json:
        print(f"\n{bad} of {len(found)} failed." if bad else "\nNo problems found.")
    return 1 if bad else 0


def _print(found: list[tuple[str, str, str]]) -> None:
    """Print a row for each check. On a terminal, wrap the details of problems at the margin."""
    columns, most = terminal_columns(), max(len(result) for _, result, _ in found)
    rows, colours = [], []
    for name, result, detail in found:
        text = visible(f"{name}: {detail}")
        good = result in {CheckResult.OK, Finding.HOLDS}
        lines = [text]
        if columns is not None and not good:
            lines = textwrap.wrap(text, max(columns - most - 2, 20), break_on_hyphens=False)
        rows += [(result if line is lines[0] else "", line) for line in lines]
        bad = result in {CheckResult.FAIL, Finding.BROKEN}
        colours += [{0: GREEN if good else RED if bad else YELLOW} for _ in lines]
    print_table(rows, colours=colours)


def _report(home: Home, *, as_json: bool) -> int:
    from relay.report import collect  # loads the code that asks agents for their versions

    report = collect(home, Path.cwd(), os.environ)
    if as_json:
        print_json(report.public())
    else:
        print("\n".join(map(visible, report.lines())))
    return 0


@contextlib.contextmanager
def _tried(
    home: Home, urls: str, agents: list[tuple[str, str]]
) -> Iterator[tuple[list[Endpoint], list[Credentials]]]:
    """Yield the broker's addresses, and the credentials to test it with."""
    if external := endpoints(urls):
        without = [endpoint.url for endpoint in external if endpoint.user is None]
        if without and len(agents) < 2:
            raise UsageError(
                f"to test {without[0]}, name at least two agents that the broker knows and this home has "
                "credentials for: --as Alice --as Bob. `relay broker acl` creates them on both sides."
            )
        yield external, _credentials(home, agents)
    elif agents:
        with broker.use(home):
            found = _credentials(home, agents)
            yield [broker.admit(home, each.team, each.name)[0] for each in found][-1:], found
    else:
        team = f"doctor-{secrets.token_hex(4)}"
        made = [(team, "one"), (team, "two"), (f"{team}-b", "three")]
        with broker.use(home):
            try:
                admitted = [broker.admit(home, *each) for each in made]
                yield [admitted[-1][0]], [credentials for _, credentials in admitted]
            finally:
                with broker.credential_store(home) as store:
                    for each in made:
                        store.remove(*each)


def _credentials(home: Home, agents: list[tuple[str, str]]) -> list[Credentials]:
    found: list[Credentials] = []
    with broker.credential_store(home) as store:
        known = [(*each, store.find(*each)) for each in agents]
    for team, name, credentials in known:
        if credentials is None:
            raise BrokerError(
                f"this home has no credentials of {name!r} in team {team!r}. Create them with `relay broker "
                "acl`, or copy them from another home with `relay broker credentials`."
            )
        if credentials in found:
            raise UsageError(f"{name!r} is named twice. The test needs two different agents: name another.")
        found.append(credentials)
    return found
