"""List the kinds of agent that relay knows.

Each is a profile: a TOML file that says how the agent's screen, prompt and dialogs look, and whether text
may be typed into it. Files in the `patterns` folder of relay's configuration add profiles, or override
keys of those that ship with relay. `relay wrap --agent NAME` chooses one; otherwise the command decides.
hooks=yes: relay speaks the agent's own hook protocol; the others are known by their screen alone.
"""

from __future__ import annotations

import argparse

from relay.agents.catalog import profiles
from relay.agents.profile import Profile
from relay.cli.arguments import add_json
from relay.cli.output import print_list
from relay.home import Home
from relay.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = sorted(profiles(Home.from_env()), key=lambda profile: profile.name)
    print_list(args, found, _public, _row)
    return 0


def _commands(profile: Profile) -> list[str]:
    return [*profile.commands, *(name for rule in profile.interactive for name in rule.names)]


def _row(profile: Profile) -> tuple[str, ...]:
    return (
        profile.name,
        f"inject={profile.inject}",
        f"reader={profile.reader}",
        f"hooks={'yes' if profile.native.hooks else 'no'}",
        one_line(" ".join(_commands(profile)) or "any other command", 60),
    )


def _public(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "commands": _commands(profile),
        "reader": profile.reader,
        "inject": profile.inject,
        "fullscreen": profile.fullscreen,
        "hooks": profile.native.hooks or None,
        "rules": [rule.name for rule in profile.states],
        "path": str(profile.path),
    }
