"""Who is there: announcements, goodbyes and wills, late ones and old ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.bus import presence
from relay.bus.presence import STALE, Presence, Roster


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def hear(
    roster: Roster, name: str, boot: str, *, online: bool, time: float = 1000.0, kept: bool = False
) -> bool:
    return roster.hear(Presence(name, online, time, boot), retained=kept)


def test_an_announcement_makes_an_agent_appear_once() -> None:
    roster = Roster(Clock())
    assert not roster.online("Bob")
    assert hear(roster, "Bob", "1", online=True)
    assert not hear(roster, "Bob", "1", online=True)
    assert roster.online("bob")


def test_a_new_boot_is_a_new_appearance() -> None:
    roster = Roster(Clock())
    hear(roster, "Bob", "1", online=True)
    assert hear(roster, "Bob", "2", online=True)


def test_a_late_will_of_an_earlier_boot_is_ignored() -> None:
    roster = Roster(Clock())
    hear(roster, "Bob", "2", online=True)
    assert not hear(roster, "Bob", "1", online=False)
    assert roster.online("Bob")
    hear(roster, "Bob", "2", online=False)
    assert not roster.online("Bob")


def test_a_presence_without_heartbeats_becomes_stale() -> None:
    clock = Clock()
    roster = Roster(clock)
    hear(roster, "Bob", "1", online=True)
    clock.now += STALE
    assert not roster.online("Bob")
    assert hear(roster, "Bob", "1", online=True)


def test_a_kept_presence_is_as_old_as_it_says_and_a_live_one_is_new() -> None:
    roster = Roster(Clock())
    assert not hear(roster, "Bob", "1", online=True, time=1000.0 - STALE, kept=True)
    assert hear(roster, "Carol", "1", online=True, time=0.0), "its host's clock may be wrong"
    assert [(p.name, p.online) for p in roster.list(["Alice"])] == [
        ("Alice", False),
        ("Bob", False),
        ("Carol", True),
    ]


def test_announcements_come_out_as_they_went_in() -> None:
    payload = presence.encode("Bob", "boot", 7.0, online=True)
    assert presence.decode(payload, "bob") == Presence("Bob", True, 7.0, "boot")
    assert presence.decode(payload, "alice") is None


@given(
    st.binary(max_size=100)
    | st.sampled_from([b"1", b"[]", b"{}", b'{"v":1,"name":5}', b'{"v":1,"name":"a b"}'])
)
def test_foreign_announcements_are_none(payload: bytes) -> None:
    assert presence.decode(payload, "bob") is None
