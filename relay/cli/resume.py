"""Start agents again, each with its last conversation.

A running agent is stopped first, as with `relay restart`. An agent that has ended, even before a reboot, is
started in the background; `relay attach NAME` attaches this terminal to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.cli import restart
from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.ended import ended_record
from relay.control.guard import user_only
from relay.control.resuming import continued
from relay.control.sessions import SessionInfo, claims, find
from relay.control.team_choice import fleet_team
from relay.dataclass import replace
from relay.errors import RelayError
from relay.home import Home
from relay.names import same, unique
from relay.supervision import fleet_file
from relay.supervision.policy import Supervision
from relay.supervision.records import AgentRecord, Records
from relay.supervision.restart import describe
from relay.supervision.start import start


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the agents, as `relay ps -a` lists them", nargs="+")
    add_team(parser)
    add_json(parser, "print the outcome for each, as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "resume", "an agent may not start another one.")
    running: list[SessionInfo] = []
    with Outcomes(args) as report:
        for name in unique(args.names):
            team = args.team or fleet_team(home, name)
            with report.attempt(name, name=name, team=team):
                if any(same(claim.name, name) for claim in claims(home, team)):
                    session = find(home, name, team)
                    record = Records(home).get(session.team, session.name)
                    if record is None or _command(home, record) is None:
                        raise RelayError("it has no conversation to resume. `relay restart` restarts it.")
                    running.append(session)
                else:
                    record = ended_record(home, name, team)
                    said = _resume(home, record)
                    report.done(said, name=record.name, team=record.team, outcome="resumed")
        restart.restart(home, running, report, now=False, how="resume")
    return 1 if report.failed else 0


def _env(home: Home, record: AgentRecord) -> Mapping[str, str]:
    """Return the environment that the agent's fleet file, if any, gives it. Raise ConfigError."""
    if not record.fleet:
        return {}
    path = Path(record.fleet)
    model = (record.options or {}).get("supervision") or {}
    agent = fleet_file.load(home, path.parent, path).find(model.get("model") or record.name)
    return {} if agent is None else agent.env


def _command(home: Home, record: AgentRecord) -> list[str] | None:
    """Return the command that resumes the agent's last conversation; None if there is none to resume."""
    return continued(home, record, record.command, Path(record.cwd))


def _resume(home: Home, record: AgentRecord) -> str:
    """Start an agent that has ended; return a sentence about it. Raise RelayError if that fails."""
    directory, command = Path(record.cwd), _command(home, record)
    if command is None:
        again = "`relay up` starts it afresh." if record.fleet else "`relay wrap` starts it afresh."
        raise RelayError(f"it has no conversation to resume in {directory}. {again}")
    given: dict[str, Any] = dict(record.options or {})
    options = [word for path in given.get("rules") or () for word in ("--rules", path)]
    flags = {"profile": "--agent", "broker": "--broker", "config": "--config", "task": "--task"}
    for name, flag in flags.items():
        if value := given.get(name):
            options += [flag, str(value)]
    supervision = replace(Supervision.from_json(given.get("supervision") or {}), fresh=record.command)
    outcome = start(record.name, record.team, command, directory, supervision, _env(home, record), options)
    if not outcome.ok:
        raise RelayError(outcome.text or f"it {describe(outcome.code)}.")
    return outcome.text
