"""Stop agents, and start them again under the same names, in the same terminals.

Stops each agent like `relay stop`, then starts it with the same command, environment and directory.
Attached terminals stay attached, and waiting messages go to the new agent.  `--now` kills it instead.
"""

from __future__ import annotations

import argparse
import time

from relay.cli.arguments import add_json, add_team
from relay.cli.output import Outcomes
from relay.control.sessions import PATIENCE, SessionInfo, call, find
from relay.errors import NoSuchSession, NotAllowed, RelayError
from relay.home import Home

_LOOK = 0.05  # seconds between two looks for the new agent


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="the agents, as `relay ps` lists them")
    parser.add_argument("--now", action="store_true", help="kill them immediately, without a closing prompt")
    add_team(parser)
    add_json(parser, "print the result for each as a JSON list")


def run(args: argparse.Namespace) -> int:
    return restart(args, resume=False)


def restart(args: argparse.Namespace, *, resume: bool) -> int:
    """Restart the agents of `args`; with their conversations, if they are to `resume` them."""
    home = Home.from_env()
    sessions = list(dict.fromkeys(find(home, name, args.team) for name in args.names))
    report = Outcomes(args)
    asked: list[tuple[SessionInfo, float]] = []
    for session in sessions:
        try:
            patience = float(
                session.ask({"op": "restart", "now": args.now, "resume": resume}, PATIENCE)["patience"]
            )
            asked.append((session, time.monotonic() + patience))
        except NotAllowed:
            raise
        except RelayError as error:
            report.failure(session.name, error, team=session.team)
    with report:
        for session, deadline in asked:
            try:
                pid = _again(session, deadline)
            except RelayError as error:
                report.failure(session.name, error, team=session.team)
            else:
                again = {"name": session.name, "team": session.team, "outcome": "restarted", "agent_pid": pid}
                report.done(f"{session.name} is running again (pid {pid}).", **again)
    return 1 if report.failed else 0


def _again(before: SessionInfo, deadline: float) -> int:
    """Wait for the agent that follows, and its session. Return the agent's process id."""
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
