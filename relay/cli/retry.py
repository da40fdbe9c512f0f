"""Send a message again.

ID is the beginning of an id that `relay messages` shows. A message that is still on its way is published at
once. One that has come to an end (uncertain, rejected, expired) is sent anew, after whatever else waits for
the same receiver; it gets a new id, and the old one stays in the list as it was.
"""

from __future__ import annotations

import argparse

from relay.bus.ledger import Ledger
from relay.home import Home
from relay.session.directory import have_carried
from relay.session.guard import own_only


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the message's id, or its beginning")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    with Ledger(home.ledger) as ledger:
        entry = ledger.find(args.id)
        own_only(home, "retry", entry.message.sender, entry.team)
        again = ledger.retry(entry.message.id)
    carried = have_carried(home, entry.team, again.sender)
    if again.id == entry.message.id:
        what = f"{again.id[:8]} is published again"
    else:
        what = f"{entry.message.id[:8]} is sent again to {again.to} as {again.id[:8]}"
    print(what + ("." if carried else "; no session of its team runs here, and it travels when one starts."))
    return 0
