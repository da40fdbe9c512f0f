"""Stop the agents of the fleet file, any agents they started, and those that the file no longer has.

Stops each agent like `relay stop`, before the agents that it depends on. `relay up` starts it again, unless
another agent had started it. NAME: only these agents.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from relay.cli import stop
from relay.cli.arguments import add_json, add_names
from relay.cli.output import Outcomes
from relay.control.fleet_start import another_starts, starting
from relay.control.fleet_status import left_over
from relay.control.guard import user_only
from relay.control.sessions import claims
from relay.dataclass import replace
from relay.errors import NoSuchSession, WorktreeError
from relay.home import Home
from relay.names import key, same, unique
from relay.supervision import fleet_file
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.plan import stop_order
from relay.supervision.records import Records
from relay.supervision.worktree import AgentWorktree, WorktreeSpec


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "these agents only (default: all)")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the fleet file")
    parser.add_argument("--now", action="store_true", help="kill immediately, without a closing prompt")
    add_json(parser, "print the outcome for each, as a JSON list")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "down", "an agent may not stop a fleet.")
    fleet = fleet_file.load(home, Path.cwd(), args.file, empty=True)
    records = Records(home)
    with Outcomes(args) as report:
        # Once nothing is being started, and before the first stop, which may take minutes: until an agent is
        # down, a session of the fleet would start it, and it could start others.
        with starting(home.ensure(), fleet.team, lambda: report.say(another_starts(fleet.team))):
            running = {key(claim.name) for claim in claims(home, fleet.team)}
            spawned, wanted = _spawned(fleet, records) & running, unique(args.names)
            left = [
                (record.team, record.name)
                for record in left_over(home, fleet)
                if not wanted or any(same(record.name, name) for name in wanted)
            ]
            gone = {key(name) for _, name in left if fleet.find(name) is None} - spawned
            order = list(left)
            if not wanted or (wanted := [name for name in wanted if key(name) not in gone]):
                order += [(fleet.team, name) for name in _order(fleet, spawned, wanted)]
            if not order:
                fleet_file.load(home, Path.cwd(), args.file)  # says that the file has no agents
            for team, name in order:
                _want_down(records, team, name)
        for _, name in left:
            report.say(f"{name} is no longer in {fleet.path}, and is ended, too.")
        for team, name in order:
            with report.attempt(name, name=name, team=team):
                if _stop(home, name, team, report, now=args.now):
                    _want_down(records, team, name, stopped=True)
                else:
                    report.done(f"{name} is not running.", name=name, team=team, outcome="not running")
            agent = fleet.find(name) if (team, name) not in left else None
            if agent is not None and agent.worktree is not None and agent.worktree.cleanup == "merged":
                _clean_up(home, fleet.team, agent, agent.worktree, report)
    return 1 if report.failed else 0


def _want_down(records: Records, team: str, name: str, *, stopped: bool = False) -> None:
    """Record that an agent is to be down.

    stopped: by this command; its session has recorded that as a `relay stop`. An agent that was stopped
    earlier stays so: the user's last word was about it alone.
    """
    record = records.get(team, name)
    if record is not None and (stopped or record.wanted == "up"):
        records.change(team, name, lambda record: replace(record, wanted="down", by="down"))


def _stop(home: Home, name: str, team: str, report: Outcomes, *, now: bool) -> bool:
    """Stop an agent; return False if it is not running."""
    try:
        session = stop.chosen(home, name, team, now=now)
    except NoSuchSession:
        return False
    stop.end(home, [session], report, now=now)
    return True


def _spawned(fleet: Fleet, records: Records) -> set[str]:
    """Return the keys (relay.names.key) of the agents that others in the fleet started."""
    path = str(fleet.path)
    return {key(each.name) for each in records.all(fleet.team) if each.parent and each.fleet == path}


def _order(fleet: Fleet, spawned: set[str], wanted: Sequence[str]) -> list[str]:
    """Return the `wanted` agents (empty: all), spawned ones first: they may work in others' worktrees."""
    if not wanted:
        return [*sorted(spawned), *stop_order(fleet)]
    first = [name for name in wanted if key(name) in spawned]
    rest = [name for name in wanted if key(name) not in spawned]
    return first + (stop_order(fleet, rest) if rest else [])


def _clean_up(home: Home, team: str, agent: FleetAgent, spec: WorktreeSpec, report: Outcomes) -> None:
    """Remove the worktree of an agent if it holds no work, and report what was done."""
    text, path = f"no worktree is left; its work is in {spec.base}.", None
    try:
        done = AgentWorktree(spec, agent.name, team=team, home=home, directory=agent.cwd).clean_up()
        path, kept = str(done.path), done.kept
        if kept:
            text = f"its worktree {path} is kept: {kept}"
    except WorktreeError as error:
        kept = str(error)
        text = f"its worktree is kept: {kept}"
    report.also(f"{agent.name}: {text}", worktree={"path": path, "kept": kept or None})
