"""Looks at the agents more often than for a user."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.top.app.LOOK_EVERY", 0.1)
    monkeypatch.setattr("relay.top.app.SHARE", 1)
