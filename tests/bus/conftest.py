"""A home of its own for each test, whose broker is ended with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.bus import broker
from relay.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home.from_env({"RELAY_HOME": str(tmp_path / "home")}).ensure()
    yield found
    broker.stop(found)


@pytest.fixture(autouse=True)
def quiet_event_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What asyncio logs as an error would stand on the person's terminal."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"]
    assert said == []
