"""Drive and observe real agents in real terminals, wrapped by `relay`."""

from __future__ import annotations

import json
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from real_agents.model import Model, Rule
from real_agents.recipes import Agent, Place, prepare
from relay.agents import kinds
from relay.agents.version import numbers
from relay.control.sessions import call, find
from relay.errors import RelayError
from relay.home import Home
from support import Relay
from terminal.emulator import Emulator

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds until a test gives up; only a broken program takes that long."""


def has_door(agent: Agent) -> bool:
    """Return True if this version of `agent` has an inbox of its own."""
    since = kinds.find(agent.name).door_since
    return bool(since) and numbers(agent.package.version) >= numbers(since)


class Wrapped:
    """One agent under `relay wrap`, with its own terminal and model."""

    def __init__(
        self, rig: Rig, agent: Agent, name: str, placed: Placed, terminal: Emulator, command: Sequence[str]
    ) -> None:
        self.rig = rig
        self.agent = agent
        self.name = name
        self.placed = placed
        self.model = placed.model
        self.terminal = terminal
        self.command = list(command)
        self.work = rig.relay.home / name / "work"

    # User actions.

    def type(self, text: str) -> None:
        self.terminal.type(text)

    def say(self, text: str) -> None:
        """Type a line, and submit it once it is drawn: agents read an immediate Enter as a newline."""
        self.terminal.type(text)
        self.sees(re.escape(text[-30:]))
        time.sleep(self.agent.pause)
        self.terminal.type("\r")

    def send(self, text: str, wait: float = 0, *options: str) -> str:
        """Run `relay send --wait` as the user; return the message's state after at most `wait` seconds."""
        command = [*self.rig.relay.command, "send", "--json", "--wait", str(wait), *options, self.name, "-"]
        with subprocess.Popen(
            command,
            env=self.rig.relay.environment,
            cwd=self.rig.relay.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            run.stdin.write(text)
            run.stdin.close()
            self.rig.wait(lambda: run.poll() is not None, "`relay send` ends")
            (row,) = json.loads(run.stdout.read())
        return str(row["state"])

    # Observations.

    def sees(self, pattern: str) -> None:
        """Wait until a row of the screen matches the regular expression `pattern`."""
        self.rig.wait(lambda: self.shows(pattern), f"{self.name} draws {pattern!r}")

    def shows(self, pattern: str) -> bool:
        return any(re.search(pattern, row) for row in self.terminal.lines())

    def receives(self, text: str) -> None:
        """Wait until the agent's model has received `text`."""
        self.rig.wait(lambda: self.model.count(text), f"{self.name}'s model receives {text[:80]!r}")

    def info(self) -> dict[str, Any]:
        """Return the row of `relay ps --json`; empty once the session has ended."""
        return self._ask(lambda home: find(home, self.name).public())

    def explain(self) -> dict[str, Any]:
        """Return the output of `relay explain --json`; empty once the session has ended."""
        return self._ask(lambda home: call(find(home, self.name).socket, {"op": "explain"}))

    def _ask(self, question: Callable[[Home], dict[str, Any]]) -> dict[str, Any]:
        try:
            return question(Home.from_env(self.rig.relay.environment))
        except RelayError:
            return {}

    @property
    def state(self) -> str:
        """Return the state, with the kind of question: `ready`, `prompting (permission)`."""
        row = self.info()
        prompt = f" ({row['prompt']})" if row.get("prompt") else ""
        return f"{row.get('state', 'ended')}{prompt}"

    def messages(self) -> list[str]:
        """Return the state of each message to this agent, oldest first."""
        return [row["state"] for row in self.rig.messages(self.name)]

    def becomes(self, *states: str) -> None:
        """Wait until `relay ps` shows one of `states`; `prompting` means any kind."""
        self.rig.wait(
            lambda: self.state in states or self.state.split(" ")[0] in states,
            f"{self.name} is {' or '.join(states)}",
        )

    def waiting(self) -> int:
        """Return how many texts wait to be typed."""
        return int(self.explain().get("waiting", 0))

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return this agent's journal entries, all or only those of one `kind`."""
        path = self.rig.relay.home / "state" / "events.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [each for each in entries if each["name"] == self.name and kind in ("", each["event"])]

    def describe(self) -> str:
        """Describe the agent, its model and its session, for a failed assertion."""
        requests = [
            f"  user {r.turn.user[-200:]!r} step {r.turn.step} -> {r.step.status} {r.step.text[:60]!r}"
            for r in self.model.requests
        ]
        session = self.rig.relay.home / "state" / "session.log"
        log = session.read_text().splitlines() if session.exists() else []
        return "\n".join(
            [
                f"--- {self.name} ({self.agent.name}): {self.state}, {json.dumps(self.explain())[:1500]}",
                *self.terminal.lines(),
                f"its model received {len(requests)} requests, answered {self.model.answered}:",
                *requests,
                *self.model.faults,
                *(f"  {json.dumps(each)[:300]}" for each in self.events()[-25:]),
                *log[-20:],
            ]
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """An agent's folder and model, and the arguments and environment to start it with."""

    work: Path
    model: Model
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class Rig:
    """One relay home and its agents."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.agents: list[Wrapped] = []
        self.settings(teach="never")  # instructions would come between a test's text and the expected answer
        self._open = ExitStack()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.relay("stop", "--all", "--now", check=False)
        self._open.close()

    def settings(self, **values: str | float | list[str]) -> None:
        """Write the user's relay.toml, for agents wrapped from now on."""
        path = self.relay.home / "config" / "relay.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))

    def wrap(
        self,
        agent: Agent,
        name: str,
        *script: Rule,
        config: str = "",
        arguments: tuple[str, ...] = (),
        rules: Sequence[Path] = (),
        columns: int = 120,
        rows: int = 40,
        ready: bool = True,
        beside: str = "",
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        supervision: Mapping[str, Any] | None = None,
    ) -> Wrapped:
        """Run `relay wrap -n NAME AGENT` in a terminal; `config` is a relay.config.py, which is trusted.

        arguments: further ones for the agent. rules: hooks.json files to name. ready: wait until the agent
        has drawn its prompt. A second agent with the same name shares the home and folder of the first; so
        does one `beside` it. command: run that instead. env: further variables.
        supervision: as the keys of a fleet file.
        """
        place = self.place(agent, name, *script, beside=beside)
        if config:
            (place.work / "relay.config.py").write_text(config)
            self.relay("trust", cwd=place.work)
        named = [word for path in rules for word in ("--rules", str(path))]
        if supervision is not None:
            named += ["--supervision", json.dumps(supervision)]
        argv = [*self.relay.command, "wrap", "-n", name, *named, "--"]
        command = command or [str(agent.package.command), *place.arguments, *arguments]
        argv += command
        place = replace(place, environment={**place.environment, **(env or {})})
        wrapped = self._open_terminal(agent, name, place, argv, command, columns=columns, rows=rows)
        terminal = wrapped.terminal
        if ready:
            self.wait(lambda: wrapped.shows(agent.ready) or terminal.ended(), f"{name} draws {agent.ready!r}")
            assert not terminal.ended(), f"{name} ended at once\n{wrapped.describe()}"
            wrapped.becomes("ready")
        return wrapped

    def place(self, agent: Agent, name: str, *script: Rule, beside: str = "") -> Placed:
        """Make an agent's home and folder, and start its model."""
        model = self._open.enter_context(Model(*script))
        folder = self.relay.home / (beside or name)
        place = Place(folder / "home", folder / "work", model.port)
        common = prepare(place, agent.package)
        start = agent.start(place)
        return Placed(place.work, model, start.arguments, {**common, **start.environment})

    def attach(self, agent: Agent, name: str, placed: Placed, command: Sequence[str]) -> Wrapped:
        """Run `relay attach NAME` in a terminal, for an agent that is already running."""
        argv = [*self.relay.command, "attach", name]
        return self._open_terminal(agent, name, placed, argv, command)

    def _open_terminal(
        self,
        agent: Agent,
        name: str,
        placed: Placed,
        argv: Sequence[str],
        command: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 40,
    ) -> Wrapped:
        env = {**placed.environment, "RELAY_HOME": str(self.relay.home), "PYTHONSAFEPATH": "1"}
        terminal = Emulator(argv, env, cwd=placed.work, columns=columns, rows=rows)
        self._open.callback(terminal.close)
        wrapped = Wrapped(self, agent, name, placed, terminal, command)
        self.agents.append(wrapped)
        return wrapped

    def messages(self, to: str) -> list[dict[str, Any]]:
        """Return the output of `relay messages --to NAME --json`, oldest first."""
        rows = json.loads(self.relay("messages", "--all", "--json", "--to", to).stdout)
        return sorted(rows, key=lambda row: row["time"])

    def wait(self, condition: Callable[[], T], what: str) -> T:
        """Process the agents' output until `condition()` holds; else raise AssertionError with details."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            if time.monotonic() > deadline:
                details = "\n".join(each.describe() for each in self.agents)
                raise AssertionError(f"timed out: {what}\n{details}")
            for each in self.agents:
                each.terminal.drain()
            open_ = [each.terminal.master for each in self.agents if not each.terminal.ended()]
            select.select([master for master in open_ if master >= 0], [], [], 0.02)
        return value
