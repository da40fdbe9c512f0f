"""Setting the bridge up for one run: the agent's command and environment with our hook entries added.

    prepare("claude", ["claude", "-c"], env, DIR, SOCKET)
        →  ["claude", "--settings", "DIR/settings.json", "-c"]

Each agent has its own way (the module of its name).  What all have in common: files are written into the
run's own directory only, what the user configured goes on working, and `remove` leaves nothing behind.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from relay.agents import hook_client
from relay.agents.catalog import for_command, load
from relay.agents.hook_event import EVENTS, OBSERVED, NativeName
from relay.errors import ConfigError, RelayError
from relay.home import Home, private_directory

Rules = dict[str, list[dict[str, Any]]]
"""Hook entries in the shape of Claude Code's settings: event → [{"matcher": ..., "hooks": [handler]}]."""

TIMEOUT = int(hook_client.TAKEN + hook_client.ANSWER) + 7
"""Seconds after which an agent gives its hook up: never before the client has given up itself."""

KINDS = frozenset(EVENTS)

_UNASKED = {("claude", NativeName.MESSAGE_DISPLAY), ("gemini", NativeName.COMPACT)}
"""Events without an entry: one comes many times a second, one in each turn, and each costs a process."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent, as it was asked for.

    command:   its whole command line; `at` is where in it the agent's own begins (1 in `nice claude -c`),
               None where that is not known: a program of another name was said to be that kind of agent.
    directory: the run's own, which exists and is private.
    """

    command: tuple[str, ...]
    at: int | None
    env: dict[str, str]
    directory: str
    socket: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.command[(self.at or 0) + 1 :]

    def file(self, name: str, content: dict[str, Any]) -> str:
        """Write `content` as JSON into the run's directory; the path."""
        path = f"{self.directory}/{name}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        return path

    def with_flags(self, flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
        """The command line with `flags` and then `arguments` for the agent's own.

        A program of another name, such as a script or `npx`, gets the flags last: it may have words of
        its own in front.
        """
        if self.at is not None:
            return [*self.command[: self.at + 1], *flags, *arguments]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return [self.command[0], *arguments[:end], *flags, *arguments[end:]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What to start instead: the command line, and the environment.

    kind: the kind of agent that has a bridge now, "" without one. note: what the person should know of it.
    """

    command: list[str]
    env: dict[str, str] = field(repr=False)
    kind: str = ""
    note: str = ""


class Agent(Protocol):
    """What the module of an agent offers."""

    def prepare(self, run: Run) -> Prepared: ...


def bridge(
    profile: str, command: Sequence[str], env: dict[str, str], home: Home, run_dir: str, socket: str
) -> Prepared:
    """`prepare` for the agent that `command` starts, or that the profile named `profile` says it is.

    Never raises for what a person has written: without a bridge the agent is started as it was asked for.
    """
    try:
        known = load(profile, home) if profile else for_command(command, home)
    except RelayError:
        return Prepared(list(command), env)  # who sets the session up tells of it
    if not (kind := known.native.hooks):
        return Prepared(list(command), env)
    at = next((place for place in range(len(command)) if known.recognises(command[place:])), None)
    try:
        return prepare(kind, command, env, run_dir, socket, at=at)
    except (RelayError, OSError) as error:
        return Prepared(list(command), env, note=f"{error}".rstrip("."))


def prepare(
    kind: str,
    command: Sequence[str],
    env: dict[str, str],
    run_dir: str,
    socket: str,
    *,
    at: int | None = 0,
) -> Prepared:
    """The command and the environment with which an agent of `kind` calls us at `socket`.

    `at` as in Run. Raises ConfigError, HomeError or OSError where it cannot be done.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"there is no bridge to agents of the kind {kind!a}; known are {', '.join(sorted(KINDS))}"
        )
    agent: Agent = importlib.import_module(f"relay.agents.{kind}")
    private_directory(Path(run_dir).parent)
    private_directory(run_dir)
    try:
        return agent.prepare(Run(tuple(command), at, dict(env), run_dir, socket))
    except BaseException:
        remove(run_dir)
        raise


def remove(run_dir: str) -> None:
    """Remove what `prepare` has written."""
    shutil.rmtree(run_dir, ignore_errors=True)


# What the modules of the agents share.


def call(kind: str, socket: str, *words: str) -> list[str]:
    """The command line of the client; `words` are those of `relay hook`. No shell, no PATH, no site."""
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(hook_client.__file__).absolute()),
        "hook",
        *words,
        socket,
        kind,
    ]


def handler(command: list[str], timeout: int = TIMEOUT) -> dict[str, Any]:
    """A handler of an agent that runs its hooks through a shell. `timeout` is in the agent's own unit."""
    return {"type": "command", "command": shlex.join(command), "timeout": timeout}


def rules(kind: str, socket: str, handle: Any = handler) -> Rules:
    """Our entries: a decider for each event, and the silent observer of what the agent asks its person."""
    found: Rules = {
        event: [{"hooks": [handle(call(kind, socket, "decide", event))]}]
        for event, name in EVENTS[kind].items()
        if (kind, name) not in _UNASKED
    }
    if "PreToolUse" in found:
        observer = {"matcher": OBSERVED, "hooks": [handle(call(kind, socket, "pretooluse"))]}
        found["PreToolUse"].insert(0, observer)
    return found


def merged(settings: dict[str, Any], ours: Rules) -> dict[str, Any]:
    """`settings` (the user's) with our hooks behind theirs. ConfigError where theirs have no known shape."""
    theirs = settings.get("hooks", {})
    if not isinstance(theirs, dict):
        raise ConfigError('the "hooks" of its settings are no object')
    together = dict(theirs)
    for event, entries in ours.items():
        before = together.get(event, [])
        together[event] = [*(before if isinstance(before, list) else [before]), *entries]
    return {**settings, "hooks": together}


def read(path: str | Path) -> dict[str, Any]:
    """The settings in the file `path`; ConfigError where they are no JSON object, OSError."""
    with open(path, encoding="utf-8") as file:
        return parsed(file.read(), str(path))


def parsed(text: str, where: str) -> dict[str, Any]:
    """The settings in `text`; ConfigError where they are no JSON object."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON ({error})") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{where} is not a JSON object")
    return settings
