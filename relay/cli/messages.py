"""Show the messages of this home and what became of each.

  held       written down, and kept for you: it looks like a part of a runaway; `relay release`
             lets it go, `relay drop` gives it up
  queued     written down, not yet taken by the broker
  sent       taken by the broker; the receiver's relay has not confirmed it
  stored     at the receiver, waiting until it is safe to type
  injected   given to the agent, and seen to be
  uncertain  typed and not seen to arrive, or the receiver ended meanwhile: look there, then
             `relay retry` or `relay drop`
  rejected   could not be typed, or dropped while it was stored here
  expired    given up: not taken in time, or dropped elsewhere on its way

In brackets stand: urgent or low, the channel, the message that it answers, and why it is not injected. With
--json there are the whole texts, and `reply_to`, `thread`, `priority`, `channel`, `depth` (how many messages
led to it since a person spoke) and `expires`.

Inside a wrapped agent the list holds that agent's own messages.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial

from relay.control import guard
from relay.home import Home
from relay.messaging.ledger import Entry, Ledger
from relay.messaging.message import Message, Priority, State
from relay.text import count, one_line, printable_json

_SHOWN = 50
_FOLLOWED = 500  # messages that are looked at again, beside all since the oldest that is not settled
_POLL = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="NAME", help="only those to NAME ('you': to the person)")
    parser.add_argument("--from", dest="sender", metavar="NAME", help="only those from NAME")
    parser.add_argument("-t", "--team", help="only those of this team (default: RELAY_TEAM, else all teams)")
    parser.add_argument(
        "--state",
        choices=[state.value for state in State],
        metavar="STATE",
        help="only those that are held, stored, ...",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "-n", "--limit", type=positive, metavar="N", help=f"the latest N (default: {_SHOWN}, with --json all)"
    )
    length.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is new or changes")
    parser.add_argument("--json", action="store_true", help="print a JSON list (with -f: one object a line)")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "an agent sees its own messages only. Leave out --team."
    own = guard.as_itself(home, "messages", team=args.team, advice=advice)
    with Ledger(home.ledger) as ledger:
        select = partial(
            ledger.messages,
            team=own.team if own else args.team or os.environ.get("RELAY_TEAM"),
            to=args.to,
            sender=args.sender,
            between=own.name if own else None,
        )
        wanted = set(State) if args.state is None else {State(args.state)}
        if args.follow:
            return _follow(ledger, select, wanted, args)
        found = [entry for entry in select() if entry.message.state in wanted]
    entries = _latest(found, args)
    if args.json:
        print(printable_json([_public(entry) for entry in entries], indent=2))
    elif found:
        if left_out := len(found) - len(entries):
            print(f"({count(left_out, 'earlier message')} left out; --all shows all.)", file=sys.stderr)
        print("\n".join(_table(entries)))
    elif args.to or args.sender or args.team or args.state:
        print("No message matches. `relay messages` lists all.", file=sys.stderr)
    else:
        print("No messages. `relay send NAME TEXT` sends one.", file=sys.stderr)
    return 0


def _latest(entries: list[Entry], args: argparse.Namespace) -> list[Entry]:
    """Those of `entries` that are to be shown at once."""
    if args.all or (args.limit is None and args.json and not args.follow):
        return entries
    limit = _SHOWN if args.limit is None else args.limit
    return entries[max(len(entries) - limit, 0) :]


def _follow(
    ledger: Ledger, select: Callable[..., list[Entry]], wanted: Container[State], args: argparse.Namespace
) -> int:
    seen: dict[str, State] | None = None
    version = None
    try:
        while True:
            if version != (now := ledger.version()):
                version = now
                entries = select(limit=None if seen is None else _FOLLOWED + _unsettled(seen))
                states = {entry.message.id: entry.message.state for entry in entries}
                if seen is None:
                    fresh = _latest([e for e in entries if e.message.state in wanted], args)
                    seen = {}
                else:
                    fresh = [e for e in entries if seen.get(e.message.id) != states[e.message.id]]
                    fresh = [e for e in fresh if e.message.state in wanted]
                seen.update(states)
                for line in (printable_json(_public(e)) for e in fresh) if args.json else _table(fresh):
                    print(line, flush=True)
            time.sleep(_POLL)
    except KeyboardInterrupt:
        return 130


def _unsettled(seen: dict[str, State]) -> int:
    """How many messages came since the oldest of those in `seen`, in their order, whose state may change."""
    return next((len(seen) - n for n, state in enumerate(seen.values()) if not state.final), 0)


def _public(entry: Entry) -> dict[str, object]:
    return {**entry.message.public(), "team": entry.team}


def _table(entries: Iterable[Entry]) -> list[str]:
    rows = []
    for entry in entries:
        message = entry.message
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(message.time))
        who = f"{one_line(message.sender, 20)} → {one_line(message.to, 20)}"
        remarks = "".join(f"  [{remark}]" for remark in _remarks(message))
        rows.append(
            (when, short_id(message.id), message.state.value, who, one_line(message.body, 60) + remarks)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def _remarks(message: Message) -> Iterator[str]:
    if message.priority is not Priority.NORMAL:
        yield message.priority.value
    if message.channel:
        yield f"#{one_line(message.channel, 20)}"
    if message.reply_to:
        yield f"in reply to {short_id(message.reply_to)}"
    if message.detail:
        yield one_line(message.detail, 60)


def short_id(id: str) -> str:
    """As much of a message's id as commands show; a peer made it."""
    return one_line(id[:8], 8)


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    value = int(text)
    if value <= 0:
        raise ValueError(text)
    return value
