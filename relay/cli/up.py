"""Start the agents of the fleet file that are not running.

The fleet file is the relay.toml of this folder or the project around it, or the one that -f names
(docs/FLEET.md). Agents start in the order of their dependencies. Running agents are left alone, and agents
that you have stopped stay stopped unless you name them. An unfinished agent resumes its conversation. NAME:
only these agents, and those they depend on. After a reboot, `relay service` runs this with --boot, which also
skips agents that are done and those that `relay down` stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from relay.cli import join
from relay.cli.arguments import add_json, add_names
from relay.cli.output import Outcomes
from relay.control.fleet_start import another_starts, start_agent, starting
from relay.control.fleet_status import FleetStatus, left_over
from relay.control.guard import user_only
from relay.errors import WorktreeError
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.names import key
from relay.session import preflight
from relay.supervision import fleet_file
from relay.supervision.due import enqueue, postpone
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.plan import PlanStep, plan
from relay.supervision.records import Records
from relay.supervision.restart import describe
from relay.supervision.states import Phase, in_words

_AGENT_CHECK_EVERY = 0.2  # seconds between two checks of agents that others wait for

_SAID = {
    "start": "would be started",
    "running": "is already running",
    "changed": "still runs with its previous definition; `relay down {}` and `relay up {}` apply the changes",
    "stopped": "was stopped by you; `relay up {}` starts it",
    "down": "is not started at boot; `relay up {}` starts it",
    "scheduled": "starts on its schedule; `relay up {}` starts it now",
    "full": "waits: max_running agents are running",
    "removed": "is running, but is no longer in the fleet file; `relay down {}` ends it",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "these agents only (default: all)")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the fleet file")
    parser.add_argument("--wait", action="store_true", help="wait until each is ready or has ended")
    parser.add_argument(
        "--due",
        action="store_true",
        help="start only what is waiting for its schedule or for a free place, as relay does",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start new conversations, with the first prompts"
    )
    parser.add_argument(
        "--boot",
        action="store_true",
        help="skip agents that are done or that `relay down` stopped, too: for use after a reboot",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, but do nothing")
    add_json(parser, "print a JSON list of what was done for each agent")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "up", "an agent may not start a fleet.")
    fleet = fleet_file.load(home, Path.cwd(), args.file)
    with Outcomes(args) as report:
        upstart = _Upstart(home, fleet, report, fresh=args.fresh, boot=args.boot)
        if args.due:
            args.names = upstart.status().due(time.time())
            if not args.names:
                return 0
        if not (args.names or args.boot):
            upstart.tell_left_over()
        if args.dry_run:
            for step in upstart.plan(upstart.status(), args.names):
                upstart.tell(step)
        else:
            for text in _mistakes(fleet):
                print(f"relay: {text}", file=sys.stderr, flush=True)
            upstart.bring_up(args.names, only_due=args.due)
            if args.wait:
                upstart.await_ready()
    return 1 if report.failed else 0


def _mistakes(fleet: Fleet) -> list[str]:
    """Return the notices about the configuration of all agents, each once."""
    places = {(fleet.path.parent, ()), *((agent.cwd, agent.rules) for agent in fleet.agents.values())}
    found = (
        text
        for directory, rules in sorted(places)
        for text in preflight.notices("", [*map(str, rules)], directory)
    )
    return list(dict.fromkeys(found))


class _Upstart:
    """Brings one fleet up, and reports what was done for each agent."""

    def __init__(self, home: Home, fleet: Fleet, report: Outcomes, *, fresh: bool, boot: bool) -> None:
        self._home = home.ensure()
        self._fleet = fleet
        self._report = report
        self._fresh = fresh
        self._boot = boot
        self._started: dict[str, float] = {}  # started agents, and until when to wait for each
        self._failed: set[str] = set()

    def status(self) -> FleetStatus:
        return FleetStatus.now(self._home, self._fleet)

    def plan(self, status: FleetStatus, names: list[str]) -> list[PlanStep]:
        standings = status.standings(boot=self._boot, tried=self._started)
        return plan(self._fleet, standings, names, others=status.others())

    def bring_up(self, names: list[str], *, only_due: bool) -> None:
        """Start the agents, each once its dependencies have reached the required state.

        only_due: as long as they are due, without waiting: what cannot start yet is due once it can.
        """
        told: set[str] = set()
        said: set[str] = set()
        later: set[str] = set()  # these start when there is room, or their schedule says so
        first, team = True, self._fleet.team
        self._introduce(self.plan(self.status(), names))
        while True:
            # Under a lock: a session of the fleet also starts agents that wait for room.
            with starting(self._home, team, lambda: self._report.say(another_starts(team))):
                status = self.status()
                if only_due and not (names := status.due(time.time())):
                    return  # `relay down` came first
                steps = self.plan(status, names)
                starts = [step for step in steps if step.kind == "start" and step.agent not in told]
                for step in steps:
                    if step.kind not in {"start", "wait"} and step.agent not in told | set(self._started):
                        told.add(step.agent)
                        self.tell(step)
                        if step.kind in {"scheduled", "full"}:
                            later.add(step.agent)
                            self._queue(step)
                for step in starts:
                    if not first:
                        time.sleep(self._fleet.start_interval)  # logins race
                    first = False
                    told.add(step.agent)
                    self._start(self._fleet.agents[step.agent])
                waiting = [step for step in steps if step.kind == "wait" and step.agent not in told]
                if only_due and not starts:
                    for step in waiting:
                        self._postpone(step)
                    return
            if starts:
                continue
            if not waiting:
                return
            waiting_here = {step.agent for step in waiting}
            for step in waiting:  # dependencies first
                needs = (step.waits_for or {}).keys()
                if (why := self._in_vain(step, status, waiting_here - told | later)) is not None:
                    told.add(step.agent)
                    self._fail(step.agent, why)
                elif needs & later:
                    later.add(step.agent)
                    told.add(step.agent)
                    self._postpone(step)
                    self._say(step.agent, "wait", f"starts once {_needs(step)}")
                elif step.agent not in said:
                    said.add(step.agent)
                    self._report.say(f"{step.agent} waits until {_needs(step)}.")
            time.sleep(_AGENT_CHECK_EVERY)

    def _introduce(self, steps: list[PlanStep]) -> None:
        """Register agents that are about to start: messages to them wait, so running agents can write."""
        with Ledger(self._home.ledger) as ledger:
            for step in steps:
                if step.kind in {"start", "wait", "scheduled", "full"}:
                    ledger.registry.register(self._fleet.team, step.agent)

    def await_ready(self) -> None:
        """Wait until each started agent is ready, asks something, or has ended."""
        left, told = dict(self._started), False
        while left:
            status = self.status()
            for name, deadline in list(left.items()):
                session, record = status.sessions.get(key(name)), status.records.get(key(name))
                if session is None:
                    del left[name]
                    if record is not None and record.phase is Phase.DONE:
                        self._say(name, "done", f"is done: it {status.end(name)}")
                    else:
                        self._fail(name, f"has ended: it {status.end(name)}")
                elif status.is_up(name):
                    del left[name]
                elif session.state in {"prompting", "held", "waiting"} or time.monotonic() > deadline:
                    del left[name]
                    self._fail(name, f"is not ready: it is {in_words(session.state)}")
            if left and not told:
                told = True
                self._report.say(
                    f"Waiting until {', '.join(left)} {'is' if len(left) == 1 else 'are'} ready."
                )
            time.sleep(_AGENT_CHECK_EVERY if left else 0)

    def tell(self, step: PlanStep) -> None:
        if step.kind == "wait":
            text = f"would be started once {_needs(step)}"
        else:
            said = "down" if self._boot and step.kind == "stopped" else step.kind
            text = _SAID[said].format(step.agent, step.agent)
        self._say(step.agent, step.kind, text)

    def tell_left_over(self) -> None:
        for record in left_over(self._home, self._fleet):
            self._say(record.name, "removed", _SAID["removed"].format(record.name))

    def _queue(self, step: PlanStep) -> None:
        """Record that an agent is wanted, and waits for its schedule or for room."""
        agent, now = self._fleet.agents[step.agent], time.time()
        Records(self._home).change(
            self._fleet.team,
            agent.name,
            lambda record: enqueue(record, agent, now, scheduled=step.kind == "scheduled"),
        )

    def _postpone(self, step: PlanStep) -> None:
        """Record that an agent is wanted, and waits for others."""
        agent, now = self._fleet.agents[step.agent], time.time()
        why = f"it is waiting until {_needs(step)}"
        Records(self._home).change(
            self._fleet.team, step.agent, lambda record: postpone(record, agent, now, why)
        )

    def _start(self, agent: FleetAgent) -> None:
        for channel in agent.channels:
            join.change("join", argparse.Namespace(name=agent.name, team=self._fleet.team, channel=channel))
        try:
            started = start_agent(
                self._home,
                self._fleet,
                agent,
                fresh=self._fresh,
                progress=lambda line: self._report.say(f"{agent.name}: {line}"),
            )
        except WorktreeError as error:
            self._fail(agent.name, str(error))
            return
        outcome = started.outcome
        if outcome.ok:
            self._started[agent.name] = time.monotonic() + agent.supervision.start_timeout
            text = outcome.text or f"{agent.name} was started."
            if started.lost:
                text += " It starts a new conversation: the last one cannot be resumed."
            self._say(agent.name, "resumed" if started.resumed else "started", text.rstrip("."))
        else:
            text = outcome.text.rstrip(".") or describe(outcome.code)
            if not text.startswith(agent.name) and outcome.text:
                text = f"is not started: {text}"
            self._fail(agent.name, text, code=outcome.code)

    def _in_vain(self, step: PlanStep, status: FleetStatus, waiting: set[str]) -> str | None:
        """Return why the dependency of `step` cannot be met; None if it may be, as by those in `waiting`."""
        for name, condition in (step.waits_for or {}).items():
            if name in waiting:
                continue
            timeout = self._fleet.agents[name].supervision.start_timeout
            deadline = self._started.setdefault(name, time.monotonic() + timeout)
            late = key(name) in status.sessions and time.monotonic() > deadline
            why = status.in_vain(name, condition, late=late)
            if why is None and name in self._failed and key(name) not in status.sessions:
                why = "that is not started"  # an earlier run met the condition
            if why is not None:
                return f"is not started: it waits until {name} is {condition}, and {why}"
        return None

    def _say(self, name: str, action: str, text: str, **more: Any) -> None:
        self._report.done(_sentence(name, text), name=name, action=action, text=text, **more)

    def _fail(self, name: str, text: str, **more: Any) -> None:
        self._failed.add(name)
        self._report.complain(_sentence(name, text))
        self._report.add(name=name, action="failed", text=text, **more)


def _sentence(name: str, text: str) -> str:
    return text if text.startswith(name) else f"{name} {text}."


def _needs(step: PlanStep) -> str:
    return ", ".join(f"{name} is {condition}" for name, condition in (step.waits_for or {}).items())
