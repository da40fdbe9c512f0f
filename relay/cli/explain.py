"""Say why an agent counts as ready or not, and what keeps a message from being typed.

The state comes from what the agent's terminal shows: its modes, whose it is now, whether the program
sleeps in a read of it, and the rules of the agent's profile (`relay agents`) over what is drawn.
"""

from __future__ import annotations

import argparse

from relay.home import Home
from relay.session.directory import call, find
from relay.text import count, printable_json, visible


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the session, as `relay ps` lists it")
    parser.add_argument("-t", "--team", metavar="TEAM", help="look in this team only")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    session = find(Home.from_env(), args.name, args.team)
    answer = call(session.socket, {"op": "explain"})
    if args.json:
        print(printable_json(answer, indent=2))
        return 0
    print(f"{session.name} is {answer['state']}: {visible(answer['reason'])}.")
    print(f"It is treated as {answer['profile']}, and read as a program that {READS[answer['reader']]}.")
    if answer["waiting"]:
        why = f": {visible(answer['obstacle'])}" if answer["obstacle"] else ""
        print(f"{count(answer['waiting'], 'text').capitalize()} waiting to be typed{why}.")
    return 0


READS = {"lines": "prints lines", "screen": "draws a screen"}
