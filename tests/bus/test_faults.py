"""Trouble below and beside the protocol: disks, locks, damaged files, what is old, foreign or too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from couriers import Agent, running
from failpoints import far_url

from relay.bus import publisher
from relay.bus.envelope import Parcel
from relay.bus.inbox import KEEP_DAYS, InboxFull
from relay.bus.ledger import Ledger
from relay.bus.message import State
from relay.home import Home

TEAM = "default"


class Ends:
    """The ledgers of two homes: Alice's here, Bob's there. One clock, which tests turn."""

    def __init__(self, folder: Path) -> None:
        self.now = time.time()
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        self.here = Ledger(folder / "here.db", clock=clock)
        self.there = Ledger(folder / "there.db", clock=clock)

    def parcels(self, count: int) -> list[Parcel]:
        """So many messages from Alice to Bob, on their way."""
        for number in range(count):
            self.here.outbox.send(TEAM, "Alice", ["Bob"], str(number))
        return self.here.outbox.claim(TEAM, "Alice", lambda receiver, attempt: None, count)

    def type(self, parcel: Parcel) -> None:
        self.there.inbox.injecting(TEAM, "Bob", parcel.message.id)
        self.there.inbox.settle(TEAM, "Bob", parcel.message.id, State.INJECTED)

    def waiting(self) -> list[str]:
        return [message.body for message in self.there.inbox.waiting(TEAM, "Bob")]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    yield made
    made.here.close()
    made.there.close()


# What comes late, or is too much.


def test_a_copy_that_comes_when_the_first_is_forgotten_is_uncertain(ends: Ends) -> None:
    """R88: a broker may hand over a second copy after a month, or after the clock has jumped by one."""
    (parcel,) = ends.parcels(1)
    ends.there.inbox.store(TEAM, parcel)
    ends.type(parcel)
    ends.there.prune()
    ends.now += (KEEP_DAYS + 1) * 86400
    ends.there.prune()
    assert ends.there.messages() == []
    assert ends.there.inbox.store(TEAM, parcel) == []
    assert ends.waiting() == []
    (receipt,) = ends.there.inbox.receipts(TEAM, "Bob", 9)
    ends.here.outbox.receipt(TEAM, receipt)
    (entry,) = ends.here.messages()
    assert entry.message.state is State.UNCERTAIN
    assert "may have been given" in (entry.message.detail or "")


def test_a_message_that_was_long_away_is_no_copy(ends: Ends) -> None:
    parcels = ends.parcels(2)
    ends.now += (KEEP_DAYS + 1) * 86400
    for parcel in parcels:
        ends.there.inbox.store(TEAM, parcel)
    assert ends.waiting() == ["0", "1"]


def test_a_full_inbox_takes_what_the_others_in_it_wait_for(ends: Ends) -> None:
    """The first was lost and comes last: it is what everything that fills the inbox waits for."""
    first, *others = ends.parcels(5)
    for parcel in others[:3]:
        assert ends.there.inbox.store(TEAM, parcel, most=3) == []
    with pytest.raises(InboxFull):
        ends.there.inbox.store(TEAM, others[3], most=3)
    assert len(ends.there.inbox.store(TEAM, first, most=3)) == 4
    assert ends.waiting() == ["0", "1", "2", "3"]
    with pytest.raises(InboxFull):  # now those before it have their turn
        ends.there.inbox.store(TEAM, others[3], most=3)
    ends.type(first)
    ends.type(others[0])
    ends.there.inbox.store(TEAM, replace(others[3], base=5), most=3)
    assert ends.waiting() == ["2", "3", "4"]


def test_what_is_sent_to_somebody_who_is_still_coming_arrives_at_once(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob is heard of before his mailbox is there; what is published in between is lost, and sent again."""
    monkeypatch.setattr(publisher, "FIRST_RETRY", 1e6)
    monkeypatch.setattr(publisher, "LAST_RETRY", 1e6)

    async def scenario() -> None:
        far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()
        url = await asyncio.to_thread(far_url, home, "Bob")
        alice = Agent(home, "Alice")
        alice.courier._ledger.registry.register(TEAM, "Bob")
        async with running(alice):
            alice.courier.send("Bob", "hello")
            async with running(Agent(far, "Bob", url=url)) as bob:
                assert [message.body for message in await bob.receive()] == ["hello"]

    asyncio.run(scenario())
