"""Give running agents a new session, without touching them.

The session is the process next to an agent that reads, acts and delivers.  The new one runs the installed
version of relay, rereads relay.config.py, relay.toml and the rules, and continues where the old one stopped.
It also replaces a session that hangs.  The agent and its terminal are not interrupted.
"""

from __future__ import annotations

import argparse
import time

from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.sessions import SESSION_TIMEOUT, SessionInfo, call, claims, find_claim
from relay.errors import RelayError, UsageError
from relay.home import Home
from relay.names import unique
from relay.session.active_config import ActiveConfig

STARTS = 30.0
"""Seconds a session may take, on a busy machine, to start or to fail for good after three tries."""

_SESSION_CHECK_EVERY = 0.02  # seconds between two checks for the new session


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the agents, as `relay ps` lists them")
    parser.add_argument("--all", action="store_true", help="every agent in this home")
    add_team(parser)
    add_json(parser, "print the result for each as a JSON list")


def run(args: argparse.Namespace) -> int:
    if bool(args.names) == args.all:
        raise UsageError("name the agents to reload, or use --all. `relay ps` lists them.")
    home = Home.from_env()
    if args.all:
        agents = [claim for claim in claims(home, args.team) if not claim.is_program]
        found = sorted(agents, key=lambda claim: (claim.team, claim.name))
    else:
        found = [find_claim(home, name, args.team) for name in unique(args.names)]
    if not (found or args.json):
        print("No agent is running.")
    with Outcomes(args) as report:
        for claim in found:
            _reload(home, claim, report)
    return 1 if report.failed else 0


def _reload(home: Home, claim: SessionInfo, report: Outcomes) -> None:
    """Make the agent's shim start another session, and wait until it is ready.

    Raise RelayError if it fails, or cannot use a file, so that what was in force before still is.
    """
    with report.attempt(claim.name, name=claim.name, team=claim.team):
        before = call(claim.shim, {"op": "reload"}, SESSION_TIMEOUT)["generation"]
        deadline = time.monotonic() + STARTS
        while True:
            status = call(claim.shim, {"op": "status"}, SESSION_TIMEOUT)
            if status["failed"]:
                raise RelayError(f"the new session failed: {status['failed']}. See session.log.")
            if status["generation"] > before and status["ready"]:
                break
            if time.monotonic() > deadline:
                raise RelayError("the new session is not ready yet. `relay ps` shows when it is.")
            time.sleep(_SESSION_CHECK_EVERY)
        session = call(claim.socket, {"op": "info"}, SESSION_TIMEOUT)["info"]["id"]
        if mistakes := ActiveConfig.load(home, session).mistakes:
            what = f"{claim.name} has a new session, but not all of its configuration."
            raise RelayError("\n".join((what, *mistakes)))
        fields = {"name": claim.name, "team": claim.team, "outcome": "reloaded", "session_pid": status["pid"]}
        report.done(f"{claim.name} has a new session (pid {status['pid']}).", **fields)
