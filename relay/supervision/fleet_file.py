"""The fleet file: the tables [fleet], [defaults] and [agents.NAME] of a relay.toml.

    find ──→ read ──→ trusted? ──→ parse ──→ Fleet
                         └─ no: ConfigError; nothing is started

relay parses exactly the bytes that it hashed. Trust does not cover the files named there (tasks,
environments, rules). Settings in the same file are checked here too, and used by relay.settings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay import names, settings
from relay.errors import ConfigError, InvalidName
from relay.home import Home
from relay.hooks.trust import Trust, digest
from relay.memory.config import read_settings
from relay.settings import FILE
from relay.storage.files import open_regular
from relay.supervision import schema
from relay.supervision.agent_values import LARGEST
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.plan import ordered
from relay.supervision.policy import Supervision
from relay.supervision.worktree import WorktreeSpec
from relay.values import Spot, parse_toml, table

_DIRECT = ("task", "env", "channels", "rules", "autostart", "depends_on", "schedule")
"""The keys that FleetAgent takes unchanged."""


def find(home: Home, directory: Path) -> Path | None:
    """Return the fleet file for `directory`: the project's relay.toml, else the user's own, else None."""
    own = home.config / FILE
    return settings.find(directory) or (own if own.is_file() else None)


def load(home: Home, directory: Path, named: Path | None = None, *, empty: bool = False) -> Fleet:
    """Return the fleet for `directory`, or the one in the file `named`.

    The user's own file needs no trust; any other does, `named` included. Raise ConfigError if there is no
    file, its current content is not trusted, or it has no agents and may not be `empty`; ConfigMistakes for
    all that is wrong in it.
    """
    own = home.config / FILE
    path = named.absolute() if named is not None else find(home, directory)
    if path is None:
        raise ConfigError(
            f"there is no {FILE} in this folder or the project around it, and none of your own ({own}). "
            "`relay init` writes one."
        )
    content = read(path)
    if path != own and not Trust(home).covers(path, content):
        command = f"relay trust {shlex.quote(str(path))}"
        raise ConfigError(
            f"is not trusted, so none of its agents was started. Read it, then run `{command}`.", path
        )
    fleet = parse(path, content, names.DEFAULT_TEAM if path == own else "")
    if not (fleet.agents or empty):
        raise ConfigError('has no agents. Add a table, such as [agents.Lead] with run = "claude".', path)
    return fleet


def read(path: Path) -> bytes:
    """Return the content of a fleet file. Raise ConfigError if it cannot be read, or is too large."""
    try:
        with open(open_regular(path), "rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Check the path.", path) from None
    if len(content) > LARGEST:
        raise ConfigError(f"has more than {LARGEST >> 20} MB, so it is not a fleet file.", path)
    return content


def parse(path: Path, content: bytes, team: str = "") -> Fleet:
    """Return the fleet in `content`, the bytes of the file at `path`, which may have no agents.

    team: the default if the file names none; "": the name of its folder.
    Raise ConfigError if it is not TOML, ConfigMistakes for everything else that is wrong, settings included.
    """
    path = path.absolute()
    values, top = parse_toml(path, content)
    settings.check(values, top, schema.elsewhere)
    read_settings(values.get("memory", {}), top.at("memory"))
    fleet = table(values.get("fleet", {}), top.table("fleet"), schema.FLEET_KEYS, schema.elsewhere)
    agents = _agents(top, values)
    top.check()
    spawn = fleet.get("spawn", False)
    return Fleet(
        path=path,
        team=fleet.get("team") or team or _team(path.parent.name),
        max_running=fleet.get("max_running", int(schema.FLEET_KEYS["max_running"].default)),
        start_interval=fleet.get("start_interval", float(schema.FLEET_KEYS["start_interval"].default)),
        agents={name: _agent(name, given, path, spawns=spawn) for name, given in agents.items()},
        digest=digest(content),
        spawn=spawn,
    )


def _agents(top: Spot, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys of each agent, merged with those of [defaults]."""
    tables, shared, usual = values.get("agents", {}), values.get("defaults", {}), Supervision()
    if not isinstance(tables, dict):
        top.at("agents").wrong("agents must be tables, such as [agents.Lead].")
        tables = {}
    spots = {name: top.table("agents", name) for name in tables}
    _check_names(spots)
    defaults = _given(shared, top.table("defaults"), spots)
    agents = {}
    for name, spot in spots.items():
        agents[name] = _merged(name, defaults, _given(tables[name], spot, spots))
        written = [each for each in (tables[name], shared) if isinstance(each, dict)]
        if isinstance(tables[name], dict) and not any("run" in each for each in written):
            spot.wrong(f'{name} has no command. Add run, like run = "claude".')
        if agents[name].get("backoff", usual.backoff) > agents[name].get("backoff_max", usual.backoff_max):
            spot.wrong("backoff is larger than backoff_max. Make it smaller.")
    try:
        ordered({name: given.get("depends_on", {}) for name, given in agents.items()})
    except ValueError as error:
        first = str(error).partition(" ")[0]
        spots[first].at("depends_on").wrong(f"none of these can start first: {error}. Remove a dependency.")
    return agents


