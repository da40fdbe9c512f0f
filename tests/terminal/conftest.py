"""Fixtures for terminal tests: programs in a terminal, alone or wrapped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from emulator import Emulator

from support import Relay

Open = Callable[..., Emulator]


@pytest.fixture
def terminal(relay: Relay) -> Iterator[Open]:
    """Yield a factory: `terminal("bash", "-i")` runs a program in an Emulator; `env` adds variables."""
    opened: list[Emulator] = []

    def open_(*argv: str, env: dict[str, str | None] | None = None, **options: Any) -> Emulator:
        environment = {**relay.environment, "PYTHONSAFEPATH": "1", **(env or {})}
        kept = {name: value for name, value in environment.items() if value is not None}
        opened.append(Emulator(argv, kept, cwd=options.pop("cwd", relay.home), **options))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture
def wrap(terminal: Open) -> Open:
    """Return a factory: `wrap("-n", "Alice", "bash")` runs `relay wrap -n Alice bash` in an emulator."""

    def open_(*arguments: str, **options: Any) -> Emulator:
        return terminal(sys.executable, "-m", "relay", "wrap", *arguments, **options)

    return open_


@pytest.fixture
def shell(terminal: Open) -> Open:
    """Return an interactive bash with job control and the prompt `shell> `; `relay` is a function there."""

    def open_(**options: Any) -> Emulator:
        each = terminal(
            "bash", "--norc", "--noprofile", "-i", env={"PS1": "shell> ", "HISTFILE": None}, **options
        )
        each.type(f'relay() {{ command {sys.executable} -m relay "$@"; }}\r')
        each.type("echo rea''dy\r")
        each.see("ready\r\n")
        each.see("shell> ", after=each.output.rindex(b"ready"))
        return each

    return open_
