"""Send a message again.

ID is the beginning of an id that `relay messages` shows. A message that is still on its way is published at
once. One that has come to an end (uncertain, rejected, expired) is sent anew, after whatever else waits for
the same receiver; it gets a new id, and the old one stays in the list as it was. With --to it goes to another
agent instead, such as one that goes on under another name.

  relay retry 3f9a
  relay retry 3f9a --to Robert
"""

from __future__ import annotations

import argparse

from relay import names
from relay.bus.ledger import Ledger
from relay.bus.message import State
from relay.errors import UnknownRecipient
from relay.home import Home
from relay.session.caller import caller
from relay.session.directory import have_carried
from relay.session.guard import own_only
from relay.session.limits import limits_here


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="NAME", help="send it to NAME instead")
    parser.add_argument("id", metavar="ID", help="the message's id, or its beginning")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    with Ledger(home.ledger) as ledger:
        entry = ledger.find(args.id)
        own_only(home, "retry", entry.message.sender, entry.team)
        to = None if args.to is None else _receiver(ledger, entry.team, args.to)
        limits = None if caller(home) is None else limits_here(home)
        again = ledger.retry(entry.message.id, to, limits=limits)
    carried = have_carried(home, entry.team, again.sender)
    if again.id == entry.message.id:
        what = f"{again.id[:8]} is published again"
    elif again.state is State.HELD:
        print(f"{again.id[:8]} is held ({again.detail}). The person can `relay release` it.")
        return 1
    else:
        what = f"{entry.message.id[:8]} is sent again to {again.to} as {again.id[:8]}"
    print(what + ("." if carried else "; no session of its team runs here, and it travels when one starts."))
    return 0


def _receiver(ledger: Ledger, team: str, name: str) -> str:
    """`name` as whoever has it in `team` spells it."""
    known = ledger.registry.known(team)
    for each in known:
        if names.same(each, name):
            return each
    meant = names.suggest(name, known)
    advice = f"Did you mean {meant}?" if meant else "`relay ps` lists who is there."
    raise UnknownRecipient(f"nobody in team {team!a} is called {name!a}. {advice}", meant)
