"""The outbox and inbox of the ledger: priorities, expiry, receivers that move, lost receipts, full queues."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from clocks import Clock

from ledgers import cost, post, send
from relay.errors import MessageRefused
from relay.message import Message, Priority, State
from relay.messaging.envelope import Envelope, Receipt, decode, encode
from relay.messaging.inbox import InboxFull
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.messaging.transit import WINDOW
from relay.transport.topics import InboxTopic

TEAM = "default"

T = TypeVar("T")


@pytest.fixture(autouse=True)
def team(ledger: Ledger) -> None:
    for name in ("Alice", "Bob"):
        ledger.registry.register(TEAM, name)


@pytest.fixture
def local(ledger: Ledger) -> Ledger:
    """Return the ledger of a home in which Bob is."""
    ledger.registry.register(TEAM, "Bob", here=True)
    return ledger


def claim(ledger: Ledger, home: str | None = None) -> list[Envelope]:
    return ledger.transit.claim(TEAM, "Alice", lambda *_: 5.0, 100, lambda _: home)


def bodies(ledger: Ledger) -> list[str]:
    return [message.body for message in ledger.inbox.waiting(TEAM, "Bob")]


def state(ledger: Ledger, id: str) -> State:
    return ledger.find(id).message.state


def test_each_priority_has_its_own_stream(ledger: Ledger, far: Ledger) -> None:
    """An urgent message waits for no other; within a priority, the order of sending holds."""
    for number, priority in enumerate([Priority.LOW, Priority.NORMAL, Priority.URGENT] * 2):
        send(ledger, TEAM, "Alice", ["Bob"], f"{priority} {number}", priority=priority)
    parcels = claim(ledger)
    assert [parcel.message.body for parcel in parcels] == [
        *("urgent 2", "urgent 5", "normal 1", "normal 4", "low 0", "low 3")
    ]
    assert [parcel.sequence for parcel in parcels] == [1, 2] * 3
    first, second = parcels[:2]
    far.inbox.store(TEAM, second)
    assert bodies(far) == []
    for parcel in reversed(parcels[2:]):
        far.inbox.store(TEAM, parcel)
    assert bodies(far) == ["normal 1", "normal 4", "low 0", "low 3"]
    far.inbox.store(TEAM, first)
    assert bodies(far)[:2] == ["urgent 2", "urgent 5"]


def test_an_undelivered_message_expires(ledger: Ledger, far: Ledger, clock: Clock) -> None:
    """The expiry is reported once, messages behind it no longer wait, and it can be sent again."""
    (first,) = send(ledger, TEAM, "Alice", ["Bob"], "soon", ttl=10)
    (second,) = send(ledger, TEAM, "Alice", ["Bob"], "later", ttl=100)
    claim(ledger)
    ledger.transit.sent([first.id, second.id])
    clock.now += 10
    assert ledger.outbox.expire() == 1
    assert [message.id for message in ledger.outbox.outcomes(TEAM, "Alice")] == [first.id]
    assert ledger.outbox.outcomes(TEAM, "Alice") == []
    assert ledger.outbox.expire() == 0
    (again,) = claim(ledger)
    assert (again.message.id, again.base) == (second.id, 2)
    far.inbox.store(TEAM, again)
    assert bodies(far) == ["later"]
    assert ledger.retry(first.id).state is State.QUEUED


def test_a_message_expires_by_its_receivers_clock(ledger: Ledger, tmp_path: Path) -> None:
    """The hosts' clocks may differ by years; the envelope carries the remaining time."""
    behind = Clock()
    with Ledger(tmp_path / "behind.db", clock=behind) as far:
        behind.now = 5.0
        (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "soon", ttl=10)
        far.inbox.store(TEAM, claim(ledger)[0])
        assert far.outbox.expire() == 0
        behind.now += 10
        assert far.outbox.expire() == 1
        assert bodies(far) == []
        with pytest.raises(MessageRefused, match="expired"):
            far.inbox.injecting(TEAM, "Bob", sent.id)
        (receipt,) = far.inbox.receipts(TEAM, "Bob", 10)
        ledger.transit.receipt(TEAM, receipt)
        assert state(ledger, sent.id) is State.EXPIRED


