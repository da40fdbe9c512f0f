"""Who receives an accepted message."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers import post
from relay import names
from relay.errors import MessageRefused, ReceiverStarting, UnknownRecipient
from relay.message import State
from relay.messaging.envelope import decode, encode
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.transport.topics import InboxTopic


def test_a_broadcast_reaches_who_is_there_and_a_name_is_known_for_ever(tmp_path: Path) -> None:
    """R47, U2."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Away", "Here", "There"):
            ledger.registry.register("default", name)
        sent = post(ledger, "default", "you", "*", "hello", there={"Here", "There"}.__contains__)
        assert [message.to for message in sent] == ["Here", "There"]
        assert [message.to for message in post(ledger, "default", "you", "away", "hello")] == ["Away"]


def test_a_broadcast_to_nobody_is_refused(tmp_path: Path) -> None:
    """U2: nor does the broadcast wait for anybody."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register("default", "Away")
        with pytest.raises(UnknownRecipient, match="team 'default' has no other agents, so nothing was sent"):
            post(ledger, "default", "you", "*", "hello", there=lambda name: False)
        assert ledger.messages() == []


def test_who_is_there_and_not_known_yet_is_just_starting(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(ReceiverStarting, match="Bob has been started"):
            post(ledger, "default", "you", "Bob", "hello", there=lambda name: True)
        with pytest.raises(UnknownRecipient, match="The team has no agents"):
            post(ledger, "default", "you", "Bob", "hello", there=lambda name: False)
        with pytest.raises(
            UnknownRecipient, match="The team has no agents"
        ):  # neither a name nor part of a path
            post(ledger, "default", "you", "../Bob", "hello", there=lambda name: True)


@given(
    thread=st.none() | st.text(max_size=2000),
    reply_to=st.none() | st.text(max_size=80),
    ttl=st.none() | st.floats(),
)
def test_what_is_accepted_every_receiver_takes(
    thread: str | None, reply_to: str | None, ttl: float | None
) -> None:
    """Otherwise it would be resent again and again, and everything behind it would wait."""
    with tempfile.TemporaryDirectory() as directory, Ledger(Path(directory) / "ledger.db") as ledger:
        ledger.registry.register("default", "Bob")
        try:
            post(ledger, "default", "Alice", "Bob", "hello", thread=thread, reply_to=reply_to, ttl=ttl)
        except MessageRefused:
            return
        (parcel,) = ledger.outbox.claim("default", "Alice", lambda *_: None, 1)
        assert decode(encode(parcel), InboxTopic("default", "bob", "alice"))


def test_the_user_in_a_channel_gets_it_with_the_others(tmp_path: Path) -> None:
    """One transaction covers all: if it is refused, nothing has been sent."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Alice", "Bob"):
            ledger.registry.register("default", name)
        for name in ("Bob", names.PERSON):
            ledger.channels.join("default", "ops", name)
        sent = post(ledger, "default", "Alice", "#ops", "hello", limits=Limits(queue=1))
        assert {message.to: message.state for message in sent} == {
            "Bob": State.QUEUED,
            names.PERSON: State.STORED,
        }
        with pytest.raises(MessageRefused):
            post(ledger, "default", "Alice", "#ops", "again", limits=Limits(queue=1))
        assert len(ledger.messages()) == 2


def test_what_is_held_waits_too(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register("default", "Bob")
        limits = Limits(rate=1, queue=3)
        for _ in range(3):
            post(ledger, "default", "Alice", "Bob", "hello", limits=limits)
        with pytest.raises(MessageRefused, match="3 messages from this sender are already waiting"):
            post(ledger, "default", "Alice", "Bob", "hello", limits=limits)
