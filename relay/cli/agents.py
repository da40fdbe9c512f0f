"""List the kinds of agent that relay knows, or take newer pattern files for them.

Each is a profile: a TOML file that says how the agent's screen, prompt and dialogs look, and whether text
may be typed into it. Files in the `patterns` folder of relay's configuration add profiles, or override
keys of those that ship with relay. `relay wrap --agent NAME` chooses one; otherwise the command decides.
hooks=yes: relay speaks the agent's own hook protocol; the others are known by their screen alone.
installed= is what the program in PATH prints as its version, checked= the versions that the profile was
checked with: with others the agent's screen may look different.

`update` puts newer pattern files in place of those that ship with relay: a file, or those of a folder, such
as the `patterns` folder of a newer relay. It shows what changes, and tries them on screens of real agents:
those that ship with relay, and those in a folder `screens` beside the files. Files by which relay would type
into a dialog, or at work, are refused; where dialogs are known differently, nothing is taken without --yes.
`reset` goes back. Sessions that run take either with `relay reload`. A wrapped agent may do neither.

  relay agents
  relay agents update ~/newer-relay/patterns
  relay agents reset claude
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from relay import data
from relay.agents import updates
from relay.agents.catalog import GENERIC, made, profiles
from relay.agents.pattern_file import PatternFile
from relay.agents.profile import Profile
from relay.agents.version import program, unchecked
from relay.cli import pattern_update
from relay.cli.arguments import add_actions, add_json
from relay.cli.output import Outcomes, print_list
from relay.control.guard import person_only
from relay.errors import ConfigError
from relay.features.agent_version import ask
from relay.home import Home
from relay.text import count, one_line, visible

_ADVICE = "an agent may not change how its own screen is read. The user can, in a terminal of their own."


def configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    action = add_actions(parser, required=False)
    update = action("update", "Take newer pattern files in place of those that ship with relay.")
    update.add_argument("path", type=Path, metavar="FILE|DIR", help="NAME.toml, or a folder of such files")
    update.add_argument("--yes", action="store_true", help="also where dialogs are known differently")
    add_json(update, "print what became of each file, and why, as a JSON list", below=True)
    reset = action("reset", "Go back to the pattern files that ship with relay.")
    reset.add_argument("names", nargs="*", metavar="NAME", help="the profile (default: all)")
    add_json(reset, "print which have gone back as a JSON list", below=True)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    match args.action:
        case "update":
            person_only(home.ensure(), "agents update", _ADVICE)
            with Outcomes(args) as report:
                _update(home, args.path, report, agreed=args.yes)
            return 1 if report.failed else 0
        case "reset":
            person_only(home.ensure(), "agents reset", _ADVICE)
            with Outcomes(args) as report:
                _reset(home, args.names, report)
            return 0
    found = sorted(profiles(home), key=lambda profile: profile.name)
    agents = asyncio.run(_agents(found))
    print_list(args, agents, _public, _row)
    if not args.json:
        print("".join(f"{each.unchecked}\n" for each in agents if each.unchecked), end="")
        for name in updates.outdated(home):
            print(
                f"The update of {visible(name)} is not in force: relay ships another file since. "
                f"`relay agents reset {visible(name)}` removes it."
            )
    return 0


def _update(home: Home, path: Path, report: Outcomes, *, agreed: bool) -> None:
    """Take the pattern files at `path`, all of them or none."""
    given = updates.files(path) if path.is_dir() else {path.stem: path}
    if not given:
        raise ConfigError("there is no pattern file (NAME.toml) in this folder.", path)
    base = updates.shipped() | updates.in_force(home)
    read = {name: PatternFile.read(file) for name, file in given.items()}
    for file in read.values():
        if "name" not in file.fields():
            raise ConfigError(f"it has no key name; write name = {file.path.stem!r} in it.", file.path)
    new = {
        name: text for name, file in read.items() if (text := updates.plain(file.text)) != _text(base, name)
    }
    for name in given:
        if name not in new:
            report.done(f"{name}: nothing is new.", name=name, outcome="unchanged")
    if not new:
        return
    old = {profile.name: profile for profile in made(base, {})}
    beside = (path if path.is_dir() else path.parent) / "screens"
    folders = list(dict.fromkeys(each.resolve() for each in (data.directory("patterns") / "screens", beside)))
    with tempfile.TemporaryDirectory() as folder:  # what was read is what is tried, and taken
        for name, text in new.items():
            Path(folder, f"{name}.toml").write_text(text, "utf-8")
        known = made(base | updates.files(Path(folder)), {})
    unsafe = agree = False
    tried: dict[str, dict[str, object]] = {}
    for profile in known:
        before = old.get(profile.name)
        changes: list[str] = []
        if profile.name in new:
            changes = pattern_update.lines(profile.name, _text(base, profile.name), new[profile.name])
        elif GENERIC not in new:
            continue
        dialogs = pattern_update.of_dialogs(before, profile) if profile.name in new else []
        number, worse = pattern_update.on_screens(folders, before, profile)
        unsafe = unsafe or any(each.unsafe for each in worse)
        agree = agree or bool(dialogs or worse)
        good = f"{count(number - len(worse), 'recorded screen')} of {number} as good as before"
        report.say("\n".join([*changes, *(f"{profile.name}: {each}." for each in (*dialogs, *worse, good))]))
        tried[profile.name] = {
            "changes": changes,
            "dialogs": dialogs,
            "screens": number,
            "worse": [asdict(each) for each in worse],
        }
    report.failed = unsafe or (agree and not agreed)
    for name, text in new.items():
        if not report.failed:
            updates.take(home, name, text)
    for name, found in tried.items():
        outcome = "refused" if unsafe else "not agreed" if report.failed else "taken"
        report.add(name=name, outcome=outcome if name in new else "tried", **found)
    if unsafe:
        print("Nothing is taken: relay would type into what is not ready.", file=sys.stderr)
    elif report.failed:
        print("Nothing is taken yet: look at what changes for dialogs. --yes takes it.", file=sys.stderr)
    else:
        report.say(f"Taken: {', '.join(new)}. `relay agents reset` goes back.")
        report.say("Sessions that run take it with `relay reload NAME`.")


def _text(base: dict[str, Path], name: str) -> str:
    """Return the pattern file that is in force; "" if there is none."""
    return updates.plain(base[name].read_text("utf-8")) if name in base else ""


def _reset(home: Home, names: list[str], report: Outcomes) -> None:
    known = [*updates.in_force(home), *updates.outdated(home)]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"there is no update of {visible(unknown[0])!r}: {', '.join(known) or 'there is none'}."
        )
    for name in names or known:
        updates.remove(home, name)
        report.add(name=name, outcome="reset")
    report.say(f"As shipped: {', '.join(names or known) or 'nothing was updated'}.")


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
    installed = one_line(agent.version, None) or ("?" if agent.program else "no")
    return (
        profile.name,
        f"installed={installed}" if profile.checked else "",
        f"checked={','.join(profile.checked)}" if profile.checked else "",
        f"inject={profile.inject}",
        f"reader={profile.reader}",
        f"hooks={'yes' if profile.native.hooks else 'no'}",
        one_line(" ".join(_commands(profile)) or "any other command", None),
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