def test_a_message_that_waits_for_a_lost_one_expires(ledger: Ledger, far: Ledger, clock: Clock) -> None:
    """The sender's host is gone for good, along with the earlier messages."""
    for number in range(2):
        send(ledger, TEAM, "Alice", ["Bob"], str(number), ttl=10)
    far.inbox.store(TEAM, claim(ledger)[1])
    clock.now += 10
    assert far.outbox.expire() == 1
    assert [entry.message.state for entry in far.messages()] == [State.EXPIRED]


def test_an_expired_message_stays_expired(local: Ledger, clock: Clock) -> None:
    """The message expires before the receiver's session rejects it."""
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "soon", ttl=10)
    clock.now += 10
    local.outbox.expire()
    local.inbox.settle(TEAM, "Bob", sent.id, State.REJECTED, "it has expired")
    assert state(local, sent.id) is State.EXPIRED


def test_a_late_copy_of_a_dropped_message_is_not_typed(ledger: Ledger, far: Ledger) -> None:
    """A broker may deliver a message late, or twice."""
    sent = [send(ledger, TEAM, "Alice", ["Bob"], str(number))[0] for number in range(2)]
    late = claim(ledger)[0]
    ledger.drop(sent[0].id)
    ledger.transit.appeared(TEAM, "Bob")
    far.inbox.store(TEAM, claim(ledger)[0])
    assert bodies(far) == ["1"]
    far.inbox.store(TEAM, late)
    assert bodies(far) == ["1"]
    assert [entry.message.body for entry in far.messages()] == ["1"]
    assert state(ledger, sent[0].id) is State.EXPIRED


def query_costs(ledger: Ledger) -> dict[str, int]:
    """Return the cost of each of the sessions' frequent queries."""
    queries: dict[str, Callable[[], object]] = {
        "claim": lambda: claim(ledger),
        "park": lambda: ledger.transit.park(TEAM, "Alice", lambda *_: True),
        "ask": lambda: ledger.transit.ask(TEAM, "Alice", lambda _: None),
        "copies": lambda: ledger.transit.copies(TEAM, "Alice"),
        "left_receipts": lambda: ledger.inbox.left_receipts(TEAM),
        "next_due": lambda: ledger.transit.next_due(TEAM, "Alice"),
        "senders_with_mail": lambda: ledger.transit.senders_with_mail(TEAM),
        "outcomes": lambda: ledger.outbox.outcomes(TEAM, "Alice"),
        "untold": lambda: ledger.outbox.untold(TEAM),
        "expire": ledger.outbox.expire,
        "receipts": lambda: ledger.inbox.receipts(TEAM, "Bob", 10),
        "waiting": lambda: ledger.inbox.waiting(TEAM, "Bob"),
        "arrived": lambda: ledger.inbox.arrived(TEAM, "Dan", 10_000),
        "begun": lambda: ledger.inbox.begun(TEAM),
        "the latest": lambda: ledger.messages(limit=2),
        "the latest to": lambda: ledger.messages(to="Bob", limit=2),
        "those with ids": lambda: ledger.messages(ids=["none", "either"]),
        "stored": lambda: ledger.inbox.stored(TEAM, "Bob"),
    }
    return {name: cost(ledger, query)[0] for name, query in queries.items()}


