"""Attach this terminal to the agent that needs you most.

Agents with a question come first, longest-waiting first; then those that have failed, and those whose
supervision has called you. --ready includes agents that wait for their next prompt. If no agent needs you,
the command says so and exits with 1, and lists agents that have failed and ended: supervised ones, and others
for ten minutes.
"""

from __future__ import annotations

import argparse
import sys

from relay.cli import attach
from relay.cli.agent_state import state
from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_json
from relay.control import inbox
from relay.control.ended import news
from relay.control.guard import user_only
from relay.control.needs import ATTACH, Need, by_urgency, need
from relay.control.sessions import live
from relay.home import Home


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
    wanted = ATTACH | {Need.READY} if args.ready else ATTACH
    running = live(home, args.team)
    chosen = next((each for each in by_urgency(running) if need(each) in wanted), None)
    if args.json:
        print_json(None if chosen is None else chosen.public())
    if chosen is None:
        failed = by_urgency(news(home, running, args.team))
        for each in failed:
            print(f"{each.name} {state(each)}. `relay logs {each.name}` shows its output.", file=sys.stderr)
        print("No running agent needs you." if failed else "No agent needs you.", file=sys.stderr)
        if any(need(each) in {Need.UNRESPONSIVE, Need.HELD} for each in running):
            print(
                "Held messages, or sessions that do not answer, wait for you: `relay inbox`", file=sys.stderr
            )
        if messages := inbox.summary(home, args.team):
            print(messages, file=sys.stderr)
        return 1
    if args.print:
        print(chosen.name)
    if args.print or args.json:
        return 0
    return attach.to(chosen, takeover=args.takeover)
