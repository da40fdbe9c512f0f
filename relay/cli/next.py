"""Attach this terminal to the agent that needs you most.

Agents with a question come first, longest-waiting first; then those that have failed, and those whose
supervision has called you. --ready includes agents that wait for their next prompt. If no agent needs you,
the command says so and exits with 1, and lists agents that have failed and ended: supervised ones, and others
for ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import time

from relay.cli import attach, ps
from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_json
from relay.control.ended import ended
from relay.control.guard import person_only
from relay.control.needs import ATTACH, Need, by_urgency, need
from relay.control.sessions import SessionInfo, live
from relay.home import Home
from relay.supervision.records import Records

_NEWS = 600.0  # seconds for which the failure of an unsupervised agent is news


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
        person_only(home, "next", "an agent may not attach to agents. The user can, outside the session.")
    wanted = ATTACH | {Need.READY} if args.ready else ATTACH
    running = live(home, args.team)
    chosen = next((each for each in by_urgency(running) if need(each) in wanted), None)
    if args.json:
        print_json(None if chosen is None else chosen.public())
    if chosen is None:
        failed = [
            each
            for each in ended(home, running, args.team)
            if need(each) in wanted and each.wanted == "up" and _is_news(home, each)
        ]
        for each in by_urgency(failed):
            print(
                f"{each.name} {ps.state(each)}. `relay logs {each.name}` shows its output.", file=sys.stderr
            )
        print("No running agent needs you." if failed else "No agent needs you.", file=sys.stderr)
        return 1
    if args.print:
        print(chosen.name)
    if args.print or args.json:
        return 0
    return attach.to(chosen, takeover=args.takeover)


def _is_news(home: Home, agent: SessionInfo) -> bool:
    """Return True for an ended agent that was supervised, or that has just ended."""
    record = Records(home).get(agent.team, agent.name)
    return record is not None and (record.supervised or record.at > time.time() - _NEWS)
