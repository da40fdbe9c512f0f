"""Drop messages.

ID is how an id in `relay messages` begins. A waiting or held message is not delivered any more: its state
becomes expired, or rejected if this home had stored it. A message that the broker has already accepted for an
agent on another machine may still arrive, and its state then says so. A message that has reached a final
state leaves the list. --held drops all held messages, or, with --from and --to, those from one agent or to
one.

  relay drop 3f9a
  relay drop --held --from Alice
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli.arguments import add_json, agent_name
from relay.cli.output import Outcomes, short_id
from relay.control.caller import caller
from relay.control.guard import own_only, user_only
from relay.control.sessions import have_carried
from relay.errors import UsageError
from relay.home import Home
from relay.message import State
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.storage.journal import Journal


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="a message's id, or how it begins")
    parser.add_argument("--held", action="store_true", help="all held messages")
    parser.add_argument(
        "--from", dest="sender", type=agent_name, metavar="NAME", help="with --held: only from NAME"
    )
    parser.add_argument("--to", type=agent_name, metavar="NAME", help="with --held: only for NAME")
    add_json(parser, "print the dropped messages as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    if args.held == bool(args.ids) or (not args.held and (args.sender or args.to)):
        raise UsageError("give the ids of messages, or --held (with --from NAME or --to NAME).")
    with Ledger(home.ledger) as ledger:
        if args.held:
            user_only(
                home,
                "drop",
                "held messages wait for the user. An agent can drop only its own messages, by id.",
            )
            entries = ledger.lookup(ledger.held(sender=args.sender, to=args.to))
        else:
            found = map(ledger.find, args.ids)
            entries = [*{entry.message.id: entry for entry in found}.values()]
            for entry in entries:
                own_only(home, "drop", entry.message.sender, entry.team)
        own, journal = caller(home), Journal(home.journal, "", names.PERSON)
        with Outcomes(args) as report:
            for entry in entries:
                message = entry.message
                with report.attempt(short_id(message.id), **_public(entry)):
                    ledger.drop(message.id, by="the user" if own is None else own.name)
                    report.done(_sentence(entry), **_public(entry), outcome="dropped")
                    if own is None and not message.state.final:
                        journal.write("dropped", id=message.id, sender=message.sender, to=message.to)
    for team, sender in {(entry.team, entry.message.sender) for entry in entries}:
        have_carried(home, team, sender)  # messages behind them no longer have to wait
    if not (entries or args.json):
        print("Nothing is held.")
    return 1 if report.failed else 0


def _public(entry: LedgerEntry) -> dict[str, str]:
    """Return the message's JSON object. was: its previous state."""
    message = entry.message
    return {"id": message.id, "from": message.sender, "to": message.to, "was": str(message.state)}


def _sentence(entry: LedgerEntry) -> str:
    name, state = short_id(entry.message.id), entry.message.state
    if state.final:
        return f"{name} ({state}) is no longer listed."
    if state is State.SENT:
        return f"{name} is given up; if the receiver has it already, it still arrives."
    return f"{name} is given up."
