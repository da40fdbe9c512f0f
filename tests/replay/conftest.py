"""Fixtures of replay tests: `relay replay` in a person's terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import Relay
from terminal.emulator import Emulator

Replay = Callable[..., Emulator]


@pytest.fixture
def replay(relay: Relay) -> Iterator[Replay]:
    """`replay("Alice", "--events")` runs the command in an emulator; options are as for Emulator."""
    opened: list[Emulator] = []

    def open_(*arguments: object, **options: Any) -> Emulator:
        argv = [sys.executable, "-m", "relay", "replay", *map(str, arguments)]
        opened.append(Emulator(argv, relay.environment, cwd=relay.home, **options))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()