def test_frequent_queries_do_not_slow_down_with_a_long_history(local: Ledger, far: Ledger) -> None:
    """History grows for a month; mail for an absent agent does not slow them down either."""
    ledger = local
    at_first = query_costs(ledger)
    with ledger.transaction(), far.transaction():
        for number in range(250):
            (sent,) = send(ledger, TEAM, "Alice", ["Bob"], str(number))
            ledger.inbox.injecting(TEAM, "Bob", sent.id)
            ledger.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
            send(ledger, TEAM, "Alice", ["Eve"], str(number))
            (envelope,) = claim(ledger)
            ledger.transit.receipt(TEAM, Receipt(envelope.message.id, "Eve", "Alice", State.INJECTED))
            (came,) = send(far, TEAM, "Alice", ["Bob"], str(number))
            (envelope,) = claim(far)
            ledger.inbox.store(TEAM, envelope)
            ledger.inbox.settle(TEAM, "Bob", came.id, State.INJECTED)
            far.transit.receipt(TEAM, Receipt(came.id, "Bob", "Alice", State.INJECTED))
            ledger.inbox.receipted(TEAM, ledger.inbox.receipts(TEAM, "Bob", 10))
        ledger.outbox.outcomes(TEAM, "Alice")
        ledger.transit.copies(TEAM, "Alice")
    settled = query_costs(ledger)
    assert all(settled[name] <= at_first[name] + 100 for name in at_first), (at_first, settled)
    ledger.registry.register(TEAM, "Dan", here=True)
    with ledger.transaction():
        for _ in range(500):
            send(ledger, TEAM, "Alice", ["Carol", "Dan"], "waits")
        ledger.transit.park(TEAM, "Alice", lambda *_: False)
        ledger.transit.copies(TEAM, "Alice")
    waiting = query_costs(ledger)
    often = waiting.keys() - {"senders_with_mail"}  # run only every few seconds
    assert all(waiting[name] <= at_first[name] + 100 for name in often), (at_first, waiting)


def test_no_step_of_a_message_slows_down_with_a_long_history(local: Ledger, far: Ledger) -> None:
    """Neither within a home nor between two."""
    limits = Limits(rate=0)
    costs: dict[str, list[int]] = {}

    def step(name: str, ledger: Ledger, job: Callable[[], T]) -> T:
        steps, result = cost(ledger, job)
        costs.setdefault(name, []).append(steps)
        return result

    with local.transaction(), far.transaction():
        for _ in range(200):
            (sent,) = step("send", local, lambda: send(local, TEAM, "Alice", ["Bob"], "x", limits=limits))
            step("copies", local, lambda: local.transit.copies(TEAM, "Alice"))
            step("typing", local, partial(local.inbox.injecting, TEAM, "Bob", sent.id))
            step("settle", local, partial(local.inbox.settle, TEAM, "Bob", sent.id, State.INJECTED))
            step("outcomes", local, lambda: local.outbox.outcomes(TEAM, "Alice"))
            (sent,) = step("send far", far, lambda: send(far, TEAM, "Alice", ["Bob"], "x", limits=limits))
            (parcel,) = step("claim", far, lambda: claim(far))
            step("sent", far, partial(far.transit.sent, [sent.id]))
            for each in ("store", "store again"):
                step(each, local, partial(local.inbox.store, TEAM, parcel, 100))
            for state in (State.STORED, State.INJECTED):
                if state.final:
                    local.inbox.settle(TEAM, "Bob", sent.id, state)
                (receipt,) = step("receipts", local, lambda: local.inbox.receipts(TEAM, "Bob", 10))
                local.inbox.receipted(TEAM, [receipt])
                step(f"receipt {state}", far, partial(far.transit.receipt, TEAM, receipt))
            far.outbox.outcomes(TEAM, "Alice")
    slower = {name: found for name, found in costs.items() if found[-1] > found[2] + 100}
    assert slower == {}


def test_sending_does_not_slow_down_with_what_waits(local: Ledger) -> None:
    """Neither with held messages nor with those in this home and in transit."""
    limits = Limits(rate=2)
    local.registry.register(TEAM, "Eve", here=False)
    with local.transaction():
        for to in ("Bob", "Eve"):
            send_one = partial(post, local, TEAM, "Alice", to, "x", limits=limits)
            costs = [cost(local, send_one)[0] for _ in range(300)]
            assert costs[-1] <= costs[2] + 100


def test_a_message_being_typed_does_not_expire(local: Ledger, clock: Clock) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "soon", ttl=10)
    local.inbox.injecting(TEAM, "Bob", sent.id)
    clock.now += 100
    assert local.outbox.expire() == 0
    local.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    assert state(local, sent.id) is State.INJECTED


