"""Show the messages of this home and their states.

  held       kept for you: part of a possible runaway; `relay release` sends it, `relay drop` drops it
  queued     saved, not yet accepted by the broker
  sent       accepted by the broker; the receiver's relay has not confirmed it
  stored     at the receiver, waiting until it is safe to type
  injected   given to the agent, and seen to arrive
  read       for you, and you have read it in `relay inbox`
  uncertain  typed but not seen to arrive, or the receiver ended meanwhile: check there, then
             `relay retry` or `relay drop`
  rejected   could not be typed, or dropped while stored here
  expired    not accepted in time, or dropped elsewhere on its way

Brackets show: urgent or low, the channel, the message that it answers, and why it is not injected. With
--json there are the whole texts, and `reply_to`, `thread`, `priority`, `channel`, `depth` (how many messages
led to it since the user's last input) and `expires`.

An ID is one shown in the list, or in the marks around a message on its receiver's screen.

Inside a wrapped agent, lists that agent's own messages, and none of an earlier agent of the same name.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from relay import names
from relay.cli.arguments import LATEST, add_json, add_limit, add_team, agent_name
from relay.cli.output import GREEN, RED, YELLOW, day_and_time, latest, print_list, print_table, short_id
from relay.control import guard
from relay.errors import NoSuchMessage
from relay.home import Home
from relay.message import OPEN, Message, Priority, State
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.text import one_line, printable_json

_COLOURS = {
    State.HELD: YELLOW,
    State.UNCERTAIN: YELLOW,
    State.REJECTED: RED,
    State.EXPIRED: RED,
    State.INJECTED: GREEN,
    State.READ: GREEN,
}
_FOLLOWED = 500  # of the latest messages to check again, besides those still to be delivered
_LEDGER_CHECK_EVERY = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="NAME|ID",
        nargs="*",
        help="only messages to or from NAME ('you': the user), or with these ids, or ids that begin so",
    )
    parser.add_argument("--to", type=agent_name, metavar="NAME", help="only messages to NAME ('you': to you)")
    parser.add_argument(
        "--from", dest="sender", type=agent_name, metavar="NAME", help="only messages from NAME"
    )
    add_team(parser, "only this team's (default: RELAY_TEAM, else all teams)")
    states = [state.value for state in State]
    parser.add_argument(
        "--state", choices=states, metavar="STATE", help="only messages in this state: held, stored, ..."
    )
    add_limit(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new and changed messages")
    add_json(parser, "print a JSON list (with -f: one object per line)")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "an agent sees only its own messages. Leave out --team."
    own = guard.as_itself(home, "messages", team=args.team, advice=advice)
    with Ledger(home.ledger) as ledger:
        team = own.team if own else args.team or os.environ.get("RELAY_TEAM") or None
        of = own.name if own else None
        about = [word for word in args.words if _is_name(ledger, word)]
        ids = [ledger.find(word).message.id for word in args.words if word not in about]
        select = partial(
            ledger.messages, team=team, to=args.to, sender=args.sender, of=of, about=about, ids=ids
        )
        if args.follow:
            return _follow(ledger.data_version, select, args)
        states = [State(args.state)] if args.state else []
        most = None if args.all or (args.json and args.limit is None) else args.limit or LATEST
        found = select(states=states, limit=most and most + 1)
        earlier = most is not None and len(found) > most
        found = found[-most:] if most else found
    empty = "There are no messages. Send one with `relay send NAME TEXT`."
    if args.words or args.to or args.sender or args.team or args.state:
        empty = "No message matches. `relay messages` lists all."
    print_list(args, found, _public, _row, colours=_colours, noun="message", empty=empty, earlier=earlier)
    return 0


def _is_name(ledger: Ledger, word: str) -> bool:
    if names.same(word, names.PERSON) or ledger.registry.teams(word):
        return True
    with suppress(NoSuchMessage):
        ledger.find(word)
        return False
    return bool(ledger.messages(to=word, limit=1) or ledger.messages(sender=word, limit=1))


def _follow(
    data_version: Callable[[], int], select: Callable[..., list[LedgerEntry]], args: argparse.Namespace
) -> int:
    seen: dict[str, State] = {}
    version = None
    try:
        while True:
            if version != (now := data_version()):
                waiting = [id for id, state in seen.items() if not state.final]
                earlier = select(about=(), ids=waiting) if waiting else []
                if version is None:
                    earlier = select(states=OPEN)
                entries = {each.message.id: each for each in [*earlier, *select(limit=_FOLLOWED)]}
                fresh = [each for id, each in entries.items() if seen.get(id) != each.message.state]
                fresh = [each for each in fresh if args.state in {None, each.message.state.value}]
                if version is None:
                    fresh = latest(fresh, args, all_as_json=False)
                seen |= {id: each.message.state for id, each in entries.items()}
                version = now
                if args.json:
                    for entry in fresh:
                        print(printable_json(_public(entry)), flush=True)
                elif fresh:
                    print_table(map(_row, fresh), colours=[*map(_colours, fresh)])
            time.sleep(_LEDGER_CHECK_EVERY)
    except KeyboardInterrupt:
        return 130


def _public(entry: LedgerEntry) -> dict[str, object]:
    return {**entry.message.public(), "team": entry.team}


def _colours(entry: LedgerEntry) -> dict[int, str]:
    state = entry.message.state
    return {2: _COLOURS[state]} if state in _COLOURS else {}


def _row(entry: LedgerEntry) -> tuple[str, ...]:
    message = entry.message
    return (
        day_and_time(message.time),
        short_id(message.id),
        message.state.value,
        f"{one_line(message.sender, None)} → {one_line(message.to, None)}",
        one_line(message.body, None) + "".join(f"  [{remark}]" for remark in _remarks(message)),
    )


def _remarks(message: Message) -> Iterator[str]:
    if message.priority is not Priority.NORMAL:
        yield message.priority.value
    if message.channel:
        yield f"#{one_line(message.channel, None)}"
    if message.reply_to:
        yield f"in reply to {short_id(message.reply_to)}"
    if message.detail:
        yield one_line(message.detail, None)
