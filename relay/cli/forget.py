"""Remove agents that have ended from `relay ps -a`.

Also removes what `relay resume` needs, and that you had stopped an agent: `relay up` starts it if the fleet
file has it. Messages, recordings, logs and memories stay. Plain programs leave the list by themselves after
an hour, other agents after a week; those of a fleet file stay as long as the file has them.
"""

from __future__ import annotations

import argparse

from relay.cli.arguments import add_json, add_names, add_team
from relay.cli.output import Outcomes
from relay.control.ended import ended_record
from relay.control.guard import user_only
from relay.control.sessions import claims
from relay.control.team_choice import fleet_team
from relay.errors import UsageError
from relay.home import Home
from relay.names import key, unique
from relay.supervision.records import AgentRecord, Records


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "the agents, as `relay ps -a` lists them")
    parser.add_argument("--all", action="store_true", help="all agents that have ended")
    add_team(parser)
    add_json(parser, "print the outcome for each, as a JSON list")


def run(args: argparse.Namespace) -> int:
    if bool(args.names) == args.all:
        raise UsageError("name the agents to forget, or use --all. `relay ps -a` lists them.")
    home = Home.from_env()
    user_only(home, "forget", "an agent may not remove others from the list.")
    records = Records(home)
    with Outcomes(args) as report:
        for name in unique(args.names):
            team = args.team or fleet_team(home, name)
            with report.attempt(name, name=name, team=team):
                _forget(records, ended_record(home, name, team), report)
        if args.all:
            running = {(key(claim.team), key(claim.name)) for claim in claims(home)}
            for record in records.all(args.team):
                if (key(record.team), key(record.name)) not in running:
                    _forget(records, record, report)
    return 1 if report.failed else 0


def _forget(records: Records, record: AgentRecord, report: Outcomes) -> None:
    records.forget(record.team, record.name)
    report.done(
        f"{record.name} is no longer listed.", name=record.name, team=record.team, outcome="forgotten"
    )