def test_a_message_that_may_have_arrived_on_another_host_is_uncertain(ledger: Ledger, far: Ledger) -> None:
    """The receiver was online, confirmed nothing, and appears elsewhere: a resend might be a duplicate."""
    (maybe,) = send(ledger, TEAM, "Alice", ["Bob"], "maybe")
    claim(ledger, home="first host")
    ledger.transit.sent([maybe.id])
    (after,) = send(ledger, TEAM, "Alice", ["Bob"], "after")
    ledger.transit.appeared(TEAM, "Bob", "first host")
    assert state(ledger, maybe.id) is State.SENT
    ledger.transit.appeared(TEAM, "Bob", far.origin)
    (reported,) = ledger.outbox.outcomes(TEAM, "Alice")
    assert (reported.id, reported.state) == (maybe.id, State.UNCERTAIN)
    (parcel,) = claim(ledger, home=far.origin)
    far.inbox.store(TEAM, parcel)
    assert bodies(far) == ["after"]
    assert parcel.message.id == after.id


def test_a_message_for_another_home_of_the_name_is_ignored(ledger: Ledger, far: Ledger) -> None:
    """A broker may deliver it there after the first home has already typed it."""
    send(ledger, TEAM, "Alice", ["Bob"], "hello")
    (parcel,) = claim(ledger, home="first host")
    assert decode(encode(parcel), InboxTopic(TEAM, "bob", "alice")) == replace(
        parcel, message=replace(parcel.message, state=State.STORED, expires=None)
    )
    far.inbox.store(TEAM, parcel)
    assert far.messages() == []
    assert far.inbox.receipts(TEAM, "Bob", 10) == []


def test_a_late_receipt_from_the_first_host_corrects_the_state(ledger: Ledger, far: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "maybe")
    far.inbox.store(TEAM, claim(ledger, home=far.origin)[0])
    ledger.transit.appeared(TEAM, "Bob", "second host")
    assert state(ledger, sent.id) is State.UNCERTAIN
    far.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    for receipt in far.inbox.receipts(TEAM, "Bob", 10):
        ledger.transit.receipt(TEAM, receipt)
    assert state(ledger, sent.id) is State.INJECTED


def stored_elsewhere(ledger: Ledger, far: Ledger, **more: float) -> Message:
    """Return a message from Alice that is stored in Bob's home, as confirmed to her."""
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "hello", **more)
    (envelope,) = claim(ledger, home=far.origin)
    ledger.transit.sent([sent.id])
    far.inbox.store(TEAM, envelope)
    confirm(ledger, far)
    assert state(ledger, sent.id) is State.STORED
    return sent


def confirm(ledger: Ledger, far: Ledger) -> None:
    """Deliver Bob's receipts."""
    receipts = far.inbox.receipts(TEAM, "Bob", 100)
    far.inbox.receipted(TEAM, receipts)
    for each in receipts:
        ledger.transit.receipt(TEAM, each)


def test_a_lost_receipt_is_requested_at_growing_intervals(ledger: Ledger, far: Ledger, clock: Clock) -> None:
    """It used to stay *stored* forever if its sender had no session or the broker lost the receipt."""
    sent = stored_elsewhere(ledger, far)
    far.inbox.injecting(TEAM, "Bob", sent.id)
    far.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    far.inbox.receipted(TEAM, far.inbox.receipts(TEAM, "Bob", 100))
    asked, envelopes = [], []
    for _ in range(4 * 60):
        clock.now += 60
        found = ledger.transit.ask(TEAM, "Alice", lambda _: far.origin)
        asked += [clock.now for _ in found]
        envelopes += found
    steps = [round(later - one) for one, later in itertools.pairwise(asked)]
    assert steps[:3] == [120, 240, 480] and max(steps) == 3600, "ever more rarely"
    assert {each.message.id for each in envelopes} == {sent.id}
    far.inbox.store(TEAM, envelopes[-1])
    assert bodies(far) == [] and len(far.messages()) == 1
    confirm(ledger, far)
    assert state(ledger, sent.id) is State.INJECTED
    clock.now += 7200
    assert ledger.transit.ask(TEAM, "Alice", lambda _: far.origin) == []
    assert ledger.transit.senders_with_mail(TEAM) == []


