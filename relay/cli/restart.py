"""Stop agents, and start them again under the same names, in the same terminals.

Stops each agent like `relay stop`, then starts it with the same command, environment and directory.
Attached terminals stay attached, and waiting messages go to the new agent.  `--now` kills it instead.
"""

from __future__ import annotations

import argparse
import time

from relay.cli.arguments import add_json, add_team, agent_name
from relay.cli.output import Outcomes
from relay.control.sessions import PATIENCE, SessionInfo, call, find
from relay.errors import NoSuchSession, RelayError
from relay.home import Home
from relay.names import unique

_LOOK = 0.05  # seconds between two checks for the new agent


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", type=agent_name, metavar="NAME", help="the agents, as `relay ps` lists them"
    )
    parser.add_argument("--now", action="store_true", help="kill them immediately, without a closing prompt")
    add_team(parser)
    add_json(parser, "print the result for each as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    sessions = [find(home, name, args.team) for name in unique(args.names)]
    with Outcomes(args) as report:
        restart(sessions, report, now=args.now, resume=False)
    return 1 if report.failed else 0


def restart(sessions: list[SessionInfo], report: Outcomes, *, now: bool, resume: bool) -> None:
    """Restart the agents of `sessions`, all at once, and report each.

    resume: continue their conversations. now: kill them.
    """
    asked: list[tuple[SessionInfo, float]] = []
    for session in sessions:
        with report.attempt(session.name, name=session.name, team=session.team):
            answer = session.ask({"op": "restart", "now": now, "resume": resume}, PATIENCE)
            asked.append((session, time.monotonic() + float(answer["patience"])))
    for session, deadline in asked:
        with report.attempt(session.name, name=session.name, team=session.team):
            pid = _again(session, deadline)
            again = {"name": session.name, "team": session.team, "outcome": "restarted", "agent_pid": pid}
            report.done(f"{session.name} is running again (pid {pid}).", **again)


def _again(before: SessionInfo, deadline: float) -> int:
    """Wait for the new agent and its session. Return the agent's process id."""
    while True:
        try:
            status = call(before.shim, {"op": "status"}, PATIENCE)
        except NoSuchSession:
            raise RelayError("it has ended and was not restarted. See session.log.") from None
        if status["restarts"] != before.restarts and (status["ready"] or status["failed"]):
            return int(status["agent_pid"])
        if time.monotonic() > deadline:
            raise RelayError("it has not restarted yet. `relay ps` shows when it has.")
        time.sleep(_LOOK)
