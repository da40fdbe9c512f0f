"""Publishers take turns in the processing of arrivals, and every queue is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

import pytest

from relay.messaging import arrivals
from relay.messaging.arrivals import Arrivals
from relay.messaging.envelope import MAX_RECEIPT
from relay.transport import topics
from relay.transport.mqtt import ConnectionLost, Inbound


def inbound(sender: str, text: str) -> Inbound:
    return Inbound(topics.inbox("default", "Bob", sender), text.encode(), retained=False)


def taken(found: Arrivals, payloads: Iterable[Inbound]) -> list[str]:
    """Return the texts in the order of processing; then the connection is lost."""

    async def arriving() -> AsyncIterator[Inbound]:
        for each in payloads:
            yield each
        raise ConnectionLost("gone")

    async def scenario() -> list[str]:
        texts = []
        async with contextlib.aclosing(found.in_turn(arriving())) as stream:
            with pytest.raises(ConnectionLost):
                async for each in stream:
                    texts.append(each.payload.decode())
        return texts

    return asyncio.run(scenario())


def test_each_sender_has_its_turn_and_its_order() -> None:
    """S10: Alice's messages came after all of Mallory's."""
    many = [inbound("Mallory", f"m{number}") for number in range(5)]
    few = [inbound("Alice", "a0"), inbound("Alice", "a1"), inbound("Carol", "c0")]
    assert taken(Arrivals(), [*many, *few]) == ["m0", "a0", "c0", "m1", "a1", "m2", "m3", "m4"]


def test_presences_and_mail_of_one_publisher_stand_in_one_line() -> None:
    said = Inbound(topics.presence("default", "Alice"), b"there", retained=False)
    assert taken(Arrivals(), [said, inbound("Alice", "hello"), inbound("Carol", "hi")]) == [
        "there",
        "hi",
        "hello",
    ]


def test_what_finds_no_room_is_dropped_and_receipts_find_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LINE", 100_000)
    found = Arrivals()
    large = "x" * (MAX_RECEIPT + 1)
    texts = taken(
        found, [*[inbound("Mallory", large)] * 50, inbound("Mallory", "receipt"), inbound("Al", large)]
    )
    assert found.dropped == 50 - 10
    assert texts == [large, large, *[large] * 9, "receipt"]


def test_no_number_of_small_ones_makes_a_line_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LINE", 100_000)
    found = Arrivals()
    assert len(taken(found, [inbound("Mallory", "x")] * 1000)) == 1000 - found.dropped < 200


def test_of_what_is_not_held_up_by_acknowledgements_little_waits() -> None:
    """At QoS 0 the broker sends everything it has, however slow the processing."""
    flood = [Inbound(topics.inbox("default", "Bob", "Mallory"), b"x", retained=False, qos=0)] * 10_000
    found = Arrivals()
    texts = taken(found, [*flood, inbound("Alice", "hello")])
    assert texts[1] == "hello"
    assert len(texts) == 10_001 - found.dropped < 3_000


def test_of_all_together_the_end_of_the_longest_line_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded for any number of publishers; those who sent little lose nothing."""
    large = "x" * 7_000
    crowd = [inbound(f"Mallory{number}", large) for number in range(20) for _ in range(4)]
    monkeypatch.setattr(arrivals, "ALL", 40 * (len(large) + 1024))
    found = Arrivals()
    texts = taken(found, [inbound("Alice", "first"), *crowd, inbound("Alice", "second")])
    assert len(texts) + found.dropped == len(crowd) + 2
    assert texts[0] == "first"
    assert "second" in texts
    assert texts.count(large) <= 41  # one was taken before the others arrived


def test_who_stops_taking_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def arriving() -> AsyncIterator[Inbound]:
            try:
                yield inbound("Alice", "hello")
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with contextlib.aclosing(Arrivals().in_turn(arriving())) as stream:
            assert (await anext(stream)).payload == b"hello"
        await asyncio.wait_for(ended.wait(), 60)

    asyncio.run(scenario())
