"""Trust a project's relay.config.py, relay.toml or hooks.json, so that relay uses it.

Shows each file and trusts its current content: after any change you have to trust it again. Without FILE,
trusts the relay.config.py with the handlers/*.py beside it, the relay.toml and the hooks.json of this folder
or the project around it. relay refuses a file with mistakes. Trust does not cover modules that a file
imports, programs that it starts, or other files that it names. A wrapped agent may not trust files.

  relay trust
  relay trust ./hooks.json
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from relay import settings
from relay.cli.arguments import add_json
from relay.cli.output import Outcomes
from relay.control.guard import user_only
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks import config_file
from relay.hooks.trust import Trust
from relay.rules import rule_book, rule_file
from relay.rules.startable import unstartable
from relay.supervision import fleet_file
from relay.text import count, visible


def configure(parser: argparse.ArgumentParser) -> None:
    help = "the file (default: the project's relay.config.py, relay.toml and hooks.json)"
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help=help)
    add_json(parser, "print the outcome for each file, as a JSON list, without its content")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "The user can, with `relay trust` in their own terminal."
    user_only(home, "trust", f"an agent may not trust files. {advice}")
    with Outcomes(args) as report:
        for path in [args.file] if args.file else _projects(home):
            with report.attempt("", file=str(path)):  # the other files are still trusted
                _trust(home, path, report)
    return 1 if report.failed else 0


def _projects(home: Home) -> list[Path]:
    """Return the files of the project around this folder that need trust. Raise ConfigError for none."""
    own = {home.config / name for name in (config_file.FILE, settings.FILE, rule_book.FILE)}  # need no trust
    here = Path.cwd()
    found = [config := config_file.find(here), settings.find(here), rule_book.find(here)]
    paths = [path for path in found if path is not None and path not in own]
    if config in paths:
        paths += config_file.handler_files(config)
    if not paths:
        raise ConfigError(
            f"there is no {config_file.FILE}, no {settings.FILE} and no {rule_book.FILE} in this folder "
            "or the project around it. Name the file to trust."
        )
    return paths


def _trust(home: Home, path: Path, report: Outcomes) -> None:
    """Show the file and trust it. Raise ConfigError if it cannot be read, or has mistakes."""
    if path.exists() and not path.is_file():
        raise ConfigError("is not a file. Name the file to trust.", path)
    try:
        content = path.read_bytes()  # read once: what is shown is what is trusted
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Check the path.", path) from None
    lines = visible(content.decode("utf-8", "replace")).splitlines()
    for number, line in enumerate(lines, start=1):
        report.say(f"{number:4}  {line}")
    try:
        notes = _check(path, content)
    except ConfigError as error:
        advice = f"Not trusted: {path}. Correct it, then run `relay trust` again."
        raise ConfigError(f"{error}\n{advice}") from None
    value = Trust(home).grant(path, content)
    said = f"Trusted {visible(str(path.absolute()))} ({count(len(lines), 'line')}, sha256 {value[:12]})."
    report.done(said, file=str(path), outcome="trusted", sha256=value, notes=notes)
    report.say("\n".join(notes))


def _check(path: Path, content: bytes) -> list[str]:
    """Return what to say about a file once it is trusted. Raise ConfigError if relay could not use it."""
    if path.suffix == ".py":
        _check_python(path, content)
        return [
            "It runs with the next `relay wrap`. Any change revokes the trust.",
            "This does not cover the modules it imports.",
        ]
    if path.suffix == ".toml":
        fleet = fleet_file.parse(path, content)
        if not fleet.agents:
            return ["It takes effect with the next `relay wrap`. Any change revokes the trust."]
        return [
            "It takes effect with the next `relay up` or `relay wrap`. Any change revokes the trust.",
            f"Its agents: {', '.join(fleet.agents)}.",
            "This does not cover the programs they run or the files it names.",
        ]
    if path.name != rule_book.FILE:
        return ["It takes effect with the next `relay wrap`. Any change revokes the trust."]
    rules, mistakes = rule_file.parse(path.absolute(), content, "project")
    if wrong := [str(mistake) for mistake in mistakes if mistake.unread or mistake.skipped]:
        raise ConfigError("\n".join(map(visible, wrong)))
    notes = ["None of its rules can run."]
    if rules:
        notes = [
            "Its rules take effect with the next `relay wrap` or `relay hooks reload`. "
            "Any change revokes the trust.",
            "This does not cover the programs they start.",
        ]
    mistakes += unstartable(rules, path.absolute().parent)
    return notes + [f"Warning: {visible(str(mistake))}" for mistake in mistakes]


def _check_python(path: Path, content: bytes) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(content, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ConfigError(f"this is not Python: {error.msg}.", path, error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; nested too deeply
        raise ConfigError(f"this is not Python: {error}.", path) from None
