"""List the kinds of agent that relay knows, or install newer pattern files for them.

Each kind is a profile: a TOML file that describes the agent's screen, prompt and dialogs, and whether relay
may type into it. Files in the `patterns` folder of relay's configuration add profiles or override keys of
those that ship with relay. relay chooses a profile by the command, or by `relay wrap --agent NAME`.
ways= how texts reach the installed agent, the first one that is open: in replies to its own hooks, by its own
inbox (door), typed. mcp= whether it gets relay's tools (`relay mcp`) for its run.
installed= is the version that the program in PATH prints, checked= the versions that the profile was checked
with: the screens of other versions may look different.

`update` installs newer pattern files over those that ship with relay: a single file or all in a folder, such
as the `patterns` folder of a newer relay. It shows what changes, and tests the files on recorded screens of
real agents: those that ship with relay, and any in a folder `screens` next to the files. It refuses files
that would make relay type into a dialog or a working agent, and needs --yes if they change how dialogs are
recognised. `reset` undoes an update. `relay reload` applies either to running sessions. A wrapped agent may
do neither.

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
from pathlib import Path

from relay import data
from relay.agents import kinds, updates
from relay.agents.catalog import GENERIC, made, profiles
from relay.agents.pattern_file import PatternFile
from relay.agents.profile import Profile
from relay.agents.version import numbers, program, unchecked
from relay.cli import pattern_update
from relay.cli.arguments import add_actions, add_json
from relay.cli.output import Outcomes, print_list
from relay.control.guard import user_only
from relay.dataclass import asdict, dataclass
from relay.errors import ConfigError
from relay.features.agent_version import ask
from relay.home import Home
from relay.text import count, one_line, visible

_ADVICE = "an agent may not change how its own screen is read. The user can, in their own terminal."


def configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    action = add_actions(parser, required=False)
    update = action("update", "Install newer pattern files in place of those that ship with relay.")
    update.add_argument("path", type=Path, metavar="FILE|DIR", help="NAME.toml, or a folder of such files")
    update.add_argument(
        "--yes", action="store_true", help="install them even if they change how dialogs are recognised"
    )
    add_json(update, "print the outcome for each file, and the reason, as a JSON list", below=True)
    reset = action("reset", "Restore the pattern files that ship with relay.")
    reset.add_argument("names", nargs="*", metavar="NAME", help="the profile (default: all)")
    add_json(reset, "print which were restored, as a JSON list", below=True)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    match args.action:
        case "update":
            user_only(home.ensure(), "agents update", _ADVICE)
            with Outcomes(args) as report:
                _update(home, args.path, report, agreed=args.yes)
            return 1 if report.failed else 0
        case "reset":
            user_only(home.ensure(), "agents reset", _ADVICE)
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
                f"The update of {visible(name)} is not in use: relay has since shipped another file. `relay "
                f"agents reset {visible(name)}` removes it."
            )
    return 0


def _update(home: Home, path: Path, report: Outcomes, *, agreed: bool) -> None:
    """Install the pattern files at `path`, all of them or none."""
    given = updates.files(path) if path.is_dir() else {path.stem: path}
    if not given:
        raise ConfigError("this folder contains no pattern file (NAME.toml).", path)
    base = updates.shipped() | updates.in_force(home)
    read = {name: PatternFile.read(file) for name, file in given.items()}
    for file in read.values():
        if "name" not in file.fields():
            raise ConfigError(f"it has no `name` key; add name = {file.path.stem!r} in it.", file.path)
    new = {
        name: text for name, file in read.items() if (text := updates.plain(file.text)) != _text(base, name)
    }
    for name in given:
        if name not in new:
            report.done(f"{name}: nothing new.", name=name, outcome="unchanged")
    if not new:
        return
    old = {profile.name: profile for profile in made(base, {})}
    beside = (path if path.is_dir() else path.parent) / "screens"
    folders = list(dict.fromkeys(each.resolve() for each in (data.directory("patterns") / "screens", beside)))
    with tempfile.TemporaryDirectory() as folder:  # test exactly what was read, and is installed
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
        print("Nothing was installed: relay would type into an agent that is not ready.", file=sys.stderr)
    elif report.failed:
        print(
            "Nothing was installed yet: review the changes to dialogs, then install with --yes.",
            file=sys.stderr,
        )
    else:
        report.say(f"Installed: {', '.join(new)}. `relay agents reset` undoes this.")
        report.say("`relay reload NAME` applies it to a running session.")


def _text(base: dict[str, Path], name: str) -> str:
    """Return the text of the pattern file in force; "" if there is none."""
    return updates.plain(base[name].read_text("utf-8")) if name in base else ""


def _reset(home: Home, names: list[str], report: Outcomes) -> None:
    known = [*updates.in_force(home), *updates.outdated(home)]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"no update of {visible(unknown[0])!r} is installed; updated: {', '.join(known) or 'none'}."
        )
    for name in names or known:
        updates.remove(home, name)
        report.add(name=name, outcome="reset")
    report.say(f"As shipped: {', '.join(names or known) or 'nothing was updated'}.")


@dataclass(frozen=True, slots=True)
class _Agent:
    """A profile and its agent. program: "" if not in PATH; version: "" if unknown."""

    profile: Profile
    program: str
    version: str

    @property
    def ways(self) -> list[str]:
        """The ways to give it a text, in relay's order."""
        native = self.profile.native.hooks
        ways = {
            "hooks": bool(native),
            "door": self._is_from(kinds.find(native).door_since),
            "typed": self.profile.inject != "never",
        }
        return [way for way, is_there in ways.items() if is_there]

    @property
    def mcp(self) -> bool:
        return self._is_from(kinds.find(self.profile.native.hooks).mcp_since)

    def _is_from(self, since: str) -> bool:
        return bool(since) and numbers(self.version) >= numbers(since)

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
        f"ways={','.join(agent.ways)}",
        f"mcp={'yes' if agent.mcp else 'no'}",
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
        "ways": agent.ways,
        "mcp": agent.mcp,
        "rules": [rule.name for rule in profile.states],
        "path": str(profile.path),
    }
