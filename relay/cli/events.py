"""Show the journal: what happened in the sessions of this home.

It records directives, messages and their outcomes, injections, notices, handler failures, starts and ends,
and which messages you released or dropped (under the name `you`). Inside a wrapped agent, shows that agent's
session only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from typing import Any

from relay.cli.arguments import LATEST, add_json, add_limit, agent_name
from relay.control import guard
from relay.home import Home
from relay.names import same
from relay.storage import journal
from relay.text import count, one_line, printable_json

_OWN = ("time", "event", "session", "name")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", type=agent_name, metavar="NAME", help="only this agent")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new events")
    parser.add_argument("--id", default="", metavar="ID", help="only this message: its id, or how it begins")
    add_limit(parser)
    add_json(parser, "one JSON object per line")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    advice = "an agent sees only its own events. Leave out NAME."
    session = guard.own_session(home, "events", name=args.name, advice=advice)
    most = None if args.all or (args.json and args.limit is None) else args.limit or LATEST
    latest = deque[dict[str, Any]](maxlen=most)
    limited = most is not None  # until all earlier events have been read
    earlier = 0
    for entry in journal.follow(home.journal) if args.follow else journal.read(home.journal):
        if entry is None:  # no more for now
            limited, earlier = False, _omitted(earlier, args)
            _print(latest, args)
            continue
        if session is not None and entry.get("session") != session:
            continue
        if args.name and not same(str(entry.get("name", "")), args.name):
            continue
        if not str(entry.get("id", "")).startswith(args.id):
            continue
        earlier += len(latest) == most
        latest.append(entry)
        if not limited:
            _print(latest, args)
    _omitted(earlier, args)
    _print(latest, args)
    return 0


def _omitted(earlier: int, args: argparse.Namespace) -> int:
    """Report how many `earlier` events are not printed. Return 0."""
    if earlier and not args.json:
        print(f"({count(earlier, 'earlier event')} omitted; --all shows all.)", file=sys.stderr, flush=True)
    return 0


def _print(entries: deque[dict[str, Any]], args: argparse.Namespace) -> None:
    while entries:
        entry = entries.popleft()
        print(printable_json(entry) if args.json else _line(entry), flush=args.follow)


def _line(entry: dict[str, Any]) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(float(entry.get("time", 0))))
    rest = "  ".join(
        f"{key}={one_line(_told(value), 100)}"
        for key, value in entry.items()
        if key not in _OWN and value not in (None, "", [])
    )
    name = one_line(str(entry.get("name", "")), 20)
    return f"{clock}  {name:<12} {one_line(str(entry['event']), 24):<18} {rest}".rstrip()


def _told(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(str(each.get("name", each) if isinstance(each, dict) else each) for each in value)
