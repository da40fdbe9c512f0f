"""Checks an agent's configuration before the agent starts: `python -P preflight.py [CONFIG,[RULES]]` (JSON).

A full-screen agent hides what its session reports about the configuration, so `relay wrap` reports it first.
The check runs in its own process, and prints the notices as a JSON list: the shim, a fork of `relay wrap`,
would keep everything it loads. No configuration is executed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from relay.home import Home

FILES = ("relay.toml", "relay.config.py", "hooks.json")

PATIENCE = 5.0
"""Seconds after which the agent starts without the check's notices; its session reports them later."""


def check(home: Home, env: Mapping[str, str], config: str, rules: Sequence[str]) -> list[str]:
    """Return the notices about the configuration for an agent in this directory; [] if there are none.

    config, rules: as in relay.session.options.
    """
    if not (config or rules or configured(home, FILES)):
        return []
    from relay.home import PYTHON  # not at the top, which runs before the path is complete

    words = [*PYTHON, os.path.abspath(__file__), json.dumps([config, list(rules)])]
    try:
        done = subprocess.run(
            words, env=dict(env), capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True
        )
        return [str(text) for text in json.loads(done.stdout)]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def configured(home: Home, files: Sequence[str]) -> bool:
    """Return True if one of these configuration files exists for an agent in this directory."""
    from relay.project import folders

    places = [home.config_dir, *folders(os.getcwd())]
    return any(os.path.lexists(os.path.join(place, file)) for place in places for file in files)


def notices(config: str, rules: Sequence[str], directory: Path | None = None) -> list[str]:
    """Return the notices for an agent in `directory`, by default this one, worded as its session would."""
    from pathlib import Path

    from relay import settings
    from relay.home import Home
    from relay.hooks import config_file
    from relay.hooks.trust import Trust
    from relay.rules.rule_book import RuleBook
    from relay.session.setup import RULE_NOTICES

    home, directory = Home.from_env(), directory or Path.cwd()
    _, found = settings.load(home, directory, Trust(home).covers)
    choice = config_file.choose(home, directory, Path(config) if config else None)
    found += choice.untrusted.values()
    found += [f"{error} The session runs without it." for error in choice.errors.values()]
    book = RuleBook.load(home, directory, [Path(path) for path in rules])
    return [*found, *map(str, book.warnings[:RULE_NOTICES])]


if __name__ == "__main__":
    ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if ROOT not in sys.path:
        sys.path.append(ROOT)  # a checkout that is not installed
    print(json.dumps(notices(*json.loads(sys.argv[1]))))