def _check_names(spots: Mapping[str, Spot]) -> None:
    seen: dict[str, str] = {}
    for name, spot in spots.items():
        try:
            names.validate(name)
        except InvalidName as error:
            spot.wrong(str(error))
        if (other := seen.setdefault(names.key(name), name)) != name:
            line = spot.line(spots[other].keys)
            spot.wrong(
                f"{name!r} and {other!r} (line {line}) are the same name, because case is ignored. Rename "
                "one."
            )


def _given(value: object, spot: Spot, agents: Mapping[str, Spot]) -> dict[str, Any]:
    """Return the keys in an agent's table, or in [defaults], with the files that they name read in."""
    given = table(value, spot, schema.AGENT_KEYS, schema.elsewhere)
    if "task_file" in given:
        if "task" in given:
            spot.at("task_file").wrong("it has both task and task_file. Remove one of them.")
        given["task"] = given.pop("task_file")
    env: dict[str, str] = {}
    for variables in (*given.pop("env_file", ()), given.get("env", {})):
        env |= variables
    if env:
        given["env"] = env
    if "depends_on" in given:
        given["depends_on"] = _known(given["depends_on"], spot.at("depends_on"), agents)
    return given


def _known(depends_on: Mapping[str, Any], spot: Spot, agents: Mapping[str, Spot]) -> dict[str, Any]:
    """Return `depends_on` with names spelled as in the agents' own tables."""
    spelt = {names.key(name): name for name in agents}
    found = {}
    for name, condition in depends_on.items():
        if names.key(name) in spelt:
            found[spelt[names.key(name)]] = condition
        else:
            hint = names.did_you_mean(name, agents)
            spot.at(name).wrong(
                f"depends_on: there is no agent {name!r}. {hint}The agents are {', '.join(agents) or 'none'}."
            )
    return found


def _merged(name: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the agent `name`: its own, plus those of [defaults] that it lacks."""
    merged = {**defaults, **given}
    for key in ("env", "worktree"):  # merged key by key
        if defaults.get(key) and given.get(key) is not None:
            merged[key] = {**defaults[key], **given[key]}
    if "depends_on" in defaults and "depends_on" not in given:
        merged["depends_on"] = {
            other: each for other, each in defaults["depends_on"].items() if other != name
        }
    return merged


def _agent(name: str, given: Mapping[str, Any], path: Path, *, spawns: bool) -> FleetAgent:
    direct = {key: given[key] for key in _DIRECT if key in given}
    usual = {"restart": schema.RESTART, "prompt": given.get("task", ""), "spawns": spawns}
    policy = {key: given[key] for key in schema.SUPERVISION_KEYS if key in given}
    worktree = given.get("worktree")
    agent = FleetAgent(
        name,
        command=given["run"],
        cwd=given.get("cwd", path.parent),
        supervision=Supervision(**usual | policy),
        worktree=None if worktree is None else WorktreeSpec(**worktree),
        **direct,
    )
    return agent.of(path)


def _team(folder: str) -> str:
    """Return a valid team name derived from `folder`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder).lstrip("-_.")[: names.MAX_NAME].rstrip("-.")
    return name or names.DEFAULT_TEAM
