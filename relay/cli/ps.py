"""List the running sessions and the states of their agents.

States: starting, working, ready (waits for input, and relay may type), prompting (has a question for the
user), unsafe (executes what is typed, like a shell, so that messages wait), stopped (by Ctrl-Z), ending (has
ended, and relay is still acting on its last output), unresponsive (its session does not answer: it is
starting, hangs, or was stopped itself). Next to the state: the question, "off the bus" when the agent's
messages cannot be sent or received, "account held" when its limit is reached or nobody is logged in, how many
of its messages are held, and why its supervision has called you; `relay explain NAME` gives the reasons.

A supervised agent may also be in backoff (has ended, and restarts by itself), waiting (continues by itself
after a limit) or held (continues when you say so). -a also lists agents that have ended: done, failed, off,
or gone (their processes were killed).

`relay top` keeps the list up to date on the screen. NO_COLOR turns colours off.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from relay import names
from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_list
from relay.control.agent_state import colour, duration, state
from relay.control.ended import ended
from relay.control.sessions import SessionInfo, claims, live
from relay.home import Home
from relay.messaging.user_inbox import number_of_unread, unread_sentence
from relay.supervision.records import Records
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser, "only this team")
    parser.add_argument("-a", "--all", action="store_true", help="include agents that have ended")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.team is not None and (doubt := unknown_team(Home.from_env(), args.team)):
        print(f"relay: {doubt}", file=sys.stderr)
    where = f" in team {args.team}" if args.team else ""
    print_list(
        args,
        _listed(args),
        SessionInfo.public,
        _row,
        header=("NAME", "TEAM", "AGENT", "PID", "STATE", "FOR", "DIRECTORY"),
        colours=lambda session: dict.fromkeys((0, 4), colour(session)),
        empty=f"No session is running{where}. Start one with `relay wrap COMMAND`.",
    )
    if args.json or "RELAY_SESSION" in os.environ:
        return 0
    if number := number_of_unread(Home.from_env().ledger, args.team):
        print(unread_sentence(number), file=sys.stderr)
    return 0


def _listed(args: argparse.Namespace) -> list[SessionInfo]:
    """Return the agents to list, by team and name: running ones, and with --all those that have ended."""
    home = Home.from_env()
    found = live(home, args.team)
    if not args.all:
        return found
    return sorted([*found, *ended(home, found, args.team)], key=lambda each: (each.team, each.name))


def unknown_team(home: Home, team: str) -> str:
    """Return a note about a `team` in which no agent runs or has run; "" otherwise. Raise InvalidName.

    This is not an error: a script may look before the team's first agent starts.
    """
    names.validate(team, "team")
    known = {each.team for each in claims(home)} | {each.team for each in Records(home).all()}
    if names.key(team) in {names.key(each) for each in known}:
        return ""
    teams = f"Teams: {', '.join(sorted(known))}." if known else ""
    return f"no agent has run in team {team!r}. {names.did_you_mean(team, known)}{teams}".rstrip()


def _row(session: SessionInfo) -> tuple[str, ...]:
    try:
        directory = str("~" / Path(session.cwd).relative_to(Path.home()))
    except ValueError:
        directory = session.cwd
    return (
        session.name,
        session.team,
        session.agent,
        str(session.agent_pid or ""),
        state(session),
        duration(session, time.time()),
        one_line(directory, None),
    )
