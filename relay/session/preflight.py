"""Checks an agent's configuration before the agent starts.

A full-screen agent hides what its session reports about the configuration, so `relay wrap` reports it first.
The check runs in a fork of `relay wrap`: the shim, another fork, would keep everything it loads. It executes
no configuration. One without notices is not checked again until its files change.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from relay.home import Home

FILES = ("relay.toml", "relay.config.py", "hooks.json")

CHECK_TIMEOUT = 5.0
"""Seconds after which the agent starts without the check's notices; its session reports them later."""

REMEMBERED = 100
"""Maximum number of configurations remembered as free of notices."""


def check(home: Home, env: Mapping[str, str], config: str, rules: Sequence[str]) -> list[str]:
    """Return the notices about the configuration for an agent in this directory; [] if there are none.

    config, rules: as in relay.session.options.
    """
    if not (config or rules or configured(home, FILES)):
        return []
    version = _version(home, env, config, rules)
    known = _known(home)
    if version in known:
        return []
    found = _forked(env, config, rules)
    if found == []:
        _remember(home, [*known[-REMEMBERED + 1 :], version])
    return found or []


def _version(home: Home, env: Mapping[str, str], config: str, rules: Sequence[str]) -> str:
    """Return a digest of what the notices depend on: relay itself, the directory, PATH, and each file.

    The programs that rules start are not among them: if one is removed later, the session reports it.
    """
    import hashlib

    from relay.project import folders

    here = os.getcwd()
    names = [os.path.join(place, file) for place in (home.config_dir, *folders(here)) for file in FILES]
    states = []
    for name in (__file__, str(home.trust), str(home.disabled_rules), config, *rules, *names):
        try:
            found = os.stat(name)
        except OSError:
            continue
        states.append((name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return hashlib.sha256(repr((here, env.get("PATH"), config, rules, states)).encode()).hexdigest()


def _known(home: Home) -> list[str]:
    """Return the versions known to be free of notices, the latest last."""
    try:
        return home.checked.read_text().split()
    except (OSError, ValueError):
        return []


def _remember(home: Home, versions: Sequence[str]) -> None:
    from relay.storage.files import write_private

    try:
        write_private(home.checked, "\n".join(versions))
    except OSError:
        pass  # it is checked again


def _forked(env: Mapping[str, str], config: str, rules: Sequence[str]) -> list[str] | None:
    """Return the notices, found in a fork with the environment `env`; None if it fails or takes too long."""
    import json
    import select

    from relay.shim import signals

    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return None
    if child == 0:
        try:
            os.close(reader)
            os.environ.clear()
            os.environ.update(env)
            with open(writer, "w", encoding="utf-8") as pipe:
                json.dump(notices(config, rules), pipe)
        finally:
            os._exit(0)  # without a traceback: the session reports what fails
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            if select.select([pipe], [], [], CHECK_TIMEOUT)[0]:
                return [str(text) for text in json.loads(pipe.read())]
    except ValueError:
        pass
    finally:
        os.kill(child, signals.SIGKILL)
        os.waitpid(child, 0)
    return None


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
