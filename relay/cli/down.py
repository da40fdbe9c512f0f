"""End the agents of the fleet file.

Each is ended as `relay stop` does it, before those that it depends on. `relay up` starts it again. NAME: only
these.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from relay.cli import stop
from relay.control.guard import person_only
from relay.control.sessions import live
from relay.home import Home
from relay.names import key
from relay.supervision import fleet_file
from relay.supervision.plan import stop_order
from relay.supervision.records import Records


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="these agents only (default: all)")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the fleet file")
    parser.add_argument("--now", action="store_true", help="kill at once, without a closing prompt")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    person_only(home, "down", "an agent may not end a fleet.")
    fleet = fleet_file.load(home, Path.cwd(), args.file)
    records, failed = Records(home), 0
    running = {key(session.name) for session in live(home, fleet.team)}
    for name in stop_order(fleet, args.names):
        if key(name) in running:
            words = argparse.Namespace(names=[name], all=False, now=args.now, team=fleet.team)
            failed |= stop.run(words)
        else:
            print(f"{name} does not run.")
        if records.get(fleet.team, name) is not None:
            records.change(fleet.team, name, lambda record: replace(record, wanted="down", by="down"))
    return failed
