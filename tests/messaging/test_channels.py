"""Channels in the ledger: their members, and who receives messages to a channel."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgers import post
from relay.errors import InvalidName, NotAMember, UnknownRecipient
from relay.message import State
from relay.messaging.channels import CATCH_UP, Channel
from relay.messaging.ledger import Ledger

TEAM = "default"


def test_channel_and_member_names_ignore_case_but_keep_their_spelling(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register(TEAM, "Bob")
        channels = ledger.channels
        assert channels.join(TEAM, "Ops", "Alice")
        assert channels.join("Default", "OPS", "bob")
        assert not channels.join(TEAM, "ops", "ALICE")
        assert channels.all(TEAM) == [Channel("Ops", TEAM, ("Alice", "Bob"))]
        assert channels.of(TEAM, "alice") == ["Ops"]


def test_a_member_can_leave_and_join_again(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        channels = ledger.channels
        channels.join(TEAM, "ops", "Alice")
        channels.leave(TEAM, "OPS", "alice")
        assert (channels.all(), channels.of(TEAM, "Alice")) == ([], [])
        with pytest.raises(NotAMember, match=r"'Alice' is not in #ops. It is in no channel."):
            channels.leave(TEAM, "ops", "Alice")
        assert channels.join(TEAM, "ops", "Alice")
        with pytest.raises(NotAMember, match=r"Did you mean #ops?"):
            channels.leave(TEAM, "osp", "Alice")
        assert channels.of(TEAM, "Alice") == ["ops"]


def test_an_announcement_replaces_a_remote_members_channels(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        channels = ledger.channels
        channels.join(TEAM, "ops", "Alice")
        channels.heard(TEAM, "Bob", ("Ops", "dev"))
        assert channels.all() == [Channel("dev", TEAM, ("Bob",)), Channel("ops", TEAM, ("Alice", "Bob"))]
        channels.heard(TEAM, "bob", ("ops",))
        assert channels.of(TEAM, "Bob") == ["ops"]
        channels.heard(TEAM, "Bob", ())
        assert channels.all() == [Channel("ops", TEAM, ("Alice",))]


def test_teams_have_separate_channels(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.channels.join("red", "ops", "Alice")
        ledger.channels.join("blue", "ops", "Bob")
        assert ledger.channels.audience("red", "ops", "you").members == ("Alice",)
        assert [each.team for each in ledger.channels.all()] == ["blue", "red"]
        assert ledger.channels.all("Red") == [Channel("ops", "red", ("Alice",))]


def test_a_sender_need_not_be_a_member_and_never_receives_its_own_message(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Alice", "Bob"):
            ledger.channels.join(TEAM, "ops", name)
        assert ledger.channels.audience(TEAM, "OPS", "Carol") == Channel("ops", TEAM, ("Alice", "Bob"))
        assert ledger.channels.audience(TEAM, "ops", "alice").members == ("Bob",)


def test_a_channel_without_an_audience_is_an_error_with_advice(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        channels = ledger.channels
        with pytest.raises(UnknownRecipient, match=r"no channels yet. Join it with `relay join ops`"):
            channels.audience(TEAM, "ops", "Alice")
        channels.join(TEAM, "ops", "Alice")
        advice = r"nobody else is in #ops. Add an agent with `relay join -n NAME ops`"
        with pytest.raises(UnknownRecipient, match=advice):
            channels.audience(TEAM, "ops", "Alice")
        with pytest.raises(UnknownRecipient, match=r"Did you mean #ops?") as caught:
            channels.audience(TEAM, "osp", "Bob")
        assert caught.value.suggestion == "#ops"
        with pytest.raises(UnknownRecipient, match=r"is #ops \(Alice\). Join it with `relay join weather`"):
            channels.audience(TEAM, "weather", "Bob")


def test_a_channel_message_becomes_one_message_per_member(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Alice", "Bob", "you"):
            ledger.channels.join(TEAM, "Ops", name)
        sent = post(ledger, TEAM, "Alice", "#ops", "hello")
        assert [(each.to, each.channel, each.state) for each in sent] == [
            ("Bob", "Ops", State.QUEUED),
            ("you", "Ops", State.STORED),
        ]
        assert [entry.message for entry in ledger.messages()] == sent
        assert [each.to for each in post(ledger, TEAM, "you", "#OPS", "hello")] == ["Alice", "Bob"]
        with pytest.raises(InvalidName):
            post(ledger, TEAM, "Alice", "#", "hello")


def test_an_absent_members_oldest_channel_messages_expire(tmp_path: Path) -> None:
    """Direct messages, and messages in flight to an online member, do not count."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Bob", "Carol"):
            ledger.channels.join(TEAM, "ops", name)
            ledger.registry.register(TEAM, name)
        (direct,) = post(ledger, TEAM, "you", "Bob", "for Bob alone")
        sent = [post(ledger, TEAM, "you", "#ops", f"number {n}") for n in range(CATCH_UP + 3)]
        assert ledger.channels.limit(TEAM, lambda name: True) == 0  # nobody has checked who is online yet
        while ledger.transit.claim(TEAM, "you", lambda name, _: None if name == "Bob" else 5.0, 50):
            pass
        assert ledger.channels.limit(TEAM, lambda name: False) == 0
        assert ledger.channels.limit(TEAM, lambda name: name == "Bob") == 3
        assert ledger.channels.limit(TEAM, lambda name: True) == 0
        expired = [e.message for e in ledger.messages() if e.message.state is State.EXPIRED]
        assert [(m.to, m.body) for m in expired] == [("Bob", f"number {n}") for n in range(3)]
        assert expired[0].detail == "left out: Bob was away for more than 100 messages of #ops"
        ledger.transit.appeared(TEAM, "Bob")
        parcels = ledger.transit.claim(TEAM, "you", lambda *_: None, 1000)
        assert {parcel.message.id for parcel in parcels} == {
            direct.id,
            *(to_bob.id for to_bob, _ in sent[3:]),
        }
