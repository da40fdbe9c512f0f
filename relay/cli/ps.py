"""List the running sessions and what their agents do.

States: starting, working, ready (it waits for input and may be typed into), prompting (it asks a person
something), unsafe (it runs what is typed, as a shell does, so that messages wait), stopped (with Ctrl-Z),
ending (it has ended, and what it said last is still acted on), unresponsive (its session does not answer: it
is only starting, or hangs, or was stopped itself). Beside the state: what it asks, "off the bus"
when its messages do not travel, and how many of them are held; `relay explain NAME` says why.

An agent that is supervised may also be in backoff or waiting (it has ended, and starts again by itself) or
held (it starts again when you say so). With -a, those that have ended are listed, too: done, failed, off, or
gone (its processes were killed).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from relay.cli.arguments import add_json, add_team
from relay.cli.output import print_list
from relay.control.ended import ended
from relay.control.sessions import CONNECTING, SessionInfo, live
from relay.home import Home
from relay.supervision.restart import span
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    add_team(parser, "this team only")
    parser.add_argument("-a", "--all", action="store_true", help="list agents that have ended, too")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    found = live(home, args.team)
    if args.all:
        found = sorted([*found, *ended(home, found, args.team)], key=lambda each: (each.team, each.name))
    print_list(
        args,
        found,
        SessionInfo.public,
        _row,
        header=("NAME", "TEAM", "AGENT", "PID", "STATE", "FOR", "DIRECTORY"),
        empty="No session is running. Start one with `relay wrap COMMAND`.",
    )
    return 0


def _row(session: SessionInfo) -> tuple[str, ...]:
    try:
        directory = f"~/{Path(session.cwd).relative_to(Path.home())}"
    except ValueError:
        directory = session.cwd
    marks = [session.prompt] if session.prompt else []
    if session.bus not in {"", "connected", CONNECTING}:
        marks.append("off the bus")
    if session.held:
        marks.append(f"{session.held} held")
    if session.reason and session.state != "off":
        marks.append(one_line(session.reason, 60))
    if session.next_try is not None:
        marks.append(f"next try in {span(session.next_try - time.time())}")
    state = f"{session.state} ({', '.join(marks)})" if marks else session.state
    return (
        session.name,
        session.team,
        session.agent,
        str(session.pid or ""),
        state,
        "" if session.since is None else _ago(time.time() - session.since),
        one_line(directory, 50),
    )


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
