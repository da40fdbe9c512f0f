"""Who gets what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.bus.ledger import Ledger
from relay.bus.posting import LATELY, post
from relay.errors import UnknownRecipient


def test_a_broadcast_reaches_those_seen_lately_and_a_name_is_known_for_ever(tmp_path: Path) -> None:
    now = 1_000_000.0
    with Ledger(tmp_path / "ledger.db", clock=lambda: now) as ledger:
        ledger.registry.register("default", "Old", seen=now - LATELY - 1)
        ledger.registry.register("default", "Here")
        ledger.registry.register("default", "Here", seen=now - 2 * LATELY)  # an old announcement, heard late
        assert [message.to for message in post(ledger, "default", "you", "*", "hello")] == ["Here"]
        assert [message.to for message in post(ledger, "default", "you", "old", "hello")] == ["Old"]


def test_a_broadcast_to_nobody_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register("default", "Old", seen=1.0)
        with pytest.raises(UnknownRecipient, match="or was within a day"):
            post(ledger, "default", "you", "*", "hello")
