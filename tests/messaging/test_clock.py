"""The ledger's clock, which advances whatever the wall clock does, even across a reboot."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from ledgers import send
from relay.message import State
from relay.messaging import ledger_database
from relay.messaging.ledger import Ledger

TEAM = "default"


@pytest.mark.parametrize("jump", [-30 * 365 * 86400.0, -3600.0, 3600.0, 30 * 365 * 86400.0])
def test_a_wall_clock_jump_expires_and_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    wall = time.time
    with Ledger(tmp_path / "ledger.db") as ledger:
        (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "hello", ttl=600)
        ledger.transit.claim(TEAM, "Alice", lambda *_: 300.0, 10)
        monkeypatch.setattr(time, "time", lambda: wall() + jump)
        with Ledger(tmp_path / "ledger.db") as later:
            for each in (ledger, later):
                assert each.outbox.expire() == 0
                assert each.find(sent.id).message.state is State.QUEUED
                due = each.transit.next_due(TEAM, "Alice")
                assert due is not None
                assert 200 < due <= 300


def test_a_reboot_never_sets_the_clock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a dead battery, the machine boots in 1970, with an uptime of a minute."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        before = ledger.now()
        send(ledger, TEAM, "Alice", ["Bob"], "hello", ttl=600)
    monkeypatch.setattr(time, "time", lambda: 60.0)
    monkeypatch.setattr(ledger_database, "since_boot", lambda: 60.0)
    monkeypatch.setattr(ledger_database, "boot_id", lambda: "another")
    with Ledger(path) as ledger:
        assert ledger.now() > before - 1
        assert ledger.outbox.expire() == 0
        assert len(ledger.transit.claim(TEAM, "Alice", lambda *_: 5.0, 10)) == 1


def test_time_while_the_machine_is_off_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        send(ledger, TEAM, "Alice", ["Bob"], "hello", ttl=600)
    tomorrow = time.time() + 86400
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    monkeypatch.setattr(ledger_database, "since_boot", lambda: 60.0)
    monkeypatch.setattr(ledger_database, "boot_id", lambda: "another")
    with Ledger(path) as ledger:
        assert ledger.outbox.expire() == 1


def test_all_processes_of_a_home_share_one_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(tmp_path / "ledger.db") as first:
        monkeypatch.setattr(time, "time", lambda: 5.0)
        with Ledger(tmp_path / "ledger.db") as second:
            send(first, TEAM, "Alice", ["Bob"], "hello", ttl=600)
            (entry,) = second.messages()
            assert entry.message.expires is not None
            assert entry.message.expires > 1e9
    db = sqlite3.connect(tmp_path / "ledger.db")
    assert db.execute("SELECT count(*) FROM meta").fetchone() == (1,)
    db.close()
