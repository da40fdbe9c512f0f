"""Simulated hosts, and a real mosquitto on one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers import Mosquitto

import debian
from hosts import Host, Network, make_hosts


@pytest.fixture
def network() -> Iterator[Callable[[int], Network]]:
    """Yield a function that creates a network of the given number of hosts."""
    with contextlib.ExitStack() as stack:
        yield lambda count: stack.enter_context(make_hosts(count))


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[[Host], Mosquitto]]:
    """Yield a function that creates a broker on a host, without starting it."""
    program = debian.require("mosquitto")
    yield lambda host: Mosquitto(program, host, tmp_path)
