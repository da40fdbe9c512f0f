"""Publishers take turns in the processing of arrivals, and every queue is bounded."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from relay.transport import arrivals, topics
from relay.transport.arrivals import Arrivals, Inbound


def inbound(sender: str, text: str) -> Inbound:
    return Inbound(topics.inbox("default", "Bob", sender), text.encode(), retained=False)


def processed(found: Arrivals, payloads: Iterable[Inbound]) -> list[str]:
    """Return the texts in the order of processing."""
    for each in payloads:
        found.add(each)
    return [each.payload.decode() for each in found.left()]


def test_senders_take_turns_and_keep_their_order() -> None:
    """S10: Alice's messages used to come after all of Mallory's."""
    many = [inbound("Mallory", f"m{number}") for number in range(5)]
    few = [inbound("Alice", "a0"), inbound("Alice", "a1"), inbound("Carol", "c0")]
    assert processed(Arrivals(), [*many, *few]) == ["m0", "a0", "c0", "m1", "a1", "m2", "m3", "m4"]


def test_presence_and_mail_of_one_publisher_share_a_queue() -> None:
    announcement = Inbound(topics.presence("default", "Alice"), b"there", retained=False)
    assert processed(Arrivals(), [announcement, inbound("Alice", "hello"), inbound("Carol", "hi")]) == [
        "there",
        "hi",
        "hello",
    ]


def test_messages_without_room_in_their_publishers_queue_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LINE", 100_000)
    found = Arrivals()
    large = "x" * 9_000
    texts = processed(found, [*[inbound("Mallory", large)] * 50, inbound("Al", large)])
    assert found.dropped == 50 - 9
    assert texts == [large] * 10


def test_a_queue_of_small_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LINE", 100_000)
    found = Arrivals()
    assert len(processed(found, [inbound("Mallory", "x")] * 1000)) == 1000 - found.dropped < 200


def test_few_messages_at_qos_0_are_queued() -> None:
    """At QoS 0, the broker sends everything it has, however slow the receiver is."""
    flood = [Inbound(topics.inbox("default", "Bob", "Mallory"), b"x", retained=False, qos=0)] * 10_000
    found = Arrivals()
    texts = processed(found, [*flood, inbound("Alice", "hello")])
    assert texts[1] == "hello"
    assert len(texts) == 10_001 - found.dropped < 3_000


def test_beyond_the_total_limit_the_longest_queue_loses_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded for any number of publishers; those that send little lose nothing."""
    large = "x" * 7_000
    crowd = [inbound(f"Mallory{number}", large) for number in range(20) for _ in range(4)]
    monkeypatch.setattr(arrivals, "ALL", 40 * (len(large) + 1024))
    found = Arrivals()
    texts = processed(found, [inbound("Alice", "first"), *crowd, inbound("Alice", "second")])
    assert len(texts) + found.dropped == len(crowd) + 2
    assert texts[0] == "first"
    assert "second" in texts
    assert texts.count(large) <= 40
