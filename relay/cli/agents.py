"""List the kinds of agent that relay knows.

Each is a profile: a TOML file that says how the agent's screen, prompt and dialogs look, and whether text
may be typed into it. Files in the `patterns` folder of relay's configuration add profiles, or override
keys of those that ship with relay. `relay wrap --agent NAME` chooses one; otherwise the command decides.
hooks=yes: relay speaks the agent's own hook protocol; the others are known by their screen alone.
installed= is what the program in PATH prints as its version, checked= the versions that the profile was
checked with: with others the agent's screen may look different.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from relay.agents.catalog import profiles
from relay.agents.profile import Profile
from relay.agents.version import program, unchecked
from relay.cli.arguments import add_json
from relay.cli.output import print_list
from relay.features.agent_version import ask
from relay.home import Home
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = sorted(profiles(Home.from_env()), key=lambda profile: profile.name)
    agents = asyncio.run(_agents(found))
    print_list(args, agents, _public, _row)
    if not args.json:
        print("".join(f"{each.unchecked}\n" for each in agents if each.unchecked), end="")
    return 0


@dataclass(frozen=True, slots=True)
class _Agent:
    """A profile, and the agent that it is for. program: "" if none is in PATH; version: "" if not known."""

    profile: Profile
    program: str
    version: str

    @property
    def unchecked(self) -> str:
        return unchecked(self.profile.name, self.version, self.profile.checked)


async def _agents(found: list[Profile]) -> list[_Agent]:
    async def agent(profile: Profile) -> _Agent:
        path = program(profile) or ""
        return _Agent(profile, path, await ask(path, Path.cwd(), os.environ) if path else "")

    return await asyncio.gather(*map(agent, found))


def _commands(profile: Profile) -> list[str]:
    return [*profile.commands, *(name for rule in profile.interactive for name in rule.names)]


def _row(agent: _Agent) -> tuple[str, ...]:
    profile = agent.profile
    installed = one_line(agent.version, 20) or ("?" if agent.program else "no")
    return (
        profile.name,
        f"installed={installed}" if profile.checked else "",
        f"checked={','.join(profile.checked)}" if profile.checked else "",
        f"inject={profile.inject}",
        f"reader={profile.reader}",
        f"hooks={'yes' if profile.native.hooks else 'no'}",
        one_line(" ".join(_commands(profile)) or "any other command", 60),
    )


def _public(agent: _Agent) -> dict[str, object]:
    profile = agent.profile
    return {
        "name": profile.name,
        "program": agent.program or None,
        "installed": agent.version or None,
        "checked": list(profile.checked),
        "commands": _commands(profile),
        "reader": profile.reader,
        "inject": profile.inject,
        "fullscreen": profile.fullscreen,
        "hooks": profile.native.hooks or None,
        "rules": [rule.name for rule in profile.states],
        "path": str(profile.path),
    }
