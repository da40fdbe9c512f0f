"""Send a message again.

ID is how an id in `relay messages` begins. A message still on its way is published at once. One in a final
state (uncertain, rejected, expired) is sent again behind other messages waiting for the same receiver; the
copy gets a new id, and the original stays in the list. --to sends it to another agent, such as one that
continues under another name. A delivered message (injected) is not sent again: use `relay send`.

  relay retry 3f9a
  relay retry 3f9a --to Robert
"""

from __future__ import annotations

import argparse

from relay import names
from relay.cli.arguments import add_json, agent_name
from relay.cli.output import print_json, short_id
from relay.cli.send import limits_here
from relay.control.caller import caller
from relay.control.guard import own_only
from relay.control.sessions import have_carried
from relay.errors import MessageRefused, UnknownRecipient
from relay.home import Home
from relay.message import State
from relay.messaging.doorbell import ring_for
from relay.messaging.ledger import Ledger, LedgerEntry
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=agent_name, metavar="NAME", help="send it to NAME instead")
    parser.add_argument("id", metavar="ID", help="the message's id, or its beginning")
    add_json(parser, "print the message that travels as a JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    with Ledger(home.ledger) as ledger:
        entry = ledger.find(args.id)
        own_only(home, "retry", entry.message.sender, entry.team)
        message = entry.message
        if message.state in {State.INJECTED, State.READ}:
            raise MessageRefused(
                f"message {short_id(message.id)} was already delivered to {one_line(message.to)}. To deliver "
                "the text again, use `relay send`."
            )
        to = None if args.to is None else _receiver(ledger, entry, args.to)
        by_user = caller(home) is None
        again = ledger.retry(entry.message.id, to, limits=limits_here(home), by_user=by_user)
    ring_for(home, entry.team, [again])
    carried = have_carried(home, entry.team, again.sender)
    if args.json:
        print_json({**again.public(), "team": entry.team, "retried": entry.message.id})
        return 1 if again.state is State.HELD else 0
    if again.id == entry.message.id:
        what = f"{short_id(again.id)} was published again"
    elif again.state is State.HELD:
        why = one_line(again.detail or "")
        print(f"{short_id(again.id)} is held ({why}). The user can `relay release` it.")
        return 1
    else:
        what = f"{short_id(entry.message.id)} was sent again to {one_line(again.to)} as {short_id(again.id)}"
    print(
        what
        + ("." if carried else "; no session of its team is running here, so it is sent when one starts.")
    )
    return 0


def _receiver(ledger: Ledger, entry: LedgerEntry, name: str) -> str:
    """Return `name` as its owner spells it. Raise UnknownRecipient, or MessageRefused for the sender."""
    if names.same(name, entry.message.sender):
        raise MessageRefused(f"{name!r} is the sender. Name another agent with --to.")
    team, known = entry.team, ledger.registry.known(entry.team)
    if found := next((each for each in known if names.same(each, name)), None):
        return found
    advice = names.did_you_mean(name, known).rstrip() or "`relay ps` lists the agents."
    raise UnknownRecipient(f"team {team!r} has no agent called {name!r}. {advice}")
