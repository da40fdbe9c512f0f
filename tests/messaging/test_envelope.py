"""The wire format: decoding returns what was encoded, and rejects everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.message import MAX_BODY, Message, State
from relay.messaging.envelope import Envelope, Receipt, copy_of, decode, encode, is_copy
from relay.transport import topics
from relay.transport.wire import ForeignPayload

TO_BOB = topics.InboxTopic("default", "bob", "alice")
TO_ALICE = topics.InboxTopic("default", "alice", "bob")
MESSAGE = Message("id-1", "Alice", "Bob", "hello", 12.5, State.STORED, "thread")
PARCEL = Envelope(MESSAGE, "origin", 3, 2)


def changed(**fields: Any) -> bytes:
    """Return PARCEL's payload with some fields replaced."""
    return json.dumps({**json.loads(encode(PARCEL)), **fields}).encode()


@given(st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable() or "\x00" in text))
def test_a_message_survives_encoding(body: str) -> None:
    parcel = Envelope(Message("id", "Alice", "Bob", body, 1.0, State.STORED), "origin", 1, 1)
    assert decode(encode(parcel), TO_BOB) == parcel


def test_only_a_copy_of_a_message_within_a_home_is_taken_for_one() -> None:
    message = Message("0123456789abcdef", "Alice", "Bob", '{"v":1,"kind":"message","seq":0,', 1.0)
    assert is_copy(encode(copy_of(message, "0123456789abcdef")))
    assert not is_copy(encode(Envelope(message, "origin", 1, 1)))
    assert not is_copy(encode(Receipt(message.id, "Bob", "Alice", State.STORED)))


@pytest.mark.parametrize("state", [State.STORED, State.INJECTED, State.UNCERTAIN, State.REJECTED])
def test_a_receipt_survives_encoding(state: State) -> None:
    receipt = Receipt("id", "Bob", "Alice", state, "why", "typed", "user")
    assert decode(encode(receipt), TO_ALICE) == receipt


def test_the_largest_body_fits() -> None:
    for body in ("x" * MAX_BODY, "\x01" * MAX_BODY, "語" * (MAX_BODY // 3)):
        parcel = Envelope(Message("id", "Alice", "Bob", body, 1.0, State.STORED), "origin", 1, 1)
        assert decode(encode(parcel), TO_BOB) == parcel


FOREIGN = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{",
    b"[" * 100_000,
    changed(v=2),
    changed(kind="command"),
    changed(kind=[]),
    changed(**{"from": "Mallory"}),
    changed(**{"from": "you"}),
    changed(to="Carol"),
    changed(id=""),
    changed(id=7),
    changed(id="x" * 2000),
    changed(id="\x1b[2J"),
    changed(reply_to="a b"),
    changed(**{"from": "ali\x1bce"}),
    changed(time=10**400),
    changed(time=1e18),
    changed(time=-1.0),
    changed(ttl=10**400),
    changed(ttl="inf"),
    changed(body=None),
    changed(body="x" * (MAX_BODY + 1)),
    changed(body="\ud800"),
    changed(time=True),
    changed(time="now"),
    changed(time=float("nan")),
    changed(seq=0),
    changed(seq=1.5),
    changed(seq=1, base=2),
    changed(thread=["x"]),
    changed(thread="a\nb\x1b[2J"),
    changed(home="a\nb"),
    changed(owner="run/\x1b[2J"),
    changed(channel="ops] obey"),
    changed(channel="#ops"),
    changed(origin="a b"),
    changed(origin="origin/low"),
    changed(priority="lowest"),
    changed(note="of a later relay"),
    changed(kind="receipt", state="queued"),
    changed(kind="receipt", state="read"),
]


def test_a_foreign_payload_is_rejected(subtests: pytest.Subtests) -> None:
    for payload in FOREIGN:
        with subtests.test(repr(payload[:200])), pytest.raises(ForeignPayload):
            decode(payload, TO_BOB)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_rejected(payload: bytes) -> None:
    with pytest.raises(ForeignPayload):
        decode(payload, TO_BOB)


@pytest.mark.parametrize("name", ["Alice", "api.v1", "a-b_c", "X"])
def test_a_topic_names_its_receiver_and_sender(name: str) -> None:
    topic = topics.parse(topics.inbox("Team.1", "Bob", name))
    assert topic == topics.InboxTopic("team~1", "bob", topics.level(name))
    assert topics.parse(topics.presence("t", name)) == topics.PresenceTopic("t", topics.level(name))


@pytest.mark.parametrize(
    "topic",
    ["", "relay/v1", "relay/v2/t/agents/a/inbox/b", "relay/v1/t/agents/a/inbox/b/c", "relay/v1//presence/"],
)
def test_a_foreign_topic_is_not_parsed(topic: str) -> None:
    assert topics.parse(topic) is None
