"""Say why an agent counts as ready or not, and what keeps a message from being typed.

The state comes from the agent's own hooks and status reports, where it has them, and from what its
terminal shows: its modes, whose it is now, whether the program sleeps in a read of it, and the rules of the
agent's profile (`relay agents`) over what is drawn. The rule and the lines that decided are named.
"""

from __future__ import annotations

import argparse

from relay.home import Home
from relay.session.directory import call, find
from relay.text import count, one_line, printable_json, visible


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
    verb = "has" if answer["state"] == "failed" else "is"
    print(f"{session.name} {verb} {answer['state']}: {visible(answer['reason'])}.")
    if answer.get("rule"):
        print(f"The rule {visible(answer['rule'])!r} of its profile decided, by:")
        for line in answer.get("lines", ()):
            print(f"    {one_line(line, 100)}")
    print(f"It is treated as {answer['profile']}, and read as a program that {READS[answer['reader']]}.")
    if answer.get("bridge"):
        print(f"Its own hooks: {visible(answer['bridge'])}.")
    if answer["waiting"]:
        why = f": {visible(answer['obstacle'])}" if answer["obstacle"] else ""
        print(f"{count(answer['waiting'], 'text').capitalize()} waiting to be typed{why}.")
    for notice in answer["notices"]:
        print(f"Not shown to you yet: {visible(notice)}")
    return 0


READS = {"lines": "prints lines", "screen": "draws a screen"}
