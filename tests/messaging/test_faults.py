"""Faults around the protocol: full disks, locks, damaged files; late or excessive data; clock jumps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clients import Agent, abroad, far_from, register, running
from failpoints import far_url

from ledgers import in_ledger, send
from relay.backoff import Backoff
from relay.errors import LedgerError
from relay.home import Home
from relay.message import State
from relay.messaging import client, publisher
from relay.messaging.envelope import Envelope
from relay.messaging.inbox import KEEP_DAYS, InboxFull
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerGone
from relay.transport import broker
from support import eventually

TEAM = "default"


class TwoHomes:
    """The ledgers of two homes, Alice's here and Bob's there, with one clock, which tests set."""

    def __init__(self, folder: Path) -> None:
        self.now = time.time()
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        self.here = Ledger(folder / "here.db", clock=clock)
        self.there = Ledger(folder / "there.db", clock=clock)

    def parcels(self, count: int) -> list[Envelope]:
        """Return `count` messages from Alice to Bob, in flight."""
        for number in range(count):
            send(self.here, TEAM, "Alice", ["Bob"], str(number))
        return self.here.transit.claim(TEAM, "Alice", lambda receiver, attempt: None, count)

    def type(self, parcel: Envelope) -> None:
        self.there.inbox.injecting(TEAM, "Bob", parcel.message.id)
        self.there.inbox.settle(TEAM, "Bob", parcel.message.id, State.INJECTED)

    def waiting(self) -> list[str]:
        return [message.body for message in self.there.inbox.waiting(TEAM, "Bob")]


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[TwoHomes]:
    made = TwoHomes(tmp_path)
    yield made
    made.here.close()
    made.there.close()


# Late or excessive data.


def test_a_duplicate_that_arrives_after_pruning_is_uncertain(homes: TwoHomes) -> None:
    """R88: a broker may deliver a second copy a month later, or after the clock has jumped by a month."""
    (parcel,) = homes.parcels(1)
    homes.there.inbox.store(TEAM, parcel)
    homes.type(parcel)
    homes.there.prune()
    homes.now += (KEEP_DAYS + 1) * 86400
    homes.there.prune()  # its sender must be notified first
    homes.there.inbox.receipted(TEAM, homes.there.inbox.receipts(TEAM, "Bob", 9))
    homes.now += (KEEP_DAYS + 1) * 86400
    homes.there.prune()
    assert homes.there.messages() == []
    homes.there.inbox.store(TEAM, parcel)
    assert homes.waiting() == []
    (receipt,) = homes.there.inbox.receipts(TEAM, "Bob", 9)
    homes.here.transit.receipt(TEAM, receipt)
    (entry,) = homes.here.messages()
    assert entry.message.state is State.UNCERTAIN
    assert "may have received it" in (entry.message.detail or "")


def test_a_long_delayed_message_is_not_a_duplicate(homes: TwoHomes) -> None:
    parcels = homes.parcels(2)
    homes.now += (KEEP_DAYS + 1) * 86400
    for parcel in parcels:
        homes.there.inbox.store(TEAM, parcel)
    assert homes.waiting() == ["0", "1"]


def test_a_full_inbox_accepts_the_message_that_the_others_wait_for(homes: TwoHomes) -> None:
    """The first one was lost and arrives last: all that fills the inbox waits for it."""
    first, *others = homes.parcels(5)
    for parcel in others[:3]:
        homes.there.inbox.store(TEAM, parcel, most=3)
    assert homes.waiting() == []
    with pytest.raises(InboxFull):
        homes.there.inbox.store(TEAM, others[3], most=3)
    homes.there.inbox.store(TEAM, first, most=3)
    assert homes.waiting() == ["0", "1", "2", "3"]
    with pytest.raises(InboxFull):  # now the earlier ones come first
        homes.there.inbox.store(TEAM, others[3], most=3)
    homes.type(first)
    homes.type(others[0])
    homes.there.inbox.store(TEAM, replace(others[3], base=5), most=3)
    assert homes.waiting() == ["2", "3", "4"]


def test_a_message_to_a_joining_agent_arrives_without_a_retry_delay(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob is known before his mailbox exists; a message published in between is lost, and resent."""
    monkeypatch.setattr(publisher, "RETRY", Backoff(1e6, 1e6))

    async def scenario() -> None:
        arriving = await abroad(home, "Bob")
        await register(home, "Bob", here=False)
        async with running(Agent(home, "Alice")) as alice:
            await alice.send("Bob", "hello")
            async with running(arriving) as bob:
                assert [message.body for message in await bob.receive()] == ["hello"]

    asyncio.run(scenario())


