"""Write a starter relay.toml, relay.config.py and hooks.json.

relay.toml gets an agent for each installed agent CLI, and every key with its default as a comment;
relay.config.py has example handlers as comments; hooks.json has one rule, which refuses a forced push.
Existing files are left unchanged. relay uses none of them before you run `relay trust`, and again after each
change.

  relay init
  relay init ~/src/shop
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from relay import data
from relay.agents.catalog import profiles
from relay.agents.version import program
from relay.cli.arguments import add_json
from relay.cli.output import Outcomes
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks import config_file
from relay.rules import rule_book
from relay.settings import FILE
from relay.supervision import schema
from relay.values import TableKey

_EXAMPLES = {"team": '"web"', "schedule": '{ every = "1h" }', "worktree": '{ setup = ["npm ci"] }'}
"""Example values of keys without a default."""

_FLEET_FILE = """\
# The agents of this project. relay uses this file once you have run `relay trust`, and again after each
# change. Lines that begin with `#` show a key's default, or an example. Times are in seconds, costs in US
# dollars; for each max_ key, 0 means no limit. Settings of relay, such as idle_seconds, go here, above the
# first table.

[fleet]
{fleet}

# What holds for all agents. The table of an agent may have any of these keys, too.
[defaults]
{defaults}

{agents}
"""


_NONE = "none found that relay knows; the file shows how to add one"


def configure(parser: argparse.ArgumentParser) -> None:
    help = "where to write them; created if missing (default: this folder)"
    parser.add_argument("directory", nargs="?", type=Path, default=Path(), metavar="DIRECTORY", help=help)
    add_json(parser, "print the outcome for each file, as a JSON list")


def run(args: argparse.Namespace) -> int:
    directory: Path = args.directory
    agents = _installed(Home.from_env())
    shipped = data.directory("config") / "init"
    texts = {
        FILE: starter(agents),
        config_file.FILE: (shipped / config_file.FILE).read_text("utf-8"),
        rule_book.FILE: (shipped / rule_book.FILE).read_text("utf-8"),
    }
    with Outcomes(args) as report:
        for name, text in texts.items():
            path = directory / name
            written = _write(path, text)
            said = f"{'Wrote' if written else 'Left unchanged:'} {path}"
            report.done(said, file=str(path), outcome="written" if written else "kept")
            if written and name == FILE:
                found = ", ".join(agents) or _NONE
                report.also(f"  Its agents: {found}.", agents=[*agents])
    where = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    report.say(f"\nNext, edit them as you like. Then let relay use them:\n  {where}relay trust")
    return 0


def starter(agents: Mapping[str, str]) -> str:
    """Return a relay.toml with these agents, each a name and its command, and all keys as comments."""
    tables = [f'[agents.{name}]\nrun = "{command}"\n' for name, command in agents.items()]
    example = '# [agents.Lead]\n# run = "claude"\n# task = "Read README.md, and suggest what to do first."\n'
    return _FLEET_FILE.format(
        fleet="\n".join(_comments(schema.FLEET_KEYS)),
        defaults="\n".join(_comments(schema.AGENT_KEYS)),
        agents="\n".join(tables or [example]).rstrip(),
    )


def _comments(keys: Mapping[str, TableKey]) -> Iterable[str]:
    """Yield a line for each key that has a default, or an example, with its help."""
    for name, key in keys.items():
        if value := key.default or _EXAMPLES.get(name):
            options = f"{key.kind.form}; " if key.kind.form.startswith('"') else ""
            yield f"{f'# {name} = {value}':<36} # {options}{key.help.replace('`', '')}"


def _installed(home: Home) -> dict[str, str]:
    """Return the commands of the agents in PATH that relay knows, by a name for each."""
    found = {profile.name: program(profile) for profile in profiles(home)}
    return {name.strip("-_").capitalize(): Path(path).name for name, path in found.items() if path}


def _write(path: Path, text: str) -> bool:
    """Write a new file, and its folder; return False if the file exists. Raise ConfigError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if not path.parent.is_dir():
            raise ConfigError("is not a folder. Name another.", path.parent) from None
        return False
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}. Choose another folder.", path) from None
    return True
