"""Fixtures for replay tests: `relay replay` in a user's terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import Relay
from terminal.emulator import Emulator

Replay = Callable[..., Emulator]
Shell = Callable[..., Emulator]


@pytest.fixture
def replay(relay: Relay) -> Iterator[Replay]:
    """Yield a function: `replay("Alice", "--events")` runs `relay replay` in an Emulator with `options`."""
    opened: list[Emulator] = []

    def open_(*arguments: object, **options: Any) -> Emulator:
        argv = [sys.executable, "-m", "relay", "replay", *map(str, arguments)]
        opened.append(Emulator(argv, relay.environment, cwd=relay.home, **options))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@pytest.fixture
def shell(relay: Relay) -> Iterator[Shell]:
    """Yield a function that opens an interactive bash with job control, in which `relay` is a function."""
    opened: list[Emulator] = []

    def open_(**options: Any) -> Emulator:
        environment = {**relay.environment, "PS1": "shell> ", "HISTFILE": ""}
        argv = ["bash", "--norc", "--noprofile", "-i"]
        opened.append(e := Emulator(argv, environment, cwd=relay.home, **options))
        e.type(f'relay() {{ command {sys.executable} -m relay "$@"; }}\r')
        e.type("echo rea''dy\r")
        e.see("ready\r\n")
        return e

    yield open_
    for each in opened:
        each.close()