def test_an_absent_or_moved_receiver_is_not_asked_for_receipts(
    ledger: Ledger, far: Ledger, clock: Clock
) -> None:
    """Another home of the receiver does not know the message and would accept it as new."""
    stored_elsewhere(ledger, far)
    for home in (None, "another"):
        clock.now += 3600
        assert ledger.transit.ask(TEAM, "Alice", lambda _, home=home: home) == []


def test_no_receipts_are_requested_or_sent_within_a_home(local: Ledger, clock: Clock) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "hello")
    local.transit.copies(TEAM, "Alice")
    assert local.inbox.receipts(TEAM, "Bob", 10) == []
    clock.now += 7200
    assert state(local, sent.id) is State.STORED
    assert local.transit.ask(TEAM, "Alice", lambda _: local.origin) == []
    assert local.transit.senders_with_mail(TEAM) == []
    local.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    assert local.inbox.receipts(TEAM, "Bob", 10) == []


def test_a_message_on_a_host_that_stays_silent_becomes_uncertain(
    ledger: Ledger, far: Ledger, clock: Clock
) -> None:
    sent = stored_elsewhere(ledger, far, ttl=1000)
    clock.now += 1000 + 3600
    ledger.outbox.expire()
    assert state(ledger, sent.id) is State.STORED, "that host may still report its outcome"
    clock.now += 3600
    ledger.outbox.expire()
    assert state(ledger, sent.id) is State.UNCERTAIN


def test_a_redelivered_old_receipt_changes_nothing(ledger: Ledger, far: Ledger) -> None:
    """A broker redelivers what was not acknowledged, even after newer payloads."""
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "half typed")
    far.inbox.store(TEAM, claim(ledger)[0])
    old = far.inbox.receipts(TEAM, "Bob", 10)
    far.inbox.injecting(TEAM, "Bob", sent.id)
    far.inbox.recover(TEAM, "Bob")
    for receipt in (*far.inbox.receipts(TEAM, "Bob", 10), *old):
        ledger.transit.receipt(TEAM, receipt)
    assert state(ledger, sent.id) is State.UNCERTAIN


def test_a_message_behind_an_expired_one_is_released_immediately(
    ledger: Ledger, far: Ledger, clock: Clock
) -> None:
    """Bob has the third, the second expired, then the first arrives: nothing waits for a retry."""
    (first,) = send(ledger, TEAM, "Alice", ["Bob"], "first")
    send(ledger, TEAM, "Alice", ["Bob"], "second", ttl=1)
    (third,) = send(ledger, TEAM, "Alice", ["Bob"], "third")
    for _ in range(2):
        ledger.transit.sent([parcel.message.id for parcel in claim(ledger)])
        clock.now += 5
        ledger.outbox.expire()
    parcels = {parcel.message.id: parcel for parcel in claim(ledger)}
    far.inbox.store(TEAM, parcels[third.id])
    assert bodies(far) == []
    far.inbox.store(TEAM, parcels[first.id])
    (receipt,) = far.inbox.receipts(TEAM, "Bob", 10)
    ledger.transit.receipt(TEAM, receipt)
    (again,) = claim(ledger)
    far.inbox.store(TEAM, again)
    assert bodies(far) == ["first", "third"]


def test_a_full_queue_refuses_more_messages(ledger: Ledger) -> None:
    limits = Limits(queue=30, rate=0)
    for number in range(30):
        post(ledger, TEAM, "Alice", "Bob", str(number), limits=limits)
    with pytest.raises(MessageRefused, match="30 messages from this sender are already waiting"):
        post(ledger, TEAM, "Alice", "Bob", "one too many", limits=limits)
    assert len(ledger.messages(limit=100)) == 30
    post(ledger, TEAM, "Bob", "Alice", "another sender", limits=limits)