# Disks, locks, files.


def fill(ledger: Ledger) -> None:
    """Leave `ledger` no room to grow, as on a full disk."""
    with ledger.reading() as db:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")


def free_space(ledger: Ledger) -> None:
    with ledger.reading() as db:
        db.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_refuses_new_messages_and_keeps_accepted_ones(homes: TwoHomes) -> None:
    """R88: nothing is accepted in part, not even a broadcast, and all continues once there is space."""
    accepted = [message.id for message in send(homes.here, TEAM, "Alice", ["Bob"], "before")]
    fill(homes.here)
    with pytest.raises(
        LedgerError, match=r"the disk is full, and relay accepts no more messages. Free some space"
    ):
        while True:
            sent = send(homes.here, TEAM, "Alice", ["Bob", "Carol", "Dan"], "x" * 1000)
            accepted += [message.id for message in sent]
    assert [entry.message.id for entry in homes.here.messages()] == accepted
    free_space(homes.here)
    accepted += [message.id for message in send(homes.here, TEAM, "Alice", ["Bob"], "after")]
    parcels = homes.here.transit.claim(TEAM, "Alice", lambda receiver, attempt: None, 1000)
    assert [parcel.message.id for parcel in parcels] == accepted
    for parcel in parcels:
        if parcel.message.to == "Bob":
            homes.there.inbox.store(TEAM, parcel)
    assert homes.waiting()[0] == "before"
    assert homes.waiting()[-1] == "after"


def test_a_receivers_full_disk_delays_its_messages(homes: TwoHomes) -> None:
    """A message that could not be stored gets no receipt."""
    first, *others = homes.parcels(200)
    homes.there.inbox.store(TEAM, first)
    fill(homes.there)
    stored = [first]
    with pytest.raises(LedgerError, match="the disk is full"):
        for parcel in others:
            homes.there.inbox.store(TEAM, parcel)
            stored.append(parcel)
    assert len(homes.there.inbox.receipts(TEAM, "Bob", 1000)) == len(stored) == len(homes.waiting())
    free_space(homes.there)
    for parcel in others:  # its sender republishes all without a receipt, and perhaps more
        homes.there.inbox.store(TEAM, parcel)
    assert homes.waiting() == [str(number) for number in range(200)]


def test_a_locked_ledger_refuses_writes_but_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "busy_seconds", 0.05)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"another process keeps it locked\. Try again; `fuser`"):
            send(ledger, TEAM, "Alice", ["Bob"], "hello")
        assert ledger.messages() == []  # reading still works
        other.execute("ROLLBACK")
        send(ledger, TEAM, "Alice", ["Bob"], "hello")
        assert len(ledger.messages()) == 1


