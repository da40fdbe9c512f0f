"""Give up a message.

ID is the beginning of an id that `relay messages` shows. A message that waits is not delivered any more
(one that the broker took for an agent on another machine may still arrive, and its state then says so). One
that has come to an end is no longer listed.
"""

from __future__ import annotations

import argparse

from relay.bus.ledger import Ledger
from relay.bus.message import State
from relay.home import Home
from relay.session.directory import have_carried
from relay.session.guard import own_only


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the message's id, or its beginning")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    with Ledger(home.ledger) as ledger:
        entry = ledger.find(args.id)
        own_only(home, "drop", entry.message.sender, entry.team)
        dropped = ledger.drop(entry.message.id)
    have_carried(home, entry.team, dropped.sender)  # what stood behind it need not wait for it
    name = dropped.id[:8]
    if dropped.state.final:
        print(f"{name} ({dropped.state}) is no longer listed.")
    elif dropped.state is State.SENT:
        print(f"{name} is given up; if the receiver has it already, it still arrives.")
    else:
        print(f"{name} is given up.")
    return 0
