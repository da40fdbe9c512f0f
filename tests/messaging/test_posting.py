"""A message is accepted or refused as a whole, depending on its receivers."""

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


def test_a_broadcast_reaches_online_agents_and_a_name_also_an_absent_one(tmp_path: Path) -> None:
    """R47, U2."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("Away", "Here", "There"):
            ledger.registry.register("default", name)
        sent = post(ledger, "default", "you", "*", "hello", there={"Here", "There"}.__contains__)
        assert [message.to for message in sent] == ["Here", "There"]
        assert [message.to for message in post(ledger, "default", "you", "away", "hello")] == ["Away"]


def test_a_broadcast_to_nobody_is_refused(tmp_path: Path) -> None:
    """U2: it does not wait for anyone either."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register("default", "Away")
        with pytest.raises(UnknownRecipient, match="team 'default' has no other agents, so nothing was sent"):
            post(ledger, "default", "you", "*", "hello", there=lambda name: False)
        assert ledger.messages() == []


def test_an_online_agent_without_a_registered_name_counts_as_starting(tmp_path: Path) -> None:
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
def test_every_accepted_message_can_be_decoded_by_its_receiver(
    thread: str | None, reply_to: str | None, ttl: float | None
) -> None:
    """Otherwise it would be resent forever, and everything behind it would wait."""
    with tempfile.TemporaryDirectory() as directory, Ledger(Path(directory) / "ledger.db") as ledger:
        ledger.registry.register("default", "Bob")
        try:
            post(ledger, "default", "Alice", "Bob", "hello", thread=thread, reply_to=reply_to, ttl=ttl)
        except MessageRefused:
            return
        (parcel,) = ledger.transit.claim("default", "Alice", lambda *_: None, 1)
        assert decode(encode(parcel), InboxTopic("default", "bob", "alice"))


def test_a_channel_message_reaches_the_user_and_the_agents_or_nobody(tmp_path: Path) -> None:
    """If it is refused, it is sent to nobody."""
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


def test_held_messages_count_as_waiting(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.registry.register("default", "Bob")
        limits = Limits(rate=1, queue=3)
        for _ in range(3):
            post(ledger, "default", "Alice", "Bob", "hello", limits=limits)
        with pytest.raises(MessageRefused, match="3 messages from this sender are already waiting"):
            post(ledger, "default", "Alice", "Bob", "hello", limits=limits)
