"""Real agents under a fleet file: `relay up` starts them, and a user's terminal is attached to each.

The sessions' wall clock can be put forward (`Fleet.pass_time`): to relay it is as if the machine had slept,
so a limit of hours ends within a test. The agents' own clock goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from real_agents.house import House, Wrapped
from real_agents.model import Rule
from real_agents.recipes import Agent
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

relay.clock.LOOK = 1.0
relay.state.readiness.FAILURE = 3.0
"""
"""Run by sessions first. What takes a minute otherwise takes seconds: to look at the wall clock, and to type
into an agent that has failed."""


@dataclass(frozen=True)
class Member:
    """An agent of a fleet. keys: of its table, beside the command and its environment."""

    name: str
    agent: Agent
    script: tuple[Rule, ...]
    keys: Mapping[str, Any]


class Fleet:
    """A fleet of real agents. `relay up` has started those that start by themselves."""

    def __init__(self, house: House, *members: Member) -> None:
        self.house = house
        self._members = {each.name: each for each in members}
        self._places = {each.name: house.place(each.agent, each.name, *each.script) for each in members}
        self._passed = house.relay.home / "passed"
        self._file = house.relay.home / "fleet" / "relay.toml"
        self._env = {"PYTHONSAFEPATH": "1", **session_patch(_CLOCK.format(path=str(self._passed)))}
        self._file.parent.mkdir()
        self._file.write_text(
            '[fleet]\nteam = "default"\nstart_interval = 0\n\n' + "\n".join(map(self._table, members))
        )
        house.relay("trust", self._file)
        self.up()

    def up(self, *arguments: str) -> str:
        """`relay up`; what it says."""
        return self.house.relay("up", "-f", self._file, *arguments, env=self._env, timeout=120).stdout

    def attach(self, name: str) -> Wrapped:
        """Attach a terminal to an agent that runs."""
        member, place = self._members[name], self._places[name]
        return self.house.attach(member.agent, name, place, self._command(member))

    def pass_time(self, seconds: float) -> None:
        """Put the wall clock of the sessions forward."""
        part = self._passed.with_suffix(".part")
        part.write_text(str(seconds))
        part.replace(self._passed)

    def state(self, name: str) -> str:
        """The STATE column of `relay ps -a`."""
        header, *rows = self.house.relay("ps", "-a").stdout.splitlines()
        start, end = header.index("STATE"), header.index("FOR")
        (row,) = [row for row in rows if row.split()[0] == name]
        return row[start:end].strip()

    def record(self, name: str) -> dict[str, Any]:
        """What relay keeps of the agent, also once it has ended."""
        path = self.house.relay.home / "state" / "agents" / "default" / f"{name.lower()}.json"
        return dict(json.loads(path.read_text()))

    def next(self) -> str:
        """`relay next --print`: who needs the user; "" if nobody does."""
        return self.house.relay("next", "--print", check=False).stdout.strip()

    def _command(self, member: Member) -> list[str]:
        return [str(member.agent.package.command), *self._places[member.name].arguments]

    def _table(self, member: Member) -> str:
        place = self._places[member.name]
        keys = {"run": self._command(member), "cwd": str(place.work), "env": place.environment}
        rows = [f"{key} = {_toml(value)}\n" for key, value in {**keys, **member.keys}.items()]
        return f"[agents.{member.name}]\n{''.join(rows)}"


def _toml(value: object) -> str:
    """Return a value as TOML; JSON's strings, numbers and lists are TOML, too."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
