"""Show who injected what into which agent, when, and from which rule or message.

Prints one line per text for an agent: messages, texts from rules and handlers, and relay's own. A line shows
how the text was given (typed; native: in the reply to one of the agent's own hooks; door: by its own inbox),
in whose name, and the outcome:

  injected   delivered, and seen to arrive
  uncertain  delivered, but not seen to arrive
  rejected   refused: too large, blocked by a rule, or dropped
  withdrawn  no longer needed
  untyped    the session ended first; a message stays in its mailbox

relay keeps 500 characters of each text, or all of it with `hook_output = "full"` in relay.toml, and removes
keys, tokens and passwords from both. It does not keep the text of a rule with suppress_output.

Inside a wrapped agent, shows only that agent's injections, in its session.
"""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime
from pathlib import Path

from relay.cli.arguments import add_json, add_limit, agent_name
from relay.cli.output import day_and_time, print_list, short_id
from relay.control import guard
from relay.home import Home
from relay.injection import audit_log
from relay.injection.audit_log import Entry
from relay.names import same
from relay.text import one_line

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=agent_name, metavar="NAME", help="only what the agent NAME received")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="only from this sender, handler or rule: a name, or a place (hooks.json:12)",
    )
    parser.add_argument(
        "--since", type=moment, metavar="WHEN", help="only since then: 30m, 2h, 7d, or 2026-07-01[T14:30]"
    )
    parser.add_argument(
        "--id", default="", metavar="ID", help="only this message: its id, or how the id begins"
    )
    parser.add_argument(
        "--failed", action="store_true", help="only what was rejected, uncertain or not typed"
    )
    add_limit(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    advice = "an agent sees only its own injections. Leave out --to."
    session = guard.own_session(home, "audit", name=args.to, advice=advice)

    def wanted(entry: Entry) -> bool:
        return (
            (session is None or entry.session == session)
            and (args.to is None or same(entry.name, args.to))
            and (args.source is None or _is_from(entry, args.source))
            and entry.id.startswith(args.id)
            and (args.since is None or entry.time >= args.since)
        )

    found = [entry for entry in audit_log.read(home.audit, wanted) if entry.failed or not args.failed]
    empty = "Nothing has been injected into an agent yet."
    if args.to or args.source or args.id or args.since is not None or args.failed:
        empty = "No injection matches. `relay audit` lists all."
    print_list(args, found, Entry.public, _row, noun="injection", empty=empty)
    return 0


def moment(text: str) -> float:
    """Return the time in `text`, an age (`2h`) or a local date and time, as seconds since the epoch."""
    if ago := _AGO.fullmatch(text.strip()):
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"not a valid time: {text!r}. Give an age (30m, 2h or 7d) or a date (2026-07-01)"
        ) from None


def _is_from(entry: Entry, source: str) -> bool:
    if same(entry.source, source):
        return True
    path, _, line = entry.place.rpartition(":")
    files = (path, Path(path).name) if path else ()
    return source in files or source in {f"{file}:{line}" for file in files}


def _row(entry: Entry) -> tuple[str, ...]:
    how = ", ".join(part for part in (entry.route, _roles(entry)) if part)
    remarks = filter(None, ("over the budget" if entry.over_budget else "", entry.detail))
    text = "(not shown)" if entry.text is None else one_line(entry.text, None)
    return (
        day_and_time(entry.time),
        f"{one_line(entry.source, None)} → {one_line(entry.name, None)}",
        _origin(entry),
        one_line(entry.result, None) + (f" ({one_line(how, None)})" if how else ""),
        f"{entry.injection_size:,} B",
        text + "".join(f"  [{one_line(remark, None)}]" for remark in remarks),
    )


def _origin(entry: Entry) -> str:
    if entry.kind == "message":
        channel = f" in #{one_line(entry.channel, None)}" if entry.channel else ""
        return f"message {one_line(short_id(entry.id), 12)}{channel}"
    place = "/".join(Path(entry.place).parts[-2:])
    return " ".join(one_line(part, None) for part in (entry.kind, entry.hook_event, place) if part)


def _roles(entry: Entry) -> str:
    asked, given = entry.injection_role, entry.delivered_role
    if not given:
        return ""
    return f"as {given}" if asked in {"", given} else f"as {given} instead of {asked}"
