"""Show the tokens that agents have used, and their cost.

Prints one line per agent and one per account, of running and ended sessions. The figures come from the
agents' own files, so the list omits aider and plain programs, which write none. relay logs them after each
turn, and every minute during a long one.

The cost is in US dollars at list prices; `prices.toml` in relay's configuration folder can add prices. With a
subscription you pay something else. A model of unknown price is not counted: "+?" follows the cost of the
others, and "?" means that no price is known.

Below the table are the rate limits of each account, if its agents report them (Codex), as of their latest
answer, and whether relay holds the account.

Inside a wrapped agent, shows that agent's usage, in its session.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relay.agents import usage_log
from relay.agents.prices import Prices
from relay.agents.rate_limits import RateLimits
from relay.agents.usage import Spent
from relay.agents.usage_log import UsageEntry
from relay.cli.arguments import add_json, add_team, agent_name
from relay.cli.audit import moment
from relay.cli.output import print_json, print_table
from relay.control import guard
from relay.dataclass import asdict, dataclass, field, replace
from relay.home import Home
from relay.names import key, same
from relay.supervision.accounts import Accounts
from relay.text import one_line

HEADER = ("NAME", "TEAM", "AGENT", "ACCOUNT", "TURNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of an agent, or of an account.

    first, last: when it was logged, in seconds since the epoch. limits: the latest reported.
    """

    name: str
    team: str
    agent: str
    account: str
    first: float
    last: float
    turns: int = 0
    spent: Spent = field(default_factory=Spent)
    models: Mapping[str, Spent] = field(default_factory=dict)
    limits: RateLimits | None = None

    def with_entry(self, entry: UsageEntry) -> UsageRow:
        models = {**self.models}
        for model, spent in entry.models.items():
            models[model] = models.get(model, Spent()) + spent
        return replace(
            self,
            first=min(self.first, entry.time),
            last=max(self.last, entry.time),
            turns=self.turns + entry.turns,
            spent=sum(entry.models.values(), self.spent),
            models=models,
            limits=max(filter(None, (self.limits, entry.limits)), key=lambda each: each.at, default=None),
        )

    def public(self) -> dict[str, Any]:
        """Return the usage for JSON, without its owner."""
        models = {model: spent.public() for model, spent in self.models.items()}
        return {
            "turns": self.turns,
            **self.spent.public(),
            "models": models,
            "first": self.first,
            "last": self.last,
        }


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", type=agent_name, metavar="NAME", help="only this agent")
    parser.add_argument(
        "--since", type=moment, metavar="WHEN", help="only since then: 30m, 2h, 7d, or 2026-07-01[T14:30]"
    )
    add_team(parser, "only this team")
    add_json(parser, "print a JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    advice = "an agent sees only its own usage. Leave out NAME."
    session = guard.own_session(home, "usage", name=args.name, advice=advice)
    prices = Prices.load(home)

    def wanted(entry: UsageEntry) -> bool:
        return (
            (session is None or entry.session == session)
            and (args.name is None or same(entry.name, args.name))
            and (args.team is None or same(entry.team, args.team))
            and (args.since is None or entry.time >= args.since)
        )

    entries = [_priced(entry, prices) for entry in usage_log.read(home.usage, wanted)]
    agents = _sums(entries, lambda each: (key(each.team), key(each.name), each.agent, each.account))
    accounts = _sums(entries, lambda each: (each.account,))
    kinds = _sums(entries, lambda each: (each.account, each.agent))
    limited = [(row.account, row.agent, row.limits) for row in kinds if row.limits is not None]
    every = session is None and not (args.name or args.team)
    shown = {row.account for row in accounts}
    holds = [hold for hold in Accounts(home).all() if every or hold.account in shown]
    if args.json:
        print_json(
            {
                "agents": [
                    {
                        "name": row.name,
                        "team": row.team,
                        "agent": row.agent,
                        "account": row.account,
                        **row.public(),
                    }
                    for row in agents
                ],
                "accounts": [{"account": row.account, **row.public()} for row in accounts],
                "limits": [
                    {"account": account, "agent": agent, **limits.public()}
                    for account, agent, limits in limited
                ],
                "holds": [asdict(hold) for hold in holds],
                "prices": prices.date,
            }
        )
        return 0
    if agents:
        rows = [
            _cells(row, *(one_line(each, None) for each in (row.name, row.team, row.agent))) for row in agents
        ]
        rows += [_cells(row, "(all)", "", "") for row in accounts]
        print_table([HEADER, *rows], right=range(4, len(HEADER)))
    else:
        narrowed = args.name or args.team or args.since is not None
        print(
            "No matching usage. `relay usage` lists all of it."
            if narrowed
            else "No agent has used any tokens yet."
        )
    now = time.time()
    for account, agent, limits in limited:
        print(f"Limits of {one_line(account, 20)} ({one_line(agent, 20)}): {in_words(limits, now)}.")
    for held in map(str, holds):
        print(one_line(f"{held[0].upper()}{held[1:]}.", 200))
    return 0


def _sums(entries: Iterable[UsageEntry], by: Callable[[UsageEntry], tuple[str, ...]]) -> list[UsageRow]:
    """Return the sums of the entries, grouped and sorted `by` a key."""
    rows: dict[tuple[str, ...], UsageRow] = {}
    for entry in entries:
        row = rows.get(by(entry)) or UsageRow(
            entry.name, entry.team, entry.agent, entry.account, entry.time, entry.time
        )
        rows[by(entry)] = row.with_entry(entry)
    return [rows[each] for each in sorted(rows)]


def _priced(entry: UsageEntry, prices: Prices) -> UsageEntry:
    """Return the entry with the cost of models whose price has since become known."""
    return replace(entry, models={model: _known(model, each, prices) for model, each in entry.models.items()})


def _known(model: str, spent: Spent, prices: Prices) -> Spent:
    return prices.spent(model, spent.tokens, summed=True) if spent.unpriced == spent.tokens.total else spent


def _cells(row: UsageRow, name: str, team: str, agent: str) -> tuple[str, ...]:
    tokens = row.spent.tokens
    numbers = (row.turns, tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    return (
        name,
        team,
        agent,
        one_line(row.account, None),
        *(f"{number:,}" for number in numbers),
        money(row.spent),
    )


def in_words(limits: RateLimits, now: float) -> str:
    """Return limits as "5 h 42 % used, resets 14:30; weekly 7 % used, resets 11-30 09:00; as of 13:05"."""
    parts = []
    for window in limits.windows:
        if window.resets_at is not None and window.resets_at <= now:
            parts.append(f"{window.length} has been reset")
        else:
            resets = "" if window.resets_at is None else f", resets {_clock(window.resets_at, now)}"
            parts.append(f"{window.length} {window.used_percent:.0f} % used{resets}")
    return "; ".join([*parts, f"as of {_clock(limits.at, now)}"])


def _clock(seconds: float, now: float) -> str:
    """Return a time of today as "14:30", of another day as "11-30 14:30"."""
    there, here = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M" if there[:3] == here[:3] else "%m-%d %H:%M", there)


def money(spent: Spent) -> str:
    """Return the cost as `$1.25`, `$1.25 +?` if part of it is unknown, or `?` if all of it is."""
    if spent.known_cost is None:
        return "?"
    return f"${spent.known_cost:,.2f}" + (" +?" if spent.unpriced else "")
