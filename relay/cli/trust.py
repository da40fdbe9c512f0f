"""Trust a project's relay.config.py and hooks.json (or another file), so that relay runs what they say.

Shows each file and trusts it as it is now: after any change it has to be trusted again. Without FILE they are
the relay.config.py and the hooks.json of this folder or of the project around it. Modules that a file
imports, and programs that it starts, are not covered by this. A wrapped agent may not do it.

  relay trust
  relay trust ./hooks.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from relay.control.guard import person_only
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks import config_file
from relay.hooks.trust import Trust
from relay.rules import rule_book, rule_file
from relay.text import count, visible


def configure(parser: argparse.ArgumentParser) -> None:
    help = "the file (default: the project's relay.config.py and hooks.json)"
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help=help)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "The person can, with `relay trust` in a terminal of their own."
    person_only(home, "trust", f"an agent may not trust files. {advice}")
    for path in [args.file] if args.file else _projects(home):
        _trust(home, path)
    return 0


def _projects(home: Home) -> list[Path]:
    """Return the files of the project around this folder that need trust. Raise ConfigError for none."""
    own = {home.config / config_file.FILE, home.config / rule_book.FILE}  # these need no trust
    found = [config_file.find(Path.cwd(), home), rule_book.find(Path.cwd())]
    paths = [path for path in found if path is not None and path not in own]
    if not paths:
        raise ConfigError(
            f"there is no {config_file.FILE} and no {rule_book.FILE} in this folder "
            "or the project around it. Name the file to trust."
        )
    return paths


def _trust(home: Home, path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ConfigError("is not a file. Name the file to trust.", path)
    try:
        content = path.read_bytes()  # once, so that what is shown is what is trusted
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Check the path.", path) from None
    lines = visible(content.decode("utf-8", "replace")).splitlines()
    for number, line in enumerate(lines, start=1):
        print(f"{number:4}  {line}")
    value = Trust(home).grant(path, content)
    print(f"Trusted {visible(str(path.resolve()))} ({count(len(lines), 'line')}, sha256 {value[:12]}).")
    if path.suffix == ".py":
        print("It runs from the next `relay wrap` on, until it changes.")
        print("Modules that it imports are not covered.")
    elif path.name != rule_book.FILE:
        print("It holds from the next `relay wrap` on, until it changes.")
    else:
        rules, warnings = rule_file.parse(path.absolute(), content, "project")
        if rules:
            print("Its rules run from the next `relay wrap` or `relay hooks reload` on, until it changes.")
            print("Programs that they start are not covered.")
        else:
            print("It has no rules that could run.")
        for warning in warnings:
            print(f"Warning: {visible(str(warning))}")
