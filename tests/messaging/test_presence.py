"""Who is online: announcements, goodbyes and wills, late ones and old ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st

from relay.messaging.attendance import Attendance, bus_of
from relay.messaging.ledger import Ledger
from relay.transport import presence
from relay.transport.presence import (
    HEARTBEAT,
    LONGEST_HEARTBEAT,
    MAX_CHANNELS,
    MAX_PAYLOAD,
    MISSED,
    Presence,
    interval,
)

SILENCE = MISSED * HEARTBEAT  # seconds after which an agent with the usual interval counts as offline


@pytest.fixture
def roster(ledger: Ledger) -> Attendance:
    return ledger.attendance("", "default")


def hear(roster: Attendance, name: str, boot: str, *, online: bool, age: float = 0.0) -> bool:
    return roster.hear(Presence(name, online, 1000.0, boot), age)


def test_an_announcement_makes_an_agent_appear_once(roster: Attendance) -> None:
    assert not roster.online("Bob")
    assert hear(roster, "Bob", "1", online=True)
    assert not hear(roster, "Bob", "1", online=True)
    assert roster.online("bob")
    assert roster.count() == 1


def test_a_new_boot_is_a_new_appearance(roster: Attendance) -> None:
    hear(roster, "Bob", "1", online=True)
    assert hear(roster, "Bob", "2", online=True)


def test_a_late_will_of_an_earlier_boot_is_ignored(roster: Attendance) -> None:
    hear(roster, "Bob", "2", online=True)
    assert not hear(roster, "Bob", "1", online=False)
    assert roster.online("Bob")
    hear(roster, "Bob", "2", online=False)
    assert not roster.online("Bob")
    assert roster.count() == 0


def test_an_announcement_that_is_too_large_is_foreign() -> None:
    """An announcement with all the channels that an agent may be in is not too large."""
    most = tuple(f"{number:064}" for number in range(MAX_CHANNELS))
    payload = presence.encode(Presence("Bob", True, 1.0, "boot", host="h" * 64, channels=most))
    assert presence.decode(payload, "bob") is not None
    payload = presence.encode(Presence("Bob", True, 1.0, "b" * MAX_PAYLOAD))
    assert presence.decode(payload, "bob") is None


def test_an_announcement_of_more_channels_than_an_agent_may_be_in_is_foreign() -> None:
    for number in (MAX_CHANNELS, MAX_CHANNELS + 1):
        announced = Presence("Bob", True, 1.0, "boot", channels=tuple(map(str, range(number))))
        found = presence.decode(presence.encode(announced), "bob")
        assert found == (announced if number == MAX_CHANNELS else None)


@pytest.mark.parametrize("wrong", ["\ud800", "\x1b[2J", "x" * 129, 7, None])
@pytest.mark.parametrize("field", ["boot", "session", "home", "host"])
def test_what_a_peer_calls_itself_is_a_short_word_or_foreign(field: str, wrong: object) -> None:
    """The ledger stores the word, and users see it."""
    payload = json.loads(presence.encode(Presence("Bob", True, 1.0, "boot")))
    assert presence.decode(json.dumps(payload).encode(), "bob") is not None
    assert presence.decode(json.dumps({**payload, field: wrong}).encode(), "bob") is None


def test_a_will_of_a_later_connection_of_the_same_run_counts(roster: Attendance) -> None:
    """The run died before it could announce itself on that connection."""
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
    hear(roster, "Bob", "1", online=True)
    clock.now += SILENCE - 1
    assert roster.online("Bob")
    clock.now += 1
    assert not roster.online("Bob")
    assert hear(roster, "Bob", "1", online=True)


def test_silence_is_measured_by_what_the_agent_calls_its_interval(roster: Attendance, clock: Clock) -> None:
    roster.hear(Presence("Bob", True, 0.0, "1", every=100.0))
    clock.now += 299
    assert roster.online("Bob")
    clock.now += 1
    assert not roster.online("Bob")


def test_a_kept_presence_is_as_old_as_it_says_and_a_live_one_is_new(roster: Attendance) -> None:
    assert not hear(roster, "Bob", "1", online=True, age=SILENCE)
    assert hear(roster, "Carol", "1", online=True), "its host's clock may be wrong"
    assert [(p.name, p.online) for p in roster.roster(["Alice"])] == [
        ("Alice", False),
        ("Bob", False),
        ("Carol", True),
    ]


def test_a_kept_presence_from_a_late_clock_does_not_end_what_was_heard_live(roster: Attendance) -> None:
    hear(roster, "Bob", "1", online=True)
    hear(roster, "Bob", "1", online=True, age=1000.0)
    assert roster.online("Bob")


@pytest.mark.parametrize("online", [0, 1, 120])
def test_a_small_team_announces_at_the_usual_interval(online: int) -> None:
    assert interval(online) == HEARTBEAT


def test_the_pace_of_a_large_team_does_not_grow_with_it() -> None:
    assert 500 / interval(500) == 1000 / interval(1000) < 5
    assert interval(10**9) == LONGEST_HEARTBEAT


def test_announcements_come_out_as_they_went_in() -> None:
    said = Presence("Bob", True, 7.0, "boot", "s", "h", "box", 40.0, ("dev", "ops"))
    payload = presence.encode(said)
    assert presence.decode(payload, "bob") == said
    assert presence.decode(payload, "alice") is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2), ("name", "a b"), ("time", float("inf")), ("time", float("nan")), ("time", 10**400),
        ("every", 0), ("every", -1), ("every", 1e9), ("every", float("nan")), ("channels", 5),
        ("channels", ["a/b"]), ("channels", [5]),
    ],
)  # fmt: skip
def test_an_announcement_with_a_senseless_field_is_foreign(field: str, value: object) -> None:
    fields = json.loads(presence.encode(Presence("Bob", True, 7.0, "boot")))
    assert presence.decode(json.dumps(fields).encode(), "bob") is not None
    assert presence.decode(json.dumps(fields | {field: value}).encode(), "bob") is None


@given(
    st.binary(max_size=100)
    | st.sampled_from([b"1", b"[]", b"{}", b'{"v":1,"name":5}', b'{"v":1,"name":"a b"}'])
)
def test_foreign_announcements_are_none(payload: bytes) -> None:
    assert presence.decode(payload, "bob") is None


def test_whose_a_name_is_is_announced(roster: Attendance) -> None:
    """U2: an announcement by an earlier relay does not mention the owner."""
    said = Presence("Bob", True, 1000.0, "1", owner="run/1", over=True)
    assert presence.decode(presence.encode(said), "bob") == said
    earlier = json.loads(presence.encode(said))
    del earlier["owner"], earlier["over"]
    heard = presence.decode(json.dumps(earlier).encode(), "bob")
    assert heard is not None and (heard.owner, heard.over) == ("", False)
    roster.hear(replace(said, over=False))
    roster.hear(Presence("Old", True, 1000.0, "1"))
    assert roster.online("Bob", "run/1")
    assert not roster.online("Bob", "run/2") and roster.taken("Bob", "run/2")
    assert roster.online("Old", "run/2")
    assert not roster.taken("Old", "run/2") and not roster.taken("Cy", "run/2")
    assert [(each.owner, each.over) for each in roster.roster([])] == [("run/1", False), ("", False)]


def test_who_may_get_another_session_is_there_for_a_moment(roster: Attendance, clock: Clock) -> None:
    """U2: unlike an agent that has ended, or was silent for long."""
    for name in ("Ended", "Replaced", "Here"):
        hear(roster, name, "1", online=True)
    hear(roster, "Replaced", "1", online=False)
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
def test_one_broker_has_one_listener_however_its_nodes_are_named(urls: str) -> None:
    """Another order, another user or the explicit default port still means the same broker."""
    assert bus_of(urls) == bus_of("mqtt://a,mqtt://b")
    assert bus_of(urls) not in {bus_of("mqtt://a"), bus_of("mqtts://a,mqtts://b"), bus_of(None)}
