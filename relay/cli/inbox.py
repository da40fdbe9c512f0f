"""Show what waits for you: questions, failures, held agents and messages, messages to you, mistakes, notices.

  relay inbox                the list, the most urgent first, each with the command that deals with it
  relay inbox show ID        the whole text; the item is *read* then, and no longer counted
  relay inbox done ID ...    take items off the list; --all: all
  relay inbox --follow       print one line for each new item, and for each that is done
  relay inbox test           send a test item to each of your sinks (desktop, ntfy, webhook, command)

Items leave the list by themselves: a question once it is answered, a message once it is read, a mistake once
it is mended and the agent has the new configuration (`relay reload`). Messages that are held stay until you
release or drop them.
"""

from __future__ import annotations

import argparse
import sys
import time

from relay.cli.arguments import add_json, add_team
from relay.cli.output import day_and_time, print_json, print_list, short_id
from relay.control import inbox
from relay.control.guard import user_only
from relay.control.sessions import live
from relay.errors import NoSuchMessage, RelayError, UsageError
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.messaging.user_inbox import Item
from relay.text import count, one_line, printable_json, visible

FOLLOW_EVERY = 0.5
"""Seconds between two looks of --follow into the ledger."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("list", "show", "done", "test"), default="list", metavar="ACTION",
        help="list (default), show, done or test",
    )  # fmt: skip
    parser.add_argument("ids", nargs="*", metavar="ID", help="an item, by the beginning of its id")
    parser.add_argument("--all", action="store_true", help="with done: all items")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="keep printing what comes and what is done"
    )
    add_team(parser, "only this team's")
    add_json(parser, "print JSON: a list, an object for show, one object per line for --follow")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "inbox", "the inbox is the user's. `relay messages` lists an agent's own messages.")
    if args.all and args.action != "done":
        raise UsageError("--all is for done. `relay inbox` lists everything anyway.")
    if args.follow and args.action != "list":
        raise UsageError("--follow only lists. Leave out the other words.")
    if args.ids and args.action in {"list", "test"}:
        raise UsageError(f"{args.action} takes no ID. Use show or done.")
    match args.action:
        case "show":
            return _show(home, args)
        case "done":
            return _done(home, args)
        case "test":
            return _test(home, args)
    if args.follow:
        return _follow(home, args)
    print_list(
        args,
        inbox.items(home, live(home, args.team), args.team),
        Item.public,
        _row,
        header=("ID", "WHAT", "FROM", "SINCE", "NEXT", "TEXT"),
        empty="Nothing waits for you.",
        colours=lambda item: {} if item.read else {1: "\x1b[1m"},
    )
    return 0


def _row(item: Item) -> tuple[str, ...]:
    return short_id(item.id), item.kind, item.name, _since(item), item.next, one_line(item.text, None)


def _since(item: Item) -> str:
    return "" if item.since is None else day_and_time(item.since)


def _show(home: Home, args: argparse.Namespace) -> int:
    if len(args.ids) != 1:
        raise UsageError("name one item: `relay inbox` lists them with their ids.")
    with Ledger(home.ensure().ledger) as ledger:
        try:
            item = ledger.user_inbox.find(args.ids[0])
        except NoSuchMessage:
            entry = ledger.find(args.ids[0])  # another message, such as one that was read before
            if args.json:
                print_json({**entry.message.public(), "team": entry.team})
            else:
                message = entry.message
                to = f"#{message.channel}" if message.channel else message.to
                _print(f"{message.sender} to {to}", message.time, message.id, message.body)
            return 0
        if args.json:
            print_json(item.public())
        else:
            _print(item.title, item.since, item.id, item.text)
            if item.id[:8] not in item.next:
                print(f"\n{item.next}")
        ledger.user_inbox.read(item)
    return 0


def _print(title: str, since: float | None, id: str, text: str) -> None:
    when = "" if since is None else f", {day_and_time(since)}"
    print(f"{one_line(title, None)}{when}, {short_id(id)}:\n")
    print(visible(text))


def _done(home: Home, args: argparse.Namespace) -> int:
    if bool(args.ids) == args.all:
        raise UsageError("name the items that are done, or use --all. `relay inbox` lists them.")
    with Ledger(home.ensure().ledger) as ledger:
        waiting = ledger.user_inbox
        chosen = [waiting.find(each) for each in args.ids] if args.ids else waiting.items(args.team)
        for item in chosen:
            waiting.done(item)
    if args.json:
        print_json([item.public() for item in chosen])
    else:
        print(f"{count(len(chosen), 'item')} done.")
    return 0


def _follow(home: Home, args: argparse.Namespace) -> int:
    """Print a line for each item that comes, and for each that is done, until the user interrupts."""
    known: dict[str, Item] = {}
    with Ledger(home.ensure().ledger) as ledger:
        while True:
            items = {item.id: item for item in inbox.waiting(home, ledger, args.team)}
            for id, item in items.items():
                if id not in known:
                    _say(args, item, done=False)
            for id in known.keys() - items.keys():
                _say(args, known[id], done=True)
            known = items
            time.sleep(FOLLOW_EVERY)


def _say(args: argparse.Namespace, item: Item, *, done: bool) -> None:
    if args.json:
        print(printable_json({**item.public(), "done": done}), flush=True)
        return
    clock = time.strftime("%H:%M:%S", time.localtime(None if done else item.since))
    print(f"{clock} done: {one_line(item.title, None)}" if done else f"{clock} {item.line}", flush=True)


def _test(home: Home, args: argparse.Namespace) -> int:
    """Send a test item to each sink. Return 1 if any fails."""
    import asyncio
    from pathlib import Path

    from relay.messaging import sinks
    from relay.redaction import Redactor

    settings, mistakes = sinks.load(home, Path.cwd())
    for mistake in mistakes:
        print(f"relay: {mistake}", file=sys.stderr)
    if not settings.names:
        raise RelayError(f"no sink is set up. The table [inbox] of {home.config / 'relay.toml'} has them.")
    item = Item("test", "notice", "relay", "", time.time(), "A test of your inbox.", False, "relay inbox")
    results = {name: asyncio.run(sinks.push(settings, name, item, Redactor())) for name in settings.names}
    if args.json:
        print_json([{"sink": name, "error": why or None} for name, why in results.items()])
    else:
        for name, why in results.items():
            print(f"{name}: {why or 'sent'}")
    return int(any(results.values()) or bool(mistakes))
