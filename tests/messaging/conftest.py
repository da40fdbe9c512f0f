"""A home and a clock for each test; the home's broker ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clocks import Clock

from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.transport import broker


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home.from_env({"RELAY_HOME": str(tmp_path / "home")}).ensure()
    yield found
    broker.stop(found)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db", clock=clock) as found:
        yield found


@pytest.fixture
def far(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    """Yield the ledger of another home."""
    with Ledger(tmp_path / "far.db", clock=clock) as found:
        yield found


@pytest.fixture(autouse=True)
def quiet_event_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if asyncio logs an error, which would appear on the user's terminal."""
    yield
    logged = [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"]
    assert logged == []
