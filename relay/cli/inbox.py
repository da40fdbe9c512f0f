"""Show what waits for you: questions, failures, held messages, messages to you, mistakes in configuration.

  relay inbox                the list, the most urgent first, each with the command that deals with it
  relay inbox show ID        a message as it was sent; it is *read* then
  relay inbox done ID ...    mark messages as read without showing them; --all: all

All else leaves the list by itself: a question once it is answered, a mistake once it is mended and the agent
has the new configuration (`relay reload`).
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli.arguments import add_json, add_team
from relay.cli.output import day_and_time, print_json, print_list, short_id
from relay.control import inbox
from relay.control.ended import news
from relay.control.guard import user_only
from relay.control.inbox import Item
from relay.control.sessions import live
from relay.errors import LedgerError, UsageError
from relay.home import Home
from relay.message import Message, State
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.text import count, one_line, visible


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("show", "done"), metavar="show|done")
    parser.add_argument("ids", nargs="*", metavar="ID", help="a message, by the beginning of its id")
    parser.add_argument("--all", action="store_true", help="with done: all messages")
    add_team(parser, "only this team's")
    add_json(parser, "print a JSON list; with show, the message as a JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "inbox", "the inbox is the user's. `relay messages` lists an agent's own messages.")
    if args.all and args.action != "done":
        raise UsageError("--all is for done. `relay inbox` lists everything anyway.")
    match args.action:
        case "show":
            return _show(home, args)
        case "done":
            return _done(home, args)
    running = live(home, args.team)
    print_list(
        args,
        inbox.items(home, [*running, *news(home, running, args.team)], args.team),
        Item.public,
        _row,
        header=("WHAT", "FROM", "SINCE", "NEXT", "TEXT"),
        empty="Nothing waits for you.",
    )
    return 0


def _row(item: Item) -> tuple[str, ...]:
    since = "" if item.since is None else day_and_time(item.since)
    return item.kind, item.name, since, item.next, one_line(item.text, None)


def _show(home: Home, args: argparse.Namespace) -> int:
    if len(args.ids) != 1:
        raise UsageError("name one message: `relay inbox` lists them with their ids.")
    with Ledger(home.ensure().ledger) as ledger:
        entry = ledger.find(args.ids[0])
        message = entry.message
        if args.json:
            print_json({**message.public(), "team": entry.team, "state": _read(message)})
        else:
            to = f"#{message.channel}" if message.channel else message.to
            print(f"{message.sender} to {to}, {day_and_time(message.time)}, {short_id(message.id)}:\n")
            print(visible(message.body))
        ledger.read(message.id)
    return 0


def _read(message: Message) -> State:
    """Return the state of `message` once the user has read it."""
    mine = message.state is State.STORED and names.same(message.to, names.PERSON)
    return State.READ if mine else message.state


def _done(home: Home, args: argparse.Namespace) -> int:
    if bool(args.ids) == args.all:
        raise UsageError("name the messages that you have read, or use --all. `relay inbox` lists them.")
    with Ledger(home.ensure().ledger) as ledger:
        waiting = ledger.unread(args.team)
        chosen = [_unread(waiting, each) for each in args.ids] if args.ids else waiting
        for entry in chosen:
            ledger.read(entry.message.id)
    if args.json:
        print_json([{**entry.message.public(), "team": entry.team, "state": State.READ} for entry in chosen])
    else:
        print(f"{count(len(chosen), 'message')} marked as read.")
    return 0


def _unread(waiting: list[LedgerEntry], prefix: str) -> LedgerEntry:
    """Return the unread message whose id begins with `prefix`. Raise LedgerError for none or several."""
    found = [entry for entry in waiting if entry.message.id.startswith(prefix)]
    if len(found) != 1:
        which = "no unread message has" if not found else "several messages have"
        raise LedgerError(f"{which} an id that begins with {prefix!r}. `relay inbox` lists them.")
    return found[0]
