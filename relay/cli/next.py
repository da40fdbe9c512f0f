"""Attach this terminal to the agent that needs you most.

That is the agent of the first item in your inbox that its terminal can settle: agents with a question come
first, longest-waiting first; then those that have failed or are held, and those whose supervision has called
you. --ready includes agents that wait for their next prompt. If no agent needs you, the command says so and
exits with 1, and lists agents that have failed and ended: supervised ones, and others for ten minutes.
"""

from __future__ import annotations

import argparse
import math
import sys

from relay.cli import attach
from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_json
from relay.control import inbox
from relay.control.guard import user_only
from relay.control.sessions import live
from relay.home import Home
from relay.messaging.user_inbox import Item, unread_sentence
from relay.names import key


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser)
    parser.add_argument("--ready", action="store_true", help="include agents that wait for their next prompt")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--print", action="store_true", help="print the agent's name instead of attaching")
    add_json(how, "print the agent as a JSON object, null for none, instead of attaching")
    how.add_argument("--takeover", action="store_true", help="take over from the terminal that is attached")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if not (args.print or args.json):
        user_only(home, "next", "an agent may not attach to agents. The user can, outside the session.")
    running = live(home, args.team)
    agents = {(key(each.team), key(each.name)): each for each in running}
    waiting = inbox.items(home, running, args.team)
    needy = [agents.get((key(each.team), key(each.name))) for each in waiting if each.kind in inbox.ATTACH]
    ready = [each for each in running if args.ready and each.state == "ready"]
    ready.sort(key=lambda each: math.inf if each.since is None else each.since)
    chosen = next((each for each in [*needy, *ready] if each is not None), None)
    if args.json:
        print_json(None if chosen is None else chosen.public())
    if chosen is None:
        _explain(waiting)
        return 1
    if args.print:
        print(chosen.name)
    if args.print or args.json:
        return 0
    return attach.to(chosen, takeover=args.takeover)


def _explain(waiting: list[Item]) -> None:
    failed = [each for each in waiting if each.kind in inbox.ATTACH]
    for each in failed:
        print(each.line, file=sys.stderr)
    print("No running agent needs you." if failed else "No agent needs you.", file=sys.stderr)
    if unread := sum(not each.read for each in waiting):
        print(unread_sentence(unread), file=sys.stderr)
