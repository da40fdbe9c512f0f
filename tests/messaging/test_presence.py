"""Who is online, by announcements, goodbyes and wills, even late and old ones."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st

from ledgers import send
from relay.messaging.ledger import Ledger
from relay.messaging.presence_tracker import Attendance, bus_of
from relay.messaging.publisher import Publisher
from relay.transport import presence, wire
from relay.transport.presence import (
    HEARTBEAT,
    LONGEST_HEARTBEAT,
    MAX_CHANNELS,
    MAX_PAYLOAD,
    MISSED,
    Presence,
    interval,
)


def decode(payload: bytes, level: str) -> object:
    """Return the announcement in `payload`; None if it is foreign."""
    try:
        return presence.decode(payload, level)
    except wire.ForeignPayload:
        return None


SILENCE = MISSED * HEARTBEAT  # seconds after which an agent with the usual interval counts as offline


@pytest.fixture
def roster(ledger: Ledger) -> Attendance:
    return Attendance(ledger, "", "default")


def announce(roster: Attendance, name: str, boot: str, *, online: bool, age: float = 0.0) -> bool:
    return roster.hear(Presence(name, online, 1000.0, boot), age)


def test_an_announcement_makes_an_agent_appear_once(roster: Attendance) -> None:
    assert not roster.online("Bob")
    assert announce(roster, "Bob", "1", online=True)
    assert not announce(roster, "Bob", "1", online=True)
    assert roster.online("bob")
    assert roster.count() == 1


def test_a_new_boot_is_a_new_appearance(roster: Attendance) -> None:
    announce(roster, "Bob", "1", online=True)
    assert announce(roster, "Bob", "2", online=True)


def test_a_late_will_of_an_earlier_boot_is_ignored(roster: Attendance) -> None:
    announce(roster, "Bob", "2", online=True)
    assert not announce(roster, "Bob", "1", online=False)
    assert roster.online("Bob")
    announce(roster, "Bob", "2", online=False)
    assert not roster.online("Bob")
    assert roster.count() == 0


def test_an_oversized_announcement_is_foreign() -> None:
    """But one with as many channels as an agent may be in is not."""
    channels = tuple(f"{number:064}" for number in range(MAX_CHANNELS))
    payload = presence.encode(Presence("Bob", True, 1.0, "boot", host="h" * 64, channels=channels))
    assert decode(payload, "bob") is not None
    payload = presence.encode(Presence("Bob", True, 1.0, "b" * MAX_PAYLOAD))
    assert decode(payload, "bob") is None


def test_an_announcement_with_too_many_channels_is_foreign() -> None:
    for number in (MAX_CHANNELS, MAX_CHANNELS + 1):
        announced = Presence("Bob", True, 1.0, "boot", channels=tuple(map(str, range(number))))
        found = decode(presence.encode(announced), "bob")
        assert found == (announced if number == MAX_CHANNELS else None)


IDENTIFIERS = ["boot", "session", "home", "host"]
INVALID_IDENTIFIERS = ["\ud800", "\x1b[2J", "x" * 129, 7, None]


def test_an_announcement_with_an_invalid_identifier_is_foreign(subtests: pytest.Subtests) -> None:
    """The ledger stores identifiers, and users see them."""
    for field, wrong in itertools.product(IDENTIFIERS, INVALID_IDENTIFIERS):
        with subtests.test(f"{field}: {wrong!r}"):
            payload = json.loads(presence.encode(Presence("Bob", True, 1.0, "boot")))
            assert decode(json.dumps(payload).encode(), "bob") is not None
            assert decode(json.dumps({**payload, field: wrong}).encode(), "bob") is None


def test_a_will_of_a_later_connection_of_the_same_run_counts(roster: Attendance) -> None:
    """The run died before it announced itself on that connection."""
    first = Presence("Bob", True, 0.0, boot="000001-f", session="run")
    roster.hear(first)
    roster.hear(replace(first, online=False, boot="000002-a", session="another run"))
    assert roster.online("Bob")
    roster.hear(replace(first, online=False, boot="000002-a"))
    assert not roster.online("Bob")
    roster.hear(replace(first, boot="000003-c"))
    roster.hear(replace(first, online=False))
    assert roster.online("Bob")


def test_a_presence_without_heartbeats_becomes_stale(roster: Attendance, clock: Clock) -> None:
    announce(roster, "Bob", "1", online=True)
    clock.now += SILENCE - 1
    assert roster.online("Bob")
    clock.now += 1
    assert not roster.online("Bob")
    assert announce(roster, "Bob", "1", online=True)


def test_silence_is_measured_by_the_agents_own_interval(roster: Attendance, clock: Clock) -> None:
    roster.hear(Presence("Bob", True, 0.0, "1", every=100.0))
    clock.now += 299
    assert roster.online("Bob")
    clock.now += 1
    assert not roster.online("Bob")


def test_a_retained_presence_is_as_old_as_stated_and_a_live_one_is_new(roster: Attendance) -> None:
    assert not announce(roster, "Bob", "1", online=True, age=SILENCE)
    assert announce(roster, "Carol", "1", online=True), "the clock of its host may be wrong"
    assert [(p.name, p.online) for p in roster.roster(["Alice"])] == [
        ("Alice", False),
        ("Bob", False),
        ("Carol", True),
    ]


def test_a_retained_presence_with_an_old_date_does_not_end_a_live_one(roster: Attendance) -> None:
    announce(roster, "Bob", "1", online=True)
    announce(roster, "Bob", "1", online=True, age=1000.0)
    assert roster.online("Bob")


@pytest.mark.parametrize("online", [0, 1, 120])
def test_a_small_team_announces_at_the_usual_interval(online: int) -> None:
    assert interval(online) == HEARTBEAT


def test_a_large_teams_rate_of_announcements_does_not_grow_with_it() -> None:
    assert 500 / interval(500) == 1000 / interval(1000) < 5
    assert interval(10**9) == LONGEST_HEARTBEAT


def test_an_announcement_survives_encoding() -> None:
    announced = Presence("Bob", True, 7.0, "boot", "s", "h", "box", 40.0, ("dev", "ops"))
    payload = presence.encode(announced)
    assert decode(payload, "bob") == announced
    assert decode(payload, "alice") is None


INVALID_FIELDS: list[tuple[str, object]] = [
    ("v", 2), ("name", "a b"), ("seen", float("inf")), ("seen", float("nan")), ("seen", 10**400),
    ("every", 0), ("every", -1), ("every", 1e9), ("every", float("nan")), ("channels", 5),
    ("channels", ["a/b"]), ("channels", [5]),
]  # fmt: skip


def test_an_announcement_with_an_invalid_field_is_foreign(subtests: pytest.Subtests) -> None:
    for field, value in INVALID_FIELDS:
        with subtests.test(repr((field, value))):
            fields = json.loads(presence.encode(Presence("Bob", True, 7.0, "boot")))
            assert decode(json.dumps(fields).encode(), "bob") is not None
            assert decode(json.dumps(fields | {field: value}).encode(), "bob") is None


@given(st.binary(max_size=100) | st.sampled_from([b"1", b"[]", b"{}", b'{"v":1,"kind":"presence","name":5}']))
def test_a_foreign_payload_is_not_an_announcement(payload: bytes) -> None:
    assert decode(payload, "bob") is None


def test_the_owner_of_a_name_is_announced(roster: Attendance) -> None:
    announced = Presence("Bob", True, 1000.0, "1", owner="run/1", over=True)
    assert decode(presence.encode(announced), "bob") == announced
    roster.hear(replace(announced, over=False))
    roster.hear(Presence("Old", True, 1000.0, "1"))
    assert roster.online("Bob", "run/1")
    assert not roster.online("Bob", "run/2") and roster.taken("Bob", "run/2")
    assert roster.online("Old", "run/2")
    assert not roster.taken("Old", "run/2") and not roster.taken("Cy", "run/2")
    assert [(each.owner, each.over) for each in roster.roster([])] == [("run/1", False), ("", False)]


def test_an_agent_whose_session_is_being_replaced_still_counts_for_a_moment(
    roster: Attendance, clock: Clock
) -> None:
    """U2: unlike one that has ended or was never seen."""
    for name in ("Ended", "Replaced", "Here"):
        announce(roster, name, "1", online=True)
    announce(roster, "Replaced", "1", online=False)
    roster.hear(Presence("Ended", False, 1000.0, "1", over=True))
    names = ("Ended", "Replaced", "Here", "Never")
    assert [name for name in names if roster.there(name)] == ["Replaced", "Here"]
    clock.now += presence.REPLACED
    assert [name for name in names if roster.there(name)] == ["Here"]


@pytest.mark.parametrize(
    "urls",
    [
        "mqtt://b:1883,mqtt://a",
        "mqtt://Ann:pa,ss@a, mqtt://Bob@b",
        "mqtt://A:1883,mqtt://b,mqtt://a",
    ],
)
def test_a_broker_is_one_bus_however_its_nodes_are_written(urls: str) -> None:
    """Another order, another user or an explicit default port still means the same broker."""
    assert bus_of(urls) == bus_of("mqtt://a,mqtt://b")
    assert bus_of(urls) not in {bus_of("mqtt://a"), bus_of("mqtts://a,mqtts://b"), bus_of(None)}


def test_no_receiver_appears_while_its_mail_is_put_aside(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mail would wait until it appears again."""
    send(ledger, "default", "Alice", ["Bob"], "hello")
    refused: list[str] = []

    def online(_: Attendance, name: str, owner: str | None = None) -> bool:
        path = tmp_path / "ledger.db"
        with contextlib.closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                refused.append(name)
        return False

    monkeypatch.setattr(Attendance, "online", online)
    nothing: Any = None
    assert Publisher(nothing, "default", "Alice", "")._claim(ledger) == ([], [], None)
    assert refused == ["Bob"]