def test_a_damaged_ledger_is_reported_and_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        for _ in range(100):
            send(ledger, TEAM, "Alice", ["Bob"], "x" * 1000)
    whole = path.read_bytes()
    path.write_bytes(b"\0" * 4096 + whole[4096:])
    with pytest.raises(LedgerError, match=r"it is not a ledger\. Move it away, and relay creates a new one"):
        Ledger(path)
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    damaged = pytest.raises(LedgerError, match=r"it is damaged\. Move it away, and relay creates a new one")
    with damaged, Ledger(path) as ledger:
        ledger.messages()
    path.rename(tmp_path / "damaged.db")
    with Ledger(path) as ledger:
        assert ledger.messages() == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_moved_or_replaced_ledger_is_no_longer_written(tmp_path: Path, replaced: bool) -> None:
    """Writes to a file without a name would be lost with the last process that has it open."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        send(ledger, TEAM, "Alice", ["Bob"], "hello")
        path.rename(tmp_path / "away.db")
        if replaced:
            Ledger(path).close()
        with pytest.raises(LedgerGone, match="moved away or deleted"):
            send(ledger, TEAM, "Alice", ["Bob"], "hello")


def test_a_client_ends_when_its_ledger_is_deleted_and_the_next_one_works(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its session opens a new ledger."""
    monkeypatch.setattr(client, "SWEEP_EVERY", 0.05)

    async def scenario() -> None:
        alice = Agent(home, "Alice")
        running_alice = asyncio.create_task((await alice.open()).run())
        await alice.status("connected")
        home.ledger.unlink()
        with pytest.raises(LedgerGone):
            await running_alice
        async with running(Agent(home, "Alice")) as restarted, running(Agent(home, "Bob")) as bob:
            await restarted.send("Bob", "hello")
            assert [message.body for message in await bob.receive()] == ["hello"]

    asyncio.run(scenario())


# Clocks, absence, large amounts.


@pytest.mark.parametrize("place", ["one home", "two homes"])
def test_clock_jumps_expire_and_delay_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    real, offset = time.time, 0.0
    far_away = place == "two homes"
    monkeypatch.setattr(time, "time", lambda: real() + offset)

    async def scenario() -> None:
        nonlocal offset
        agents = [await abroad(home, "Bob") if far_away else Agent(home, "Bob") for _ in range(2)]
        async with running(Agent(home, "Alice")) as alice:
            async with running(agents[0]) as bob:
                await alice.sees("Bob")
                for number, jump in enumerate([0.0, 400 * 86400.0, -400 * 86400.0, 3600.0, -3600.0]):
                    offset += jump
                    await alice.send("Bob", str(number))
                    (message,) = await bob.receive()
                    assert message.body == str(number)
                    await bob.inject(message)
            offset += 400 * 86400
            await alice.send("Bob", "while away")
            offset -= 800 * 86400
            async with running(agents[1]) as restarted:

                async def there() -> bool:
                    return await restarted.waiting() == ["while away"]

                await eventually(there)
                await restarted.inject((await restarted.client.waiting())[0])
                await alice.all_are(State.INJECTED)

    asyncio.run(scenario())


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "count",
    [
        400,
        pytest.param(
            10_000,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(
                    not os.environ.get("RELAY_LONG"), reason="10,000 messages wait for a broker: RELAY_LONG=1"
                ),
            ],
        ),
    ],
)
def test_many_messages_wait_for_a_broker_and_arrive_in_order(home: Home, count: int) -> None:
    """R88: they wait in the ledger, not in memory, for as long as it takes."""
    url = far_url(home, "Bob")
    port = int(url.rpartition(":")[2])
    broker.stop(home)  # where nobody listens

    async def scenario() -> None:
        def write(ledger: Ledger) -> None:
            ledger.registry.register(TEAM, "Alice")
            with ledger.transaction():
                for number in range(count):
                    send(ledger, TEAM, "Bob", ["Alice"], str(number))

        await in_ledger(far_from(home), write)
        async with running(Agent(far_from(home), "Bob", url=url), connected=False) as bob:
            await bob.status("no connection to the broker")
            assert len(await bob.ledger()) == count
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await asyncio.to_thread(broker.ensure, home, port=port)
            async with running(Agent(home, "Alice")) as alice:
                got = []
                for _ in range(20):
                    part = await alice.receive(count // 20)
                    got += [message.body for message in part]
                    for message in part:  # a receiver keeps at most 2,000 that it has not been given
                        await alice.inject(message)
            assert got == [str(number) for number in range(count)]
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB

    asyncio.run(scenario())
