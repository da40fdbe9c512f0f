"""The pytest fixture `relay_session`, which pytest finds by relay's entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relay.testing import HandlerSession


@pytest.fixture
def relay_session(tmp_path: Path) -> Iterator[Callable[..., HandlerSession]]:
    """Return a function that makes a session with the handlers of a relay.config.py or a RelayConfig.

    Its further arguments are those of `relay.testing.HandlerSession`.
    """
    from relay.testing import HandlerSession  # most tests of an environment with relay do not need it

    sessions: list[HandlerSession] = []

    def session(*sources: Any, **options: Any) -> HandlerSession:
        folder = tmp_path / f"session-{len(sessions)}"
        folder.mkdir()
        sessions.append(HandlerSession(folder, **options))
        for source in sources:
            sessions[-1].load(source)
        return sessions[-1]

    yield session
    for each in sessions:
        each.close()