def test_a_full_inbox_accepts_no_more_until_there_is_room(ledger: Ledger, far: Ledger) -> None:
    """The rest stays with its sender, in order; a duplicate is still confirmed."""
    for number in range(3):
        send(ledger, TEAM, "Alice", ["Bob"], str(number))
    parcels = claim(ledger)
    for parcel in parcels[:2]:
        far.inbox.store(TEAM, parcel, 2)
    with pytest.raises(InboxFull, match="2 messages are waiting for Bob"):
        far.inbox.store(TEAM, parcels[2], 2)
    far.inbox.receipted(TEAM, far.inbox.receipts(TEAM, "Bob", 10))
    far.inbox.store(TEAM, parcels[0], 2)
    assert [each.id for each in far.inbox.receipts(TEAM, "Bob", 10)] == [parcels[0].message.id]
    far.inbox.settle(TEAM, "Bob", parcels[0].message.id, State.INJECTED)
    far.inbox.store(TEAM, parcels[2], 2)
    assert bodies(far) == ["1", "2"]


def test_no_more_is_in_flight_than_a_broker_keeps(ledger: Ledger, far: Ledger, clock: Clock) -> None:
    """The rest follows as earlier ones are confirmed; dropping one also makes room."""
    sent = [send(ledger, TEAM, "Alice", ["Bob"], str(n))[0] for n in range(2 * WINDOW)]
    parcels: list[Envelope] = []
    while batch := claim(ledger):
        parcels += batch
    assert len(parcels) == WINDOW
    assert claim(ledger) == []
    for parcel in parcels[:10]:
        far.inbox.store(TEAM, parcel)
    for receipt in far.inbox.receipts(TEAM, "Bob", 10):
        ledger.transit.receipt(TEAM, receipt)
    assert [parcel.sequence for parcel in claim(ledger)] == list(range(WINDOW + 1, WINDOW + 11))
    ledger.drop(sent[10].id)
    assert WINDOW + 11 in [parcel.sequence for parcel in claim(ledger)]
    clock.now += 1000
    ledger.transit.appeared(TEAM, "Bob")
    assert len(claim(ledger)) == 100
    assert send(ledger, TEAM, "Alice", ["Carol"], "another stream")
    while batch := claim(ledger):
        parcels += batch
    assert parcels[-1].message.to == "Carol"


def test_a_parked_message_is_due_once_its_receiver_appears(ledger: Ledger) -> None:
    send(ledger, TEAM, "Alice", ["Bob"], "hello")
    ledger.transit.park(TEAM, "Alice", lambda *_: False)
    assert claim(ledger) == []
    ledger.transit.appeared(TEAM, "Bob")
    assert len(claim(ledger)) == 1


def test_a_late_receipt_does_not_republish_later_messages(ledger: Ledger, far: Ledger) -> None:
    """Only the first message of a stream gets a new base, and once: no storm of publishes."""
    for number in range(5):
        send(ledger, TEAM, "Alice", ["Bob"], str(number))
    parcels = claim(ledger)
    ledger.transit.sent([parcel.message.id for parcel in parcels])
    for parcel in reversed(parcels[1:]):
        far.inbox.store(TEAM, parcel)
    assert far.inbox.receipts(TEAM, "Bob", 10) == []
    far.inbox.store(TEAM, parcels[0])
    for receipt in reversed(far.inbox.receipts(TEAM, "Bob", 10)):
        ledger.transit.receipt(TEAM, receipt)
        assert claim(ledger) == []


def test_a_message_can_be_redirected_to_another_receiver(ledger: Ledger, far: Ledger) -> None:
    """The receiver has another name now. The original expires; nothing reaches the old name."""
    ledger.registry.register(TEAM, "Robert")
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "hello", "a thread", priority=Priority.URGENT)
    again = ledger.retry(sent.id, to="Robert")
    assert (again.to, again.body, again.thread, again.priority) == (
        *("Robert", "hello", "a thread"),
        Priority.URGENT,
    )
    old = ledger.find(sent.id).message
    assert (old.state, old.detail) == (State.EXPIRED, f"sent again as {again.id} to Robert")
    assert [parcel.message.to for parcel in claim(ledger)] == ["Robert"]
