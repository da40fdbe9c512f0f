"""Messages within one home: one row, stored at once, unless the receiver is, or may be, elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clocks import Clock

from ledgers import post, send
from relay import names
from relay.errors import LedgerError, MessageRefused
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging.channels import CATCH_UP
from relay.messaging.envelope import Envelope, Receipt, decode, encode
from relay.messaging.inbox import NEWS
from relay.messaging.ledger import KEEP_DAYS, Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.runaway import Limits
from relay.messaging.transit import WINDOW
from relay.transport.topics import InboxTopic

TEAM = "default"


@pytest.fixture(autouse=True)
def team(ledger: Ledger) -> None:
    for name in ("Alice", "Bob", "Dan"):
        ledger.registry.register(TEAM, name, here=True)


def say(ledger: Ledger, *bodies: str, sender: str = "Alice", to: str = "Bob", **more: Any) -> list[Message]:
    """Send `bodies`; return the messages."""
    return [send(ledger, TEAM, sender, [to], body, **more)[0] for body in bodies]


def claim(ledger: Ledger, home: str | None = None, sender: str = "Alice") -> list[Envelope]:
    return ledger.transit.claim(TEAM, sender, lambda *_: 5.0, 100, lambda _: home)


def waiting(ledger: Ledger, name: str = "Bob") -> list[str]:
    return [message.body for message in ledger.inbox.waiting(TEAM, name)]


def arrived(ledger: Ledger, name: str = "Bob", since: int = 0) -> list[str]:
    return [message.body for _, message in ledger.inbox.arrived(TEAM, name, since)]


def states(ledger: Ledger) -> dict[str, State]:
    return {entry.message.body: entry.message.state for entry in ledger.messages()}


def move(ledger: Ledger, far: Ledger, name: str = "Bob") -> None:
    """Let `name` appear in the home of `far`, as the home of `ledger` notices."""
    far.arrive(TEAM, name)
    ledger.move_away(TEAM, name, far.origin)


def move_back(ledger: Ledger, name: str = "Bob") -> None:
    """Let `name` appear in the home of `ledger` again."""
    ledger.arrive(TEAM, name)


def deliver(envelopes: list[Envelope], to: Ledger, **more: Any) -> None:
    """Let the broker deliver `envelopes`."""
    for each in envelopes:
        read = decode(encode(each), InboxTopic(TEAM, each.message.to.lower(), each.message.sender.lower()))
        assert isinstance(read, Envelope)
        to.inbox.store(TEAM, read, **more)


def confirm(ledger: Ledger, far: Ledger, name: str = "Bob") -> None:
    """Deliver the receipts of `name`, whose home is `far`."""
    receipts = far.inbox.receipts(TEAM, name, 100)
    far.inbox.receipted(TEAM, receipts)
    for each in receipts:
        ledger.transit.receipt(TEAM, each)


# A message is stored at once.


def test_a_message_to_an_agent_of_this_home_is_stored_at_once(ledger: Ledger) -> None:
    (sent,) = say(ledger, "hello")
    assert sent.state is State.STORED
    assert [entry.message for entry in ledger.messages()] == ledger.inbox.waiting(TEAM, "Bob") == [sent]
    assert ledger.inbox.arrived(TEAM, "bob", 0) == [(1, sent)]
    assert claim(ledger) == [] and ledger.outbox.outcomes(TEAM, "Alice") == []


def test_messages_of_all_senders_arrive_in_the_order_of_sending(ledger: Ledger, far: Ledger) -> None:
    """Those from another home among them; each message is news once."""
    say(ledger, "1")
    say(ledger, "2", sender="Dan")
    say(far, "3", sender="Eve")
    deliver(claim(far, sender="Eve"), ledger)
    say(ledger, "4", priority=Priority.URGENT)
    say(ledger, "for another", to="Dan")
    say(ledger, "5")
    assert arrived(ledger) == ["1", "2", "3", "4", "5"]
    latest = ledger.inbox.arrived(TEAM, "Bob", 0)[-2][0]
    assert arrived(ledger, since=latest) == ["5"]
    assert waiting(ledger)[0] == "4" and sorted(waiting(ledger)) == ["1", "2", "3", "4", "5"]


def test_news_come_in_portions(ledger: Ledger) -> None:
    with ledger.transaction():
        say(ledger, *map(str, range(NEWS + 1)))
    first = ledger.inbox.arrived(TEAM, "Bob", 0)
    assert len(first) == NEWS
    assert arrived(ledger, since=first[-1][0]) == [str(NEWS)]


def test_a_message_is_news_even_if_all_earlier_ones_are_forgotten(ledger: Ledger, clock: Clock) -> None:
    """A session may run for months, and remembers the turn of the last message that it got."""
    (old,) = say(ledger, "old")
    ((latest, _),) = ledger.inbox.arrived(TEAM, "Bob", 0)
    ledger.inbox.settle(TEAM, "Bob", old.id, State.INJECTED)
    for _ in range(2):
        ledger.prune()
        clock.now += (KEEP_DAYS + 1) * 86400
    assert ledger.messages() == []
    say(ledger, "new")
    assert arrived(ledger, since=latest) == ["new"]


def test_the_sender_learns_the_outcome_from_the_same_row(ledger: Ledger) -> None:
    first, second = say(ledger, "first", "second")
    ledger.inbox.injecting(TEAM, "Bob", first.id)
    how: dict[str, Any] = {"route": "native", "role": "system"}
    assert ledger.inbox.settle(TEAM, "Bob", first.id, State.INJECTED, **how) == "Alice"
    assert ledger.inbox.settle(TEAM, "Bob", second.id, State.STORED) is None
    assert ledger.outbox.untold(TEAM) == ["Alice"]
    (outcome,) = ledger.outbox.outcomes(TEAM, "Alice")
    assert outcome == replace(first, state=State.INJECTED, **how)
    assert ledger.outbox.outcomes(TEAM, "Alice") == [] == ledger.outbox.untold(TEAM)
    assert ledger.inbox.receipts(TEAM, "Bob", 10) == []


def test_a_release_is_news_to_the_sender(ledger: Ledger) -> None:
    (held,) = say(ledger, "hello", limits=Limits(depth=1), depth=2)
    assert held.state is State.HELD and ledger.outbox.outcomes(TEAM, "Alice") == []
    ledger.outbox.release([held.id])
    (news,) = ledger.outbox.outcomes(TEAM, "Alice")
    assert (news.id, news.state, news.detail) == (held.id, State.STORED, None)
    assert ledger.outbox.outcomes(TEAM, "Alice") == []


def test_a_sender_that_has_heard_an_outcome_is_not_told_again(ledger: Ledger) -> None:
    first, second = say(ledger, "first", "second")
    for each in (first, second):
        ledger.inbox.settle(TEAM, "Bob", each.id, State.INJECTED)
    ledger.outbox.heard([first.id])
    assert [each.id for each in ledger.outbox.outcomes(TEAM, "Alice")] == [second.id]


def test_a_message_from_another_home_has_no_sender_to_tell_here(ledger: Ledger, far: Ledger) -> None:
    (sent,) = say(far, "hello")
    deliver(claim(far), ledger)
    assert ledger.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED) is None
    assert ledger.outbox.untold(TEAM) == [] and ledger.lookup([sent.id]) == []


def test_copies_of_messages_within_a_home_are_claimed_once(ledger: Ledger) -> None:
    """The broker gets them for whoever listens; they are not numbered, and nobody stores them."""
    sent = say(ledger, "1", "2", ttl=10)
    assert ledger.transit.next_due(TEAM, "Alice") == 0
    assert ledger.transit.senders_with_mail(TEAM) == ["Alice"]
    copies = ledger.transit.copies(TEAM, "Alice")
    assert [each.message.id for each in copies] == [each.id for each in sent]
    assert {(each.sequence, each.base, each.home) for each in copies} == {(0, 0, ledger.origin)}
    assert ledger.transit.copies(TEAM, "Alice") == []
    assert ledger.transit.next_due(TEAM, "Alice") is None
    assert ledger.transit.senders_with_mail(TEAM) == []
    for each in copies:
        assert decode(encode(each), InboxTopic(TEAM, "bob", "alice"))


def test_a_sender_that_publishes_its_copies_itself_leaves_none(ledger: Ledger, far: Ledger) -> None:
    outgoing = {"team": TEAM, "sender": "Alice", "recipients": ["Bob", "Eve"]}
    ledger.outbox.send(**outgoing, outgoing=OutgoingMessage("", "hello"), copied=True)  # type: ignore[arg-type]
    assert ledger.transit.copies(TEAM, "Alice") == []
    assert [each.message.to for each in claim(ledger)] == ["Eve"]


def test_a_message_to_an_agent_of_another_home_is_queued(ledger: Ledger) -> None:
    """Also if nobody knows where the agent is, or an agent of this home has never had the name."""
    ledger.registry.register(TEAM, "Eve", here=False)
    ledger.registry.register(TEAM, "Frank")
    sent = [*say(ledger, "x", to="Eve"), *say(ledger, "x", to="Frank"), *say(ledger, "x", to="Grace")]
    assert {each.state for each in sent} == {State.QUEUED}
    assert ledger.transit.copies(TEAM, "Alice") == []
    assert len(claim(ledger)) == 3


def test_where_an_agent_is_stays_known_when_it_is_seen_again(ledger: Ledger, clock: Clock) -> None:
    clock.now += 3600
    ledger.registry.register(TEAM, "BOB")
    assert say(ledger, "x")[0].state is State.STORED
    ledger.registry.register(TEAM, "Bob", here=False)
    clock.now += 3600
    ledger.registry.register(TEAM, "Bob")
    assert say(ledger, "x")[0].state is State.QUEUED


def test_a_message_of_an_agent_to_the_user_needs_no_turn(ledger: Ledger) -> None:
    (sent,) = say(ledger, "done", to=names.PERSON, ttl=5)
    assert (sent.state, sent.expires) == (State.STORED, None)
    assert ledger.transit.copies(TEAM, "Alice") == [] == claim(ledger)
    assert [item.id for item in ledger.user_inbox.items()] == [sent.id]


# Order, and room.


def test_a_sender_may_have_only_so_many_messages_waiting(ledger: Ledger) -> None:
    """Here, in transit or held; what its receiver has got makes room."""
    limits = Limits(queue=3, rate=0, depth=8)

    def full() -> bool:
        try:
            post(ledger, TEAM, "Alice", "Bob", "x", limits=limits)
        except MessageRefused as error:
            assert "3 messages from this sender are already waiting" in str(error)
            return True
        return False

    ledger.registry.register(TEAM, "Eve", here=False)
    (stored,) = post(ledger, TEAM, "Alice", "Dan", "stored", limits=limits)
    (queued,) = post(ledger, TEAM, "Alice", "Eve", "queued", limits=limits)
    (held,) = post(ledger, TEAM, "Alice", "Dan", "held", limits=limits, depth=9)
    assert [each.state for each in (stored, queued, held)] == [State.STORED, State.QUEUED, State.HELD]
    assert full()
    assert post(ledger, TEAM, "Dan", "Alice", "another sender", limits=limits)[0].state is State.STORED
    ledger.inbox.settle(TEAM, "Dan", stored.id, State.INJECTED)
    assert not full() and full()
    ledger.drop(queued.id)
    assert not full() and full()
    ledger.outbox.release([held.id])
    assert full()


def test_messages_in_transit_are_stored_here_once_their_receiver_is_here(ledger: Ledger) -> None:
    """In the order of their sending, before later ones; what the broker still delivers changes nothing."""
    ledger.registry.register(TEAM, "Bob", here=False)
    sent = say(ledger, *map(str, range(WINDOW + 10)))
    parcels = claim(ledger)
    ledger.transit.sent([each.message.id for each in parcels])
    move_back(ledger)
    (later,) = say(ledger, "later")
    assert later.state is State.STORED
    deliver(parcels, ledger)
    expected = [*(each.body for each in sent), "later"]
    assert waiting(ledger) == expected
    assert [entry.message.body for entry in ledger.messages()] == expected
    assert ledger.outbox.outcomes(TEAM, "Alice") == [] == ledger.inbox.receipts(TEAM, "Bob", 10)
    assert claim(ledger) == []
    copied = [each.message.body for each in ledger.transit.copies(TEAM, "Alice")]
    assert copied == expected[len(parcels) :], "whoever listens has seen the others"


def test_a_message_that_another_home_may_have_is_uncertain_once_its_receiver_is_here(
    ledger: Ledger, far: Ledger
) -> None:
    ledger.registry.register(TEAM, "Bob", here=False)
    say(ledger, "published")
    claim(ledger, far.origin)
    say(ledger, "not yet")
    move_back(ledger)
    assert states(ledger) == {"published": State.UNCERTAIN, "not yet": State.STORED}


def test_a_message_that_comes_back_after_its_outcome_changes_nothing(
    ledger: Ledger, far: Ledger, clock: Clock
) -> None:
    ledger.registry.register(TEAM, "Bob", here=False)
    dropped, _, _ = say(ledger, "dropped", "confirmed", "expired", ttl=10)
    parcels = claim(ledger, far.origin)
    ledger.drop(dropped.id)
    deliver([replace(parcels[1], base=2)], far)
    confirm(ledger, far)
    clock.now += 10
    ledger.outbox.expire()
    before = states(ledger)
    assert before == {"dropped": State.EXPIRED, "confirmed": State.STORED, "expired": State.EXPIRED}
    move_back(ledger)
    deliver([replace(each, home=None) for each in parcels], ledger)
    assert states(ledger) == before and waiting(ledger) == []


# The receiver moves to another home.


def test_waiting_messages_follow_their_receiver_to_another_home(ledger: Ledger, far: Ledger) -> None:
    """In order, and once; nothing is left here."""
    say(ledger, "1", "2")
    say(ledger, "urgent", priority=Priority.URGENT)
    say(ledger, "other", sender="Dan")
    say(ledger, "not for Bob", to="Dan")
    move(ledger, far)
    assert waiting(ledger) == arrived(ledger) == []
    assert set(states(ledger).values()) == {State.QUEUED, State.STORED}
    assert say(ledger, "3")[0].state is State.QUEUED
    parcels = claim(ledger, far.origin) + claim(ledger, far.origin, "Dan")
    deliver([*reversed(parcels), *parcels], far)
    confirm(ledger, far)
    assert waiting(far) == ["urgent", "other", "1", "2", "3"]
    assert set(states(ledger).values()) == {State.STORED}
    assert waiting(ledger) == [] and waiting(ledger, "Dan") == ["not for Bob"]
    assert len(far.messages()) == 5


def test_a_message_being_typed_stays_when_its_receiver_appears_elsewhere(ledger: Ledger, far: Ledger) -> None:
    first, _ = say(ledger, "typing", "waits")
    ledger.inbox.injecting(TEAM, "Bob", first.id)
    move(ledger, far)
    assert states(ledger) == {"typing": State.STORED, "waits": State.QUEUED}
    assert [each.message.body for each in claim(ledger)] == ["waits"]
    assert ledger.inbox.recover(TEAM, "Bob") == [first.id]
    assert states(ledger)["typing"] is State.UNCERTAIN


def test_released_messages_follow_their_receiver_in_the_order_of_release(ledger: Ledger, far: Ledger) -> None:
    held = say(ledger, "1", "2", "3", depth=9, limits=Limits(depth=8))
    for each in (held[1], held[0], held[2]):
        ledger.outbox.release([each.id])
    assert waiting(ledger) == ["2", "1", "3"]
    move(ledger, far)
    deliver(claim(ledger, far.origin), far)
    assert waiting(far) == ["2", "1", "3"]


def test_messages_from_other_homes_do_not_follow_their_receiver(ledger: Ledger, far: Ledger) -> None:
    """Their senders count on this home."""
    say(far, "from there")
    deliver(claim(far), ledger)
    say(ledger, "from here")
    move(ledger, far)
    assert waiting(ledger) == ["from there"]
    assert [each.message.body for each in claim(ledger)] == ["from here"]


def test_only_messages_for_the_owner_that_appeared_elsewhere_follow_it(ledger: Ledger) -> None:
    owners = [Owner("folder/1", "/a"), Owner("folder/2", "/b")]
    for each in owners:
        ledger.owners.take(TEAM, "Bob", each)
        say(ledger, each.id)
    ledger.transit.begin(TEAM, "Bob", owners[1].id)
    assert states(ledger) == {"folder/1": State.STORED, "folder/2": State.QUEUED}


def test_a_message_that_returns_with_its_receiver_is_given_once(ledger: Ledger, far: Ledger) -> None:
    """It left this home, never arrived in the other one, and comes back to its row."""
    (sent,) = say(ledger, "hello")
    move(ledger, far)
    parcels = claim(ledger)  # the receiver has left again
    move_back(ledger)
    deliver(parcels, ledger)
    assert waiting(ledger) == ["hello"] and len(ledger.messages()) == 1
    ledger.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    deliver(parcels, ledger)
    assert waiting(ledger) == [] and states(ledger) == {"hello": State.INJECTED}


def test_a_message_that_the_other_home_may_have_is_uncertain_when_its_receiver_returns(
    ledger: Ledger, far: Ledger
) -> None:
    say(ledger, "hello")
    move(ledger, far)
    parcels = claim(ledger, far.origin)
    move_back(ledger)
    deliver(parcels, ledger)
    assert states(ledger) == {"hello": State.UNCERTAIN} and waiting(ledger) == []


# Expiry, drop, retry and release.


def test_a_message_stored_for_an_absent_agent_expires(ledger: Ledger, clock: Clock) -> None:
    """Its session need not run; its sender learns it."""
    (soon,) = say(ledger, "soon", ttl=10)
    say(ledger, "later", ttl=100)
    clock.now += 10
    assert ledger.outbox.expire() == 1
    (outcome,) = ledger.outbox.outcomes(TEAM, "Alice")
    assert (outcome.id, outcome.state, outcome.detail) == (
        *(soon.id, State.EXPIRED),
        "its receiver was not ready in time",
    )
    assert waiting(ledger) == arrived(ledger) == ["later"]
    with pytest.raises(MessageRefused, match="expired"):
        ledger.inbox.injecting(TEAM, "Bob", soon.id)


def test_a_message_that_has_followed_its_receiver_expires_there(
    ledger: Ledger, far: Ledger, clock: Clock
) -> None:
    say(ledger, "hello", ttl=10)
    clock.now += 4
    move(ledger, far)
    deliver(claim(ledger, far.origin), far)
    confirm(ledger, far)
    clock.now += 6
    assert ledger.outbox.expire() == 0, "the other home reports it"
    assert far.outbox.expire() == 1
    confirm(ledger, far)
    assert states(ledger) == {"hello": State.EXPIRED}


def test_a_dropped_message_within_a_home_does_not_hold_back_others(ledger: Ledger) -> None:
    first, second = say(ledger, "first", "second")
    ledger.drop(first.id, by="Alice")
    assert waiting(ledger) == arrived(ledger) == ["second"]
    (outcome,) = ledger.outbox.outcomes(TEAM, "Alice")
    assert (outcome.id, outcome.state, outcome.detail) == (first.id, State.REJECTED, "dropped by Alice")
    ledger.transit.copies(TEAM, "Alice")
    ledger.drop(second.id)
    assert set(states(ledger).values()) == {State.REJECTED}


def test_a_waiting_message_can_be_redirected_within_a_home(ledger: Ledger) -> None:
    (sent,) = say(ledger, "hello")
    again = ledger.retry(sent.id, to="Dan")
    assert (again.to, again.state) == ("Dan", State.STORED)
    assert waiting(ledger) == [] and waiting(ledger, "Dan") == ["hello"]
    original = ledger.find(sent.id).message
    assert (original.state, original.detail) == (State.REJECTED, f"sent again as {again.id} to Dan")


def test_a_message_within_a_home_cannot_be_retried_while_it_waits(ledger: Ledger) -> None:
    (sent,) = say(ledger, "hello")
    with pytest.raises(LedgerError, match="has arrived and waits until Bob is ready"):
        ledger.retry(sent.id)


def test_a_released_message_is_stored_at_once(ledger: Ledger, clock: Clock) -> None:
    """With its turn, and its full time to live, from its release on."""
    limits = Limits(depth=8)
    held = say(ledger, "1", "2", depth=9, ttl=10, limits=limits)
    assert ledger.transit.copies(TEAM, "Alice") == [] and arrived(ledger) == []
    say(ledger, "from Dan", sender="Dan")
    clock.now += 60
    assert [each.body for each in ledger.outbox.release(ledger.held())] == ["1", "2"]
    assert arrived(ledger) == ["from Dan", "1", "2"]
    assert [each.message.id for each in ledger.transit.copies(TEAM, "Alice")] == [each.id for each in held]
    clock.now += 9
    assert ledger.outbox.expire() == 0
    clock.now += 1
    assert ledger.outbox.expire() == 2


def test_a_receipt_changes_no_message_within_this_home(ledger: Ledger) -> None:
    """It can only be a forged one."""
    (sent,) = say(ledger, "hello")
    assert not ledger.transit.receipt(TEAM, Receipt(sent.id, "Bob", "Alice", State.INJECTED))
    assert states(ledger) == {"hello": State.STORED}


def test_an_absent_members_oldest_messages_stored_here_expire(ledger: Ledger) -> None:
    ledger.channels.join(TEAM, "ops", "Bob")
    with ledger.transaction():
        for number in range(CATCH_UP + 2):
            post(ledger, TEAM, "Alice", "#ops", str(number), limits=Limits(rate=0, broadcasts=0))
    typing = ledger.inbox.waiting(TEAM, "Bob")[0]
    ledger.inbox.injecting(TEAM, "Bob", typing.id)
    assert ledger.channels.limit(TEAM, lambda name: False) == 0
    assert ledger.channels.limit(TEAM, lambda name: True) == 1
    assert ledger.channels.limit(TEAM, lambda name: True) == 0
    assert waiting(ledger) == [str(number) for number in range(2, CATCH_UP + 2)]
    assert [each.body for each in ledger.outbox.outcomes(TEAM, "Alice")] == ["1"]
