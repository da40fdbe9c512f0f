"""Real agents of a fleet file: `relay up` starts them, and tests attach terminals to them.

`Fleet.pass_time` puts the sessions' wall clock forward, as if the machine had slept, so a limit of hours ends
within a test. The agents' own clock is unaffected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from real_agents.model import Rule
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped
from support import session_patch

_CLOCK = """
import time
from pathlib import Path

_passed, _time = Path({path!r}), time.time

def _now():
    try:
        return _time() + float(_passed.read_text())
    except OSError:
        return _time()

time.time = _now

import relay.clock
import relay.state.readiness

relay.clock.WALL_CHECK_EVERY = 1.0
relay.state.readiness.FAILURE = 3.0
"""
"""Code that sessions run first.

It shortens two waits from a minute to seconds: checking the wall clock, and typing into a failed agent.
"""


@dataclass(frozen=True)
class Member:
    """An agent of a fleet. keys: the keys of its table except its command and environment."""

    name: str
    agent: Agent
    script: tuple[Rule, ...]
    keys: Mapping[str, Any]


class Fleet:
    """A fleet of real agents, in which `relay up` has started those with autostart."""

    def __init__(self, rig: Rig, *members: Member) -> None:
        self.rig = rig
        self._members = {each.name: each for each in members}
        self._places = {each.name: rig.place(each.agent, each.name, *each.script) for each in members}
        self._passed = rig.relay.home / "passed"
        self._file = rig.relay.home / "fleet" / "relay.toml"
        self._env = {"PYTHONSAFEPATH": "1", **session_patch(_CLOCK.format(path=str(self._passed)))}
        self._file.parent.mkdir()
        self._file.write_text(
            '[fleet]\nteam = "default"\nstart_interval = 0\n\n' + "\n".join(map(self._table, members))
        )
        rig.relay("trust", self._file)
        self.up()

    def up(self, *arguments: str) -> str:
        """Run `relay up` and return its output."""
        return self.rig.relay("up", "-f", self._file, *arguments, env=self._env, timeout=120).stdout

    def attach(self, name: str) -> Wrapped:
        """Attach a terminal to a running agent."""
        member, place = self._members[name], self._places[name]
        return self.rig.attach(member.agent, name, place, self._command(member))

    def pass_time(self, seconds: float) -> None:
        """Put the sessions' wall clock forward."""
        part = self._passed.with_suffix(".part")
        part.write_text(str(seconds))
        part.replace(self._passed)

    def state(self, name: str) -> str:
        """Return the STATE column of `relay ps -a`."""
        header, *rows = self.rig.relay("ps", "-a").stdout.splitlines()
        start, end = header.index("STATE"), header.index("FOR")
        (row,) = [row for row in rows if row.split()[0] == name]
        return row[start:end].strip()

    def record(self, name: str) -> dict[str, Any]:
        """Return relay's record of the agent, even after it has ended."""
        path = self.rig.relay.home / "state" / "agents" / "default" / f"{name.lower()}.json"
        return dict(json.loads(path.read_text()))

    def next(self) -> str:
        """Return the output of `relay next --print`: the agent that needs the user, or ""."""
        return self.rig.relay("next", "--print", check=False).stdout.strip()

    def _command(self, member: Member) -> list[str]:
        return [str(member.agent.package.command), *self._places[member.name].arguments]

    def _table(self, member: Member) -> str:
        place = self._places[member.name]
        keys = {"run": self._command(member), "cwd": str(place.work), "env": place.environment}
        rows = [f"{key} = {_toml(value)}\n" for key, value in {**keys, **member.keys}.items()]
        return f"[agents.{member.name}]\n{''.join(rows)}"


def _toml(value: object) -> str:
    """Return a value as TOML; JSON strings, numbers and lists are valid TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
