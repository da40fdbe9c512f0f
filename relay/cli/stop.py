"""Stop sessions, politely at first.

The agent gets a closing prompt and time to act on it (closing_seconds), then SIGTERM, SIGHUP and SIGKILL,
each after stop_seconds.  `--now` skips the waiting, and also stops a session that hangs.
If an agent has no working session, its shim sends the signals.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from contextlib import suppress

from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.sessions import (
    SESSION_TIMEOUT,
    UNRESPONSIVE,
    SessionInfo,
    call,
    find,
    find_claim,
    live,
    works,
)
from relay.dataclass import replace
from relay.errors import NoSuchSession, NotAllowed, RelayError, SessionUnresponsive, UsageError
from relay.home import Home
from relay.names import unique
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import ENDED, Phase

HANGS = 1.0
"""Seconds without an answer after which `--now` assumes that a session hangs."""

_END_CHECK_EVERY = 0.02  # seconds between two checks for the end of a session, without pidfd_open(2)
_LAST_STEPS = 10.0  # seconds for the last steps of a session that no longer listens


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the sessions, as `relay ps` lists them")
    parser.add_argument("--all", action="store_true", help="every agent in this home")
    parser.add_argument("--now", action="store_true", help="kill immediately, without a closing prompt")
    add_team(parser)
    add_json(parser, "print the result for each as a JSON list")


def run(args: argparse.Namespace) -> int:
    if bool(args.names) == args.all:
        raise UsageError("name the sessions to stop, or use --all. `relay ps` lists them.")
    home = Home.from_env()
    if args.all:
        found = live(home, args.team, HANGS if args.now else SESSION_TIMEOUT)
        sessions = [session for session in found if not session.is_program]
        if not (sessions or args.json):
            print("No agent is running.")
    else:
        # Each once: a session that is asked twice kills its agent.
        sessions = [chosen(home, name, args.team, now=args.now) for name in unique(args.names)]
    with Outcomes(args) as report:
        end(home, sessions, report, now=args.now)
    return 1 if report.failed else 0


def end(home: Home, sessions: list[SessionInfo], report: Outcomes, *, now: bool) -> None:
    """End the agents of `sessions`, all at once, and report each."""
    records = Records(home)
    waiting: list[tuple[SessionInfo, AgentRecord | None, int, int, float]] = []
    for session in sessions:
        record = records.get(session.team, session.name)
        if not (pid := session.terminal_pid or session.pid):
            unknown = RelayError(f"{session.name} is just starting or ending. Try again in a moment.")
            report.failure(session.name, unknown, name=session.name, team=session.team)
            continue
        try:
            watch = os.pidfd_open(pid)  # readable when the process ends
        except (OSError, AttributeError):  # the system has no such call
            watch = -1
        try:
            if session.state == UNRESPONSIVE and (now or not works(session)):
                order = {"op": "stop", "now": now}
                patience = float(call(session.shim, order, SESSION_TIMEOUT)["patience"])
            else:
                for _ in range(2 if now else 1):
                    patience = float(session.ask({"op": "stop"}, SESSION_TIMEOUT)["patience"])
        except NoSuchSession:
            patience = _LAST_STEPS  # its agent has ended by itself
        except NotAllowed:
            raise
        except RelayError as error:
            report.failure(session.name, error, name=session.name, team=session.team)
            continue
        waiting.append((session, record, pid, watch, patience))
    for session, record, pid, watch, patience in waiting:
        if _ended(pid, watch, patience):
            said, outcome = f"{session.name} has ended.", "ended"
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            said, outcome = f"{session.name} did not stop within {patience:g} s and was killed.", "killed"
        report.done(said, name=session.name, team=session.team, outcome=outcome)
        if record is not None:
            _note_stopped(records, record)


def _note_stopped(records: Records, before: AgentRecord) -> None:
    """Record that an agent was stopped, if its session did not live to do so."""

    def stopped(record: AgentRecord) -> AgentRecord:
        if record.session != before.session or record.phase in ENDED:
            return record  # it has recorded that, or the agent runs again
        ended = record.enter(Phase.OFF, time.time(), "stopped", next_try=None, note="")
        return replace(ended, wanted="down", by="stop")

    try:
        records.change(before.team, before.name, stopped)
    except RelayError as error:
        print(f"{before.name}: {error}", file=sys.stderr)


def chosen(home: Home, name: str, team: str | None, *, now: bool) -> SessionInfo:
    """Return the session to end. Raise NoSuchSession, or SessionUnresponsive for one that hangs."""
    try:
        return find(home, name, team, HANGS if now else SESSION_TIMEOUT)
    except SessionUnresponsive:
        claim = find_claim(home, name, team)
        if now or not works(claim):
            return claim
        raise


def _ended(pid: int, watch: int, patience: float) -> bool:
    """Wait until `pid` ends. Return False if it has not within `patience` seconds."""
    if watch >= 0:
        ended = bool(select.select([watch], [], [], patience)[0])
        os.close(watch)
        return ended
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(_END_CHECK_EVERY)
    return False
