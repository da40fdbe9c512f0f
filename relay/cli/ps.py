"""List the running sessions and what their agents do.

States: starting, working, ready (it waits for input and may be typed into), prompting (it asks a person
something), unsafe (it runs what is typed, as a shell does, so that messages wait), stopped (with Ctrl-Z),
ending (it has ended, and what it said last is still acted on). Beside the state: what it asks, "off the bus"
when its messages do not travel, and how many of them are held; `relay explain NAME` says why.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from relay.control.sessions import CONNECTING, SessionInfo, live
from relay.home import Home
from relay.text import one_line, printable_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--team", metavar="TEAM", help="this team only")
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(args: argparse.Namespace) -> int:
    sessions = live(Home.from_env(), args.team)
    if args.json:
        print(printable_json([session.public() for session in sessions], indent=2))
    elif not sessions:
        print("No session is running. Start one with `relay wrap COMMAND`.")
    else:
        rows: list[tuple[str, ...]] = [("NAME", "TEAM", "AGENT", "PID", "STATE", "FOR", "DIRECTORY")]
        rows += [_row(session) for session in sessions]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
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
    state = f"{session.state} ({', '.join(marks)})" if marks else session.state
    return (
        session.name,
        session.team,
        session.agent,
        str(session.pid),
        state,
        _ago(time.time() - session.since),
        one_line(directory, 50),
    )


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
