"""Start the agents of the fleet file that do not run.

The fleet file is the relay.toml of this folder or of the project around it, or the one that -f names
(docs/FLEET.md). Agents are started in the order of their dependencies. One that runs is left as it is, and
one that you have stopped stays stopped, unless you name it. An agent that was not done goes on with its
conversation. NAME: only these, and what they depend on. `relay service` runs it with --boot after a reboot:
agents that are done, and those that `relay down` has ended, are left then, too.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.cli import join
from relay.cli.arguments import add_json
from relay.cli.output import print_json
from relay.control.guard import person_only
from relay.control.resuming import continued
from relay.control.sessions import UNRESPONSIVE, SessionInfo, live
from relay.errors import WorktreeError
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.names import key
from relay.supervision import fleet_file, worktree
from relay.supervision.due import due
from relay.supervision.fleet import Condition, Fleet, FleetAgent
from relay.supervision.plan import PlanStep, Standing, plan
from relay.supervision.records import AgentRecord, Records
from relay.supervision.restart import describe
from relay.supervision.start import StartOrder, start
from relay.supervision.states import ENDED, PAUSED, Phase

_LOOK = 0.2  # seconds between two looks at agents that others wait for

_SAID = {
    "start": "would be started",
    "running": "runs already",
    "changed": "runs as the file had it before; `relay down {}` and `relay up {}` apply the changes",
    "stopped": "was stopped by you; `relay up {}` starts it",
    "down": "is left as it ended; `relay up {}` starts it",
    "scheduled": "is started by its schedule; `relay up {}` starts it now",
    "full": "waits: max_running agents run",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="these agents only (default: all)")
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the fleet file")
    parser.add_argument("--wait", action="store_true", help="wait until each has become ready, or has ended")
    parser.add_argument(
        "--due", action="store_true", help="start only what waits for its schedule or for room, as relay does"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="begin new conversations, with the first prompts"
    )
    parser.add_argument(
        "--boot",
        action="store_true",
        help="leave agents that are done, or that `relay down` has ended, too: after a reboot",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add_json(parser, "print a JSON list: what was done about each agent")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    person_only(home, "up", "an agent may not start a fleet.")
    fleet = fleet_file.load(home, Path.cwd(), args.file)
    upstart = _Upstart(home, fleet, quiet=args.json, fresh=args.fresh, boot=args.boot)
    if args.due:
        args.names = upstart.due()
        if not args.names:
            return 0
    if args.dry_run:
        for step in plan(fleet, upstart.standings(), args.names, others=upstart.others()):
            upstart.tell(step)
    else:
        upstart.bring_up(args.names)
        if args.wait:
            upstart.await_ready()
    if args.json:
        print_json(upstart.results)
    return 1 if upstart.failed else 0


class _Upstart:
    """Brings one fleet up. results: what was done about each agent, as JSON. failed: something failed."""

    def __init__(self, home: Home, fleet: Fleet, *, quiet: bool, fresh: bool, boot: bool) -> None:
        self._home = home.ensure()
        self._fleet = fleet
        self._quiet = quiet
        self._fresh = fresh
        self._boot = boot
        self._records = Records(home)
        self._started: dict[str, float] = {}  # the agents that were started, and until when to wait for each
        self.results: list[dict[str, Any]] = []
        self.failed = False

    def bring_up(self, names: list[str]) -> None:
        """Start what is to run, each agent once all that it depends on has come that far."""
        told: set[str] = set()
        said: set[str] = set()
        first = True
        self._introduce(plan(self._fleet, self.standings(), names, others=self.others()))
        while True:
            steps = plan(self._fleet, self.standings(), names, others=self.others())
            due = [step for step in steps if step.kind == "start" and step.agent not in told]
            for step in steps:
                if step.kind not in {"start", "wait"} and step.agent not in told | set(self._started):
                    told.add(step.agent)
                    self.tell(step)
                    if step.kind in {"scheduled", "full"}:
                        self._queue(step)
            for step in due:
                if not first:
                    time.sleep(self._fleet.start_interval)  # logins race
                first = False
                told.add(step.agent)
                self._start(self._fleet.agents[step.agent])
            waiting = [step for step in steps if step.kind == "wait" and step.agent not in told]
            if due:
                continue
            if not waiting:
                return
            for step in waiting:
                if (why := self._in_vain(step)) is not None:
                    told.add(step.agent)
                    self._fail(step.agent, why)
                elif step.agent not in said:
                    said.add(step.agent)
                    self._print(f"{step.agent} waits until {_needs(step)}.")
            time.sleep(_LOOK)

    def _introduce(self, steps: list[PlanStep]) -> None:
        """Have messages wait for agents that are about to start: those that run may write to them."""
        with Ledger(self._home.ledger) as ledger:
            for step in steps:
                if step.kind in {"start", "wait", "scheduled", "full"}:
                    ledger.registry.register(self._fleet.team, step.agent)

    def await_ready(self) -> None:
        """Wait until each agent that was started has become ready, asks something, or has ended."""
        left = dict(self._started)
        while left:
            sessions = self._sessions()
            for name, deadline in list(left.items()):
                session, record = sessions.get(key(name)), self._records.get(self._fleet.team, name)
                if session is not None and _is_up(session, record):
                    del left[name]
                elif session is None:
                    del left[name]
                    if record is not None and record.phase is Phase.DONE:
                        self._say(name, "done", f"is done: it {_end(record)}")
                    else:
                        self._fail(name, f"has ended: it {_end(record)}")
                elif session.state in {"prompting", "held", "waiting"} or time.monotonic() > deadline:
                    del left[name]
                    self._fail(name, f"is not ready: it is {session.state}")
            time.sleep(_LOOK if left else 0)

    def tell(self, step: PlanStep) -> None:
        """Say what is, or would be, done about one agent."""
        if step.kind == "wait":
            text = f"would be started once {_needs(step)}"
        else:
            said = "down" if self._boot and step.kind == "stopped" else step.kind
            text = _SAID[said].format(step.agent, step.agent)
        self._say(step.agent, step.kind, text)

    def others(self) -> int:
        """Return the number of agents that run, and are not in the fleet file any more."""
        path, count = str(self._fleet.path), 0
        for name in self._sessions():
            record = self._records.get(self._fleet.team, name)
            count += record is not None and record.fleet == path and self._fleet.find(record.name) is None
        return count

    def standings(self) -> dict[str, Standing]:
        """Return how each agent of the fleet stands now."""
        sessions, found = self._sessions(), {}
        for name, agent in self._fleet.agents.items():
            record, session = self._records.get(self._fleet.team, name), sessions.get(key(name))
            found[name] = Standing(
                running=session is not None,
                changed=session is not None
                and record is not None
                and record.digest != agent.supervision.digest,
                tried=name in self._started,
                stopped=record is not None and self._is_left(record),
                reached=_reached(session, record),
            )
        return found

    def _is_left(self, record: AgentRecord) -> bool:
        """Return True for an agent that only its name starts."""
        if record.wanted == "down":
            return self._boot or record.by == "stop"
        return self._boot and record.phase is Phase.DONE  # a reboot gives no task again

    def due(self) -> list[str]:
        """Return the agents that are to start now by the clock, or as there is room again."""
        records = {key(record.name): record for record in self._records.all(self._fleet.team)}
        return due(self._fleet, records, self._sessions(), time.time())

    def _queue(self, step: PlanStep) -> None:
        """Note that an agent is wanted, and waits for its schedule or for room."""
        agent, now, scheduled = self._fleet.agents[step.agent], time.time(), step.kind == "scheduled"

        def queue(record: AgentRecord) -> AgentRecord:
            known = {Phase.QUEUED, *ENDED} if scheduled else {Phase.QUEUED}
            if record.phase in known and record.wanted == "up" and record.scheduled:
                return record
            about = {"cwd": str(agent.cwd), "command": agent.command, "fleet": agent.supervision.fleet}
            why = "it waits for its schedule" if scheduled else "max_running agents run"
            queued = record.enter(Phase.QUEUED, now, why, **about)
            since = record.scheduled or now
            return replace(queued, wanted="up", by="up", supervised=True, scheduled=since)

        self._records.change(self._fleet.team, step.agent, queue)

    def _sessions(self) -> dict[str, SessionInfo]:
        return {key(session.name): session for session in live(self._home, self._fleet.team)}

    def _start(self, agent: FleetAgent) -> None:
        team = self._fleet.team
        for channel in agent.channels:
            join.change("join", argparse.Namespace(name=agent.name, team=team, channel=channel))
        try:
            directory = self._prepare(agent)
        except WorktreeError as error:
            why = f"its worktree could not be prepared: {error}"
            self._records.change(
                team, agent.name, lambda record: record.enter(Phase.HELD, time.time(), why, supervised=True)
            )
            self._fail(agent.name, why)
            return
        command = None if self._fresh else self._resumed(agent, directory)
        supervision = replace(agent.supervision, fresh=agent.command if command else ())
        options = [word for path in agent.rules for word in ("--rules", str(path))]
        if agent.task:
            options += ["--task", agent.task]
        outcome = start(
            StartOrder(agent.name, team, command or agent.command, directory, supervision, agent.env, options)
        )
        if outcome.ok:
            self._started[agent.name] = time.monotonic() + supervision.start_timeout
            text = outcome.text or f"{agent.name} was started."
            self._say(agent.name, "resumed" if command else "started", text.rstrip("."))
        else:
            self._fail(agent.name, outcome.text or describe(outcome.code), code=outcome.code)

    def _prepare(self, agent: FleetAgent) -> Path:
        """Return the directory in which the agent runs. Raise WorktreeError."""
        if agent.worktree is None:
            return agent.cwd
        made = worktree.prepare(
            agent.worktree,
            agent.name,
            team=self._fleet.team,
            home=self._home,
            directory=agent.cwd,
            env={**os.environ, **agent.env},
            progress=lambda line: None if self._quiet else print(f"{agent.name}: {line}", flush=True),
        )
        return made.path

    def _resumed(self, agent: FleetAgent, directory: Path) -> list[str] | None:
        """Return the command that goes on with the agent's conversation, if it was not done with it."""
        record = self._records.get(self._fleet.team, agent.name)
        if record is None or record.phase is Phase.DONE or agent.supervision.resume == "never":
            return None
        return continued(self._home, record, agent.command, directory)

    def _in_vain(self, step: PlanStep) -> str | None:
        """Return why what `step` waits for will not come; None if it may."""
        sessions = self._sessions()
        for name, condition in (step.waits_for or {}).items():
            record, session = self._records.get(self._fleet.team, name), sessions.get(key(name))
            if session is None and condition not in _reached(session, record):
                return f"is not started: it waits until {name} is {condition}, and that {_end(record)}"
            if session is None:
                continue
            late = condition in {"started", "ready"} and session.state != "prompting"
            if session.state in {"held", "failed"} or (late and time.monotonic() > self._deadline(name)):
                return f"is not started: it waits until {name} is {condition}, and that is {session.state}"
        return None

    def _deadline(self, name: str) -> float:
        """Return the time (monotonic) by which an agent is to be ready."""
        timeout = self._fleet.agents[name].supervision.start_timeout
        return self._started.setdefault(name, time.monotonic() + timeout)

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)

    def _say(self, name: str, action: str, text: str, **more: Any) -> None:
        self.results.append({"name": name, "action": action, "text": text, **more})
        self._print(text if text.startswith(name) else f"{name} {text}.")

    def _fail(self, name: str, text: str, **more: Any) -> None:
        self.failed = True
        self._say(name, "failed", text, **more)


def _needs(step: PlanStep) -> str:
    return ", ".join(f"{name} is {condition}" for name, condition in (step.waits_for or {}).items())


def _reached(session: SessionInfo | None, record: AgentRecord | None) -> frozenset[Condition]:
    """Return the conditions that an agent meets."""
    reached: set[Condition] = set()
    if session is not None:
        if session.state not in {UNRESPONSIVE, *PAUSED}:
            reached.add("started")
        if session.state == "ready":
            reached |= {"ready", "idle"}
        elif _is_up(session, record):
            reached.add("ready")
    elif record is not None and record.phase in ENDED:
        if record.phase is Phase.DONE:
            reached.add("done")
        if record.exit_code == 0:
            reached.add("exited_ok")
    return frozenset(reached)


def _is_up(session: SessionInfo, record: AgentRecord | None) -> bool:
    """Return True if the agent has been ready in its present life; the record may be of an earlier one."""
    return record is not None and record.session == session.id and record.phase is Phase.UP


def _end(record: AgentRecord | None) -> str:
    if record is None:
        return "has not been started"
    return record.reason or "has ended"
