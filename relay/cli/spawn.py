"""Start another agent of the fleet, from within an agent.

The agent's fleet file must allow it, with `spawn = true` below [fleet] (docs/FLEET.md). NAME is the name of
the new agent. COMMAND is an agent in the file to copy, or the program that such an agent runs; options,
environment and limits come from the file. TASK is its first prompt. It runs in the folder and team of the
agent that starts it; that agent learns how it ended, and may stop it.

  relay spawn Tester claude Write tests for the parser
  relay release Tester
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from relay.cli import join
from relay.cli.arguments import add_json, add_team, agent_name
from relay.cli.output import print_json
from relay.control.caller import Caller, caller
from relay.control.fleet_start import start_agent, starting
from relay.control.guard import user_only
from relay.control.sessions import call, claims
from relay.dataclass import asdict, replace
from relay.errors import NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.hooks.commands import NO_SPAWN
from relay.names import key, same
from relay.supervision import fleet_file
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.notebook import Notebook
from relay.supervision.records import AgentRecord, Records
from relay.supervision.restart import describe
from relay.supervision.spawn import WINDOW, SpawnFacts, SpawnRequest, permit

START_TIMEOUT = 300.0
"""Seconds for the session's answer: other agents may be starting first."""

_LONGEST = 240.0  # seconds to wait for other starts: less than the session waits for this one
_SETTLED = 10.0  # seconds the session of an agent that failed at once has to record it
_RECORD_CHECK_EVERY = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", type=agent_name, metavar="NAME", help=argparse.SUPPRESS
    )  # how NAME's session runs it
    add_team(parser, argparse.SUPPRESS)
    parser.add_argument("-f", "--file", type=Path, help=argparse.SUPPRESS)
    add_json(parser, "print a JSON object")
    parser.add_argument("name", type=agent_name, metavar="NAME", help="the new agent's name")
    parser.add_argument("command", metavar="COMMAND", help="an agent in the fleet file, or a program")
    parser.add_argument("task", metavar="TASK", nargs=argparse.REMAINDER, help="its first prompt")


def run(args: argparse.Namespace) -> int:
    home, request = Home.from_env(), SpawnRequest(args.name, args.command, " ".join(args.task))
    if args.by is not None:
        user_only(home, "spawn", "an agent starts others with `relay spawn NAME COMMAND TASK`.")
        print(_spawn(home, replace(request, task=sys.stdin.read()), args))
        return 0
    if (own := caller(home)) is None:
        raise UsageError(
            "only an agent can start another one like this. To start one yourself, use `relay wrap -d -n "
            "NAME COMMAND`."
        )
    said = ask_session(own, {"op": "spawn", **asdict(request)})
    if said is None:
        raise NotAllowed(NO_SPAWN)
    if args.json:
        print_json({"name": args.name, "team": own.team, "outcome": "started", "text": said})
    else:
        print(said)
    return 0


def ask_session(own: Caller, request: dict[str, str]) -> str | None:
    """Return the answer of the session of `own`; None if that agent may not start and end others."""
    try:
        return str(call(own.socket, request, START_TIMEOUT)["text"])
    except UsageError:  # it does not know the operation
        return None


def _spawn(home: Home, request: SpawnRequest, args: argparse.Namespace) -> str:
    """Start the agent for the agent `args.by`, if the fleet file permits it; return a sentence about it."""
    fleet = fleet_file.load(home, Path.cwd(), args.file)
    records, team = Records(home), args.team
    spawner = records.get(team, args.by) or AgentRecord(args.by, team)
    notebook = Notebook(home, team, spawner.name, "spawned", run="")
    with starting(home, team, seconds=_LONGEST):
        now = time.time()
        times = [at for at in notebook.read().get("times", []) if now - WINDOW < at <= now]
        agent = permit(fleet, request, _facts(home, fleet, records, spawner, request.name, len(times)))
        if times:
            time.sleep(max(0.0, times[-1] + fleet.start_interval - now))  # logins race
        notebook.write({"times": [*times, time.time()]})
        for channel in agent.channels:
            join.change("join", argparse.Namespace(name=agent.name, team=team, channel=channel))
        _start(home, replace(fleet, team=team), agent)
    model = agent.supervision.model
    return f"{agent.name} was started with the settings of {model}. You will be told when it ends."


def _facts(
    home: Home, fleet: Fleet, records: Records, spawner: AgentRecord, name: str, recent: int
) -> SpawnFacts:
    live = {key(claim.name) for claim in claims(home, spawner.team)}
    of_fleet = {key(record.name) for record in records.all(spawner.team) if record.fleet == str(fleet.path)}
    record = next((each for each in records.all(spawner.team) if same(each.name, name)), None)
    return SpawnFacts(spawner, record, key(name) in live, len(live & of_fleet), recent)


def _start(home: Home, fleet: Fleet, agent: FleetAgent) -> None:
    """Start the agent. Raise RelayError if it could not be started, or failed at once."""
    outcome = start_agent(home, fleet, agent, fresh=True, progress=print).outcome
    if outcome.ok:
        return
    records, team = Records(home), fleet.team
    deadline = time.monotonic() + _SETTLED
    while time.monotonic() < deadline and any(same(each.name, agent.name) for each in claims(home, team)):
        time.sleep(_RECORD_CHECK_EVERY)
    record = records.get(team, agent.name)
    if record is not None and same(record.parent, agent.supervision.parent):  # reported below
        records.change(team, agent.name, lambda record: replace(record, reported=True))
    raise RelayError(outcome.text or f"{agent.name} {describe(outcome.code)}.")
