"""Stop agents, and start them again under the same names, in the same terminals.

Stops each agent like `relay stop`, then starts it with the same command, environment and directory, in its
conversation if it can be resumed. Attached terminals stay attached, and waiting messages go to the new agent.
`--fresh` starts a new conversation, with the first prompt. `--now` kills the agent instead.
"""

from __future__ import annotations

import argparse
import time

from relay.agents import catalog
from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.sessions import SESSION_TIMEOUT, SessionInfo, call, find
from relay.errors import ConfigError, NoSuchSession, RelayError
from relay.home import Home
from relay.lifecycle import Order
from relay.names import unique

_AGENT_CHECK_EVERY = 0.05  # seconds between two checks for the new agent


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the agents, as `relay ps` lists them", nargs="+")
    parser.add_argument("--now", action="store_true", help="kill them immediately, without a closing prompt")
    parser.add_argument(
        "--fresh", action="store_true", help="start new conversations, with the first prompts"
    )
    add_team(parser)
    add_json(parser, "print the result for each as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    sessions = [find(home, name, args.team) for name in unique(args.names)]
    with Outcomes(args) as report:
        restart(home, sessions, report, now=args.now, how="fresh" if args.fresh else "restart")
    return 1 if report.failed else 0


def restart(home: Home, sessions: list[SessionInfo], report: Outcomes, *, now: bool, how: Order) -> None:
    """Restart the agents of `sessions`, all at once, and report each. now: kill them."""
    asked: list[tuple[SessionInfo, float]] = []
    for session in sessions:
        with report.attempt(session.name, name=session.name, team=session.team):
            answer = session.ask({"op": "restart", "now": now, "how": how}, SESSION_TIMEOUT)
            asked.append((session, time.monotonic() + float(answer["patience"])))
    for session, deadline in asked:
        with report.attempt(session.name, name=session.name, team=session.team):
            pid, resumes = _again(session, deadline)
            kept = "with its" if resumes else "with a new" if _converses(home, session.agent) else ""
            again = {"name": session.name, "team": session.team, "outcome": "restarted", "agent_pid": pid}
            report.done(
                f"{session.name} is running again (pid {pid}){f', {kept} conversation' if kept else ''}.",
                **again,
                resumed=resumes,
            )


def _converses(home: Home, agent: str) -> bool:
    try:
        return bool(catalog.load(agent, home).resume.words)
    except ConfigError:
        return False


def _again(before: SessionInfo, deadline: float) -> tuple[int, bool]:
    """Wait for the new agent; return its process id, and whether it continues the conversation."""
    while True:
        try:
            status = call(before.shim, {"op": "status"}, SESSION_TIMEOUT)
        except NoSuchSession:
            raise RelayError("it has ended and was not restarted. See session.log.") from None
        if status["restarts"] != before.restarts and (status["ready"] or status["failed"]):
            return int(status["agent_pid"]), bool(status["resumes"])
        if time.monotonic() > deadline:
            raise RelayError("it has not restarted yet. `relay ps` shows when it has.")
        time.sleep(_AGENT_CHECK_EVERY)
