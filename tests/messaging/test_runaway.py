"""The runaway guard: suspected runaways are held, in order, until the user releases or drops them."""

from __future__ import annotations

import pytest
from clocks import Clock

from ledgers import post
from relay import names
from relay.errors import LedgerError
from relay.message import Message, State
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits

TEAM = "default"


@pytest.fixture(autouse=True)
def team(ledger: Ledger) -> None:
    for name in ("Alice", "Bob", "Carol"):
        ledger.registry.register(TEAM, name)


def send(ledger: Ledger, body: str, limits: Limits, *, to: str = "Bob", depth: int = 0) -> list[Message]:
    return post(ledger, TEAM, "Alice", to, body, depth=depth, limits=limits)


def sent_now(ledger: Ledger) -> list[str]:
    return [parcel.message.body for parcel in ledger.transit.claim(TEAM, "Alice", lambda *_: None, 100)]


def test_a_pair_that_sends_too_fast_is_held(ledger: Ledger, clock: Clock) -> None:
    limits = Limits(rate=3)
    states = [send(ledger, str(number), limits)[0].state for number in range(5)]
    assert states == [State.QUEUED] * 3 + [State.HELD] * 2
    assert send(ledger, "to another", limits, to="Carol")[0].state is State.QUEUED
    assert sent_now(ledger) == ["0", "1", "2", "to another"]
    held = ledger.messages(to="Bob")[-2:]
    assert [entry.message.detail for entry in held] == [
        "3 messages of this pair within 60 s",
        "earlier messages of this pair are held",
    ]


def test_messages_behind_a_held_one_are_held_however_much_time_passes(ledger: Ledger, clock: Clock) -> None:
    """Otherwise the order would be lost."""
    limits = Limits(rate=1)
    for body in ("goes", "held"):
        send(ledger, body, limits)
    clock.now += 3600
    assert send(ledger, "held too", limits)[0].state is State.HELD
    assert ledger.outbox.expire() == 0
    clock.now += 365 * 86400
    ledger.outbox.expire()
    assert [entry.message.state for entry in ledger.messages()][1:] == [State.HELD, State.HELD]


def test_released_messages_are_sent_in_order_and_reset_the_rate(ledger: Ledger) -> None:
    limits = Limits(rate=2)
    for number in range(5):
        send(ledger, str(number), limits, depth=7)
    assert sent_now(ledger) == ["0", "1"]
    released = ledger.outbox.release(reversed(ledger.held(team=TEAM)))
    assert [message.body for message in released] == ["2", "3", "4"]
    parcels = ledger.transit.claim(TEAM, "Alice", lambda *_: None, 100)
    assert [(parcel.message.body, parcel.sequence) for parcel in parcels] == [("2", 3), ("3", 4), ("4", 5)]
    assert {parcel.message.depth for parcel in parcels} == {0}
    assert ledger.held() == []
    assert [send(ledger, "more", limits)[0].state for _ in range(3)] == [State.QUEUED] * 2 + [State.HELD]
    assert ledger.outbox.release(["nothing"]) == []


def test_a_long_chain_of_replies_is_held(ledger: Ledger) -> None:
    limits = Limits(depth=3)
    states = [send(ledger, "reply", limits, depth=depth)[0] for depth in (0, 3, 4)]
    assert [message.state for message in states] == [State.QUEUED, State.QUEUED, State.HELD]
    assert states[-1].detail == "4 messages led to it since the user's last input"


def test_a_storm_of_broadcasts_is_held(ledger: Ledger, clock: Clock) -> None:
    """Each broadcast counts once, however many receivers it has."""
    limits = Limits(broadcasts=2)
    for number in range(2):
        assert {message.state for message in send(ledger, str(number), limits, to="*")} == {State.QUEUED}
    assert {message.state for message in send(ledger, "storm", limits, to="*")} == {State.HELD}
    clock.now += 61
    ledger.outbox.release(ledger.held())
    assert {message.state for message in send(ledger, "later", limits, to="*")} == {State.QUEUED}


def test_a_users_messages_are_never_held(ledger: Ledger) -> None:
    limits = Limits(rate=1, depth=1, broadcasts=1)
    for _ in range(5):
        for to in ("Bob", "*"):
            sent = post(ledger, TEAM, names.PERSON, to, "hello", limits=limits)
            assert {message.state for message in sent} == {State.QUEUED}


def test_zero_means_unlimited(ledger: Ledger) -> None:
    limits = Limits(rate=0, depth=0, broadcasts=0, queue=0)
    for _ in range(300):
        assert send(ledger, "burst", limits, depth=1000)[0].state is State.QUEUED


def test_a_held_message_can_be_dropped_but_not_retried(ledger: Ledger) -> None:
    """The messages behind it stay held, too, until they are released."""
    limits = Limits(rate=1)
    send(ledger, "goes", limits)
    ((held,), (behind,)) = (send(ledger, body, limits) for body in ("held", "behind"))
    with pytest.raises(LedgerError, match="`relay release`"):
        ledger.retry(held.id)
    assert ledger.drop(held.id).state is State.HELD
    assert ledger.find(held.id).message.state is State.EXPIRED
    assert ledger.held() == [behind.id]
    ledger.outbox.release([behind.id])
    assert sent_now(ledger) == ["goes", "behind"]


def test_a_held_message_to_the_user_is_stored_on_release(ledger: Ledger) -> None:
    limits = Limits(rate=1)
    states = [send(ledger, "hello", limits, to=names.PERSON)[0].state for _ in range(2)]
    assert states == [State.STORED, State.HELD]
    ledger.outbox.release(ledger.held())
    assert [entry.message.state for entry in ledger.messages()] == [State.STORED] * 2
    assert sent_now(ledger) == []


def test_a_released_message_gets_its_full_time_to_live(ledger: Ledger, clock: Clock) -> None:
    post(ledger, TEAM, "Alice", "Bob", "held", ttl=60, depth=2, limits=Limits(depth=1))
    clock.now += 300
    ledger.outbox.release(ledger.held())
    assert ledger.outbox.expire() == 0
    clock.now += 60
    assert ledger.outbox.expire() == 1
