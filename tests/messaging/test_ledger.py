"""The ledger keeps committed messages, their order within each pair and their true states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import send
from relay.errors import LedgerError, MessageRefused
from relay.message import MAX_BODY, Message, State
from relay.messaging import inbox
from relay.messaging.envelope import Envelope, Receipt
from relay.messaging.inbox import InboxFull
from relay.messaging.ledger import KEEP_DAYS, Ledger
from relay.messaging.runaway import Limits
from relay.transport.wire import ForeignPayload

TEAM = "default"


def claim(ledger: Ledger, sender: str = "Alice", limit: int = 100) -> list[Envelope]:
    return ledger.transit.claim(TEAM, sender, lambda *_: 5.0, limit)


def state(ledger: Ledger, id: str) -> State:
    return ledger.find(id).message.state


def bodies(messages: list[Message]) -> list[str]:
    return [message.body for message in messages]


def store(ledger: Ledger, parcel: Envelope) -> list[str]:
    """Store a message that came over the broker; return the bodies of those whose turn has come with it."""
    ((latest,),) = ledger.rows("SELECT ifnull(max(turn), 0) FROM messages")
    ledger.inbox.store(TEAM, parcel)
    return [message.body for _, message in ledger.inbox.arrived(TEAM, parcel.message.to, latest)]


def confirm(ledger: Ledger, far: Ledger) -> None:
    """Deliver the receipts of Bob, whose home is `far`."""
    receipts = far.inbox.receipts(TEAM, "Bob", 100)
    far.inbox.receipted(TEAM, receipts)
    for each in receipts:
        ledger.transit.receipt(TEAM, each)


@pytest.fixture
def local(ledger: Ledger) -> Ledger:
    """Return the ledger of a home in which Bob is."""
    ledger.registry.register(TEAM, "Bob", here=True)
    return ledger


def test_a_message_passes_through_its_states(ledger: Ledger, far: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "hello", "thread-1")
    assert state(ledger, sent.id) is State.QUEUED
    (parcel,) = claim(ledger)
    assert parcel.message == sent
    ledger.transit.sent([sent.id])
    assert state(ledger, sent.id) is State.SENT

    far.inbox.store(TEAM, parcel)
    assert far.inbox.arrived(TEAM, "bob", 0) == [(1, replace(sent, state=State.STORED))]
    (receipt,) = far.inbox.receipts(TEAM, "bob", 10)
    ledger.transit.receipt(TEAM, receipt)
    far.inbox.receipted(TEAM, [receipt])
    assert far.inbox.receipts(TEAM, "Bob", 10) == []
    assert state(ledger, sent.id) is State.STORED

    far.inbox.injecting(TEAM, "Bob", sent.id)
    assert far.inbox.waiting(TEAM, "Bob") == []
    far.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    (receipt,) = far.inbox.receipts(TEAM, "Bob", 10)
    ledger.transit.receipt(TEAM, receipt)
    assert state(ledger, sent.id) is State.INJECTED
    assert [m.state for m in ledger.outbox.outcomes(TEAM, "Alice")] == [State.INJECTED]
    assert ledger.outbox.outcomes(TEAM, "Alice") == []


def test_a_message_within_one_home_is_listed_once_with_one_state(local: Ledger) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "hello")
    local.inbox.settle(TEAM, "Bob", sent.id, State.REJECTED, "no")
    (entry,) = local.messages()
    assert (entry.message.state, entry.message.detail) == (State.REJECTED, "no")


def test_a_duplicate_is_stored_once_but_confirmed_again(ledger: Ledger, far: Ledger) -> None:
    send(ledger, TEAM, "Alice", ["Bob"], "hello")
    (parcel,) = claim(ledger)
    assert store(far, parcel) == ["hello"]
    far.inbox.receipted(TEAM, far.inbox.receipts(TEAM, "Bob", 10))
    assert store(far, parcel) == []
    assert len(far.inbox.waiting(TEAM, "Bob")) == 1
    assert len(far.inbox.receipts(TEAM, "Bob", 10)) == 1


def test_a_published_message_is_due_again_only_after_its_delay(ledger: Ledger, clock: Clock) -> None:
    send(ledger, TEAM, "Alice", ["Bob"], "hello")
    assert len(claim(ledger)) == 1
    assert claim(ledger) == []
    assert ledger.transit.next_due(TEAM, "Alice") == 5.0
    clock.now += 5
    assert len(claim(ledger)) == 1


def test_a_message_for_an_absent_agent_waits_until_it_appears(ledger: Ledger, clock: Clock) -> None:
    send(ledger, TEAM, "Alice", ["Bob"], "hello")
    assert len(ledger.transit.claim(TEAM, "Alice", lambda *_: None, 10)) == 1
    clock.now += 1e6
    assert ledger.transit.next_due(TEAM, "Alice") is None
    assert ledger.transit.appeared(TEAM, "bob") == ["Alice"]
    assert ledger.transit.senders_with_mail(TEAM) == ["Alice"]
    assert len(claim(ledger)) == 1


def test_a_message_that_overtakes_waits_for_earlier_ones(ledger: Ledger, far: Ledger) -> None:
    for number in range(4):
        send(ledger, TEAM, "Alice", ["Bob"], str(number))
    first, second, third, fourth = claim(ledger)
    assert store(far, third) == []
    assert far.inbox.waiting(TEAM, "Bob") == []
    assert store(far, first) == ["0"]
    assert store(far, second) == ["1", "2"]
    assert store(far, fourth) == ["3"]
    assert bodies(far.inbox.waiting(TEAM, "Bob")) == ["0", "1", "2", "3"]


def test_pairs_do_not_wait_for_each_other(ledger: Ledger, far: Ledger) -> None:
    send(ledger, TEAM, "Alice", ["Bob", "Carol"], "lost")
    send(ledger, TEAM, "Dan", ["Bob"], "from another")
    assert store(far, claim(ledger, "Dan")[0]) == ["from another"]
    send(ledger, TEAM, "Alice", ["Carol"], "second")
    to_carol = [p for p in claim(ledger) if p.message.to == "Carol"]
    assert store(far, to_carol[1]) == []
    assert store(far, to_carol[0]) == ["lost", "second"]


def test_a_dropped_message_does_not_hold_back_later_ones(ledger: Ledger, far: Ledger, clock: Clock) -> None:
    (dropped,) = send(ledger, TEAM, "Alice", ["Bob"], "dropped")
    send(ledger, TEAM, "Alice", ["Bob"], "next")
    parcels = claim(ledger)
    ledger.transit.sent([p.message.id for p in parcels])
    assert store(far, parcels[1]) == []
    assert far.inbox.receipts(TEAM, "Bob", 10) == [], "a receipt would prevent its republication"
    ledger.drop(dropped.id)
    assert state(ledger, dropped.id) is State.EXPIRED
    (repeated,) = claim(ledger)
    assert store(far, repeated) == ["next"]
    # It was in flight anyway and arrives too late: later messages have been released before it.
    assert store(far, parcels[0]) == []
    assert state(ledger, dropped.id) is State.EXPIRED


def test_a_senders_new_ledger_starts_a_new_stream(ledger: Ledger, far: Ledger, tmp_path: Path) -> None:
    for number in range(3):
        send(ledger, TEAM, "Alice", ["Bob"], str(number))
    for parcel in claim(ledger):
        far.inbox.store(TEAM, parcel)
    with Ledger(tmp_path / "reinstalled.db") as fresh:
        send(fresh, TEAM, "Alice", ["Bob"], "fresh")
        assert store(far, claim(fresh)[0]) == ["fresh"]


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=6))
@settings(max_examples=40)
def test_messages_are_released_in_the_order_of_sending_however_they_arrive(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], repeated: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    with Ledger(directory / "near.db") as near, Ledger(directory / "far.db") as far:
        for number in range(6):
            send(near, TEAM, "Alice", ["Bob"], str(number))
        parcels = claim(near)
        released: list[str] = []
        for index in [*repeated, *order, *repeated]:
            released += store(far, parcels[index])
        assert released == bodies(far.inbox.waiting(TEAM, "Bob")) == [str(number) for number in range(6)]


def test_a_message_being_typed_when_its_receiver_dies_is_uncertain(local: Ledger) -> None:
    first, second, third = (send(local, TEAM, "Alice", ["Bob"], str(number))[0].id for number in range(3))
    local.inbox.injecting(TEAM, "Bob", first)
    local.inbox.settle(TEAM, "Bob", first, State.INJECTED)
    local.inbox.injecting(TEAM, "Bob", second)
    assert local.inbox.recover(TEAM, "Bob") == [second]
    assert [state(local, id) for id in (first, second, third)] == [
        State.INJECTED,
        State.UNCERTAIN,
        State.STORED,
    ]
    assert [m.id for m in local.inbox.waiting(TEAM, "Bob")] == [third]
    assert local.inbox.recover(TEAM, "Bob") == []


def test_a_retried_message_goes_to_the_end_of_the_queue(local: Ledger) -> None:
    (lost,) = send(local, TEAM, "Alice", ["Bob"], "text", "thread")
    with pytest.raises(LedgerError, match="has arrived and waits until Bob is ready"):
        local.retry(lost.id[:6])
    local.inbox.settle(TEAM, "Bob", lost.id, State.UNCERTAIN)
    send(local, TEAM, "Alice", ["Bob"], "later")
    repeated = local.retry(lost.id[:6])
    assert (repeated.body, repeated.thread, repeated.state) == ("text", "thread", State.STORED)
    assert state(local, lost.id) is State.UNCERTAIN
    assert bodies(local.inbox.waiting(TEAM, "Bob")) == ["later", "text"]


def test_a_message_retried_for_another_home_goes_to_the_end_of_its_stream(
    ledger: Ledger, far: Ledger
) -> None:
    (lost,) = send(ledger, TEAM, "Alice", ["Bob"], "text", "thread")
    store(far, claim(ledger)[0])
    confirm(ledger, far)
    with pytest.raises(LedgerError, match="has arrived and waits until Bob is ready"):
        ledger.retry(lost.id[:6])
    far.inbox.settle(TEAM, "Bob", lost.id, State.UNCERTAIN)
    confirm(ledger, far)
    send(ledger, TEAM, "Alice", ["Bob"], "later")
    repeated = ledger.retry(lost.id[:6])
    assert (repeated.body, repeated.thread, repeated.state) == ("text", "thread", State.QUEUED)
    assert state(ledger, lost.id) is State.UNCERTAIN
    assert [parcel.message.body for parcel in claim(ledger)] == ["later", "text"]


def test_a_retried_message_expires_as_the_settings_say(local: Ledger) -> None:
    (lost,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.inbox.settle(TEAM, "Bob", lost.id, State.UNCERTAIN)
    for by_user in (True, False):
        repeated = local.retry(lost.id, limits=Limits(ttl=60), by_user=by_user)
        assert repeated.expires is not None and repeated.expires <= local.now() + 60
    assert local.retry(lost.id, limits=Limits(ttl=0)).expires is None  # never


def test_a_retry_of_a_message_in_flight_makes_it_due_immediately(ledger: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    claim(ledger)
    assert ledger.retry(sent.id).id == sent.id
    assert len(claim(ledger)) == 1


def test_a_dropped_message_is_not_typed_and_a_second_drop_hides_it(local: Ledger) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.drop(sent.id)
    assert local.inbox.waiting(TEAM, "Bob") == []
    assert state(local, sent.id) is State.REJECTED
    local.drop(sent.id)
    assert local.messages() == []


def test_a_hidden_message_is_not_stored_again(ledger: Ledger, far: Ledger) -> None:
    """The broker may deliver it once more; its id is still known."""
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    (parcel,) = claim(ledger)
    far.inbox.store(TEAM, parcel)
    for _ in range(2):
        far.drop(sent.id)
    assert far.messages() == []
    assert store(far, parcel) == []
    assert far.inbox.waiting(TEAM, "Bob") == []


def test_typing_a_dropped_message_is_refused(local: Ledger) -> None:
    """The receiver's session already has the message when the user drops it."""
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.drop(sent.id)
    with pytest.raises(MessageRefused, match="dropped"):
        local.inbox.injecting(TEAM, "Bob", sent.id)
    local.inbox.settle(TEAM, "Bob", sent.id, State.STORED)
    assert local.inbox.waiting(TEAM, "Bob") == []
    assert state(local, sent.id) is State.REJECTED


def test_a_message_being_typed_cannot_be_redirected(local: Ledger) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.inbox.injecting(TEAM, "Bob", sent.id)
    with pytest.raises(LedgerError, match="being typed"):
        local.retry(sent.id, to="Carol")
    assert [entry.message.id for entry in local.messages()] == [sent.id] and claim(local) == []


def test_a_message_being_typed_cannot_be_dropped(local: Ledger) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.inbox.injecting(TEAM, "Bob", sent.id)
    with pytest.raises(LedgerError, match="can no longer be dropped"):
        local.drop(sent.id)
    assert state(local, sent.id) is State.STORED
    local.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    assert state(local, sent.id) is State.INJECTED


def test_a_message_stored_in_another_home_can_be_dropped_here(ledger: Ledger, far: Ledger) -> None:
    """The other host may be gone for good; if it is not, the state that it reports wins."""
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    far.inbox.store(TEAM, claim(ledger)[0])
    for receipt in far.inbox.receipts(TEAM, "Bob", 10):
        ledger.transit.receipt(TEAM, receipt)
    with pytest.raises(LedgerError, match="drop it with `relay drop`"):
        ledger.retry(sent.id)
    ledger.drop(sent.id)
    dropped = ledger.find(sent.id).message
    assert dropped.state is State.EXPIRED
    assert "may still be typed there" in str(dropped.detail)
    far.inbox.settle(TEAM, "Bob", sent.id, State.INJECTED)
    for receipt in far.inbox.receipts(TEAM, "Bob", 10):
        ledger.transit.receipt(TEAM, receipt)
    assert state(ledger, sent.id) is State.INJECTED


def test_a_message_that_was_not_typed_after_all_waits_again(local: Ledger) -> None:
    (sent,) = send(local, TEAM, "Alice", ["Bob"], "text")
    local.inbox.injecting(TEAM, "Bob", sent.id)
    assert local.inbox.waiting(TEAM, "Bob") == []
    local.inbox.settle(TEAM, "Bob", sent.id, State.STORED)
    assert bodies(local.inbox.waiting(TEAM, "Bob")) == ["text"]
    assert local.inbox.recover(TEAM, "Bob") == []
    local.drop(sent.id)
    assert local.inbox.waiting(TEAM, "Bob") == []


def test_a_message_being_typed_does_not_expire(far: Ledger, clock: Clock) -> None:
    flood(far, 2, ttl=10.0)
    far.inbox.injecting(TEAM, "Bob", "m0000001")
    clock.now += 11
    assert far.outbox.expire() == 1
    assert [state(far, id) for id in ("m0000001", "m0000002")] == [State.STORED, State.EXPIRED]
    far.inbox.settle(TEAM, "Bob", "m0000001", State.STORED)
    assert far.outbox.expire() == 1


def test_a_message_dropped_while_it_is_held_back_is_never_released(ledger: Ledger, far: Ledger) -> None:
    for number in range(3):
        send(ledger, TEAM, "Alice", ["Bob"], str(number))
    first, second, third = claim(ledger)
    assert store(far, second) == []
    far.drop(second.message.id)
    assert store(far, first) == ["0"]
    assert store(far, third) == ["2"]
    assert bodies(far.inbox.waiting(TEAM, "Bob")) == ["0", "2"]
    confirm(ledger, far)
    assert state(ledger, second.message.id) is State.REJECTED


def test_a_message_dropped_in_transit_is_not_stored_in_its_own_home(ledger: Ledger) -> None:
    """Its receiver has moved here meanwhile."""
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    (parcel,) = claim(ledger)
    ledger.drop(sent.id)
    assert store(ledger, parcel) == []
    assert state(ledger, sent.id) is State.EXPIRED


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt("unknown", "Bob", "Alice", State.INJECTED),
        Receipt("ID", "Mallory", "Alice", State.INJECTED),
        Receipt("ID", "Bob", "Mallory", State.INJECTED),
    ],
)
def test_a_receipt_that_matches_no_message_changes_nothing(ledger: Ledger, receipt: Receipt) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    ledger.transit.receipt(TEAM, replace(receipt, id=receipt.id.replace("ID", sent.id)))
    assert state(ledger, sent.id) is State.QUEUED


def test_a_forged_message_cannot_reuse_anothers_id(ledger: Ledger, far: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    (parcel,) = claim(ledger)
    far.inbox.store(TEAM, parcel)
    forged = Envelope(replace(sent, sender="Mallory"), "origin", 1, 1)
    for each in (ledger, far):
        with pytest.raises(ForeignPayload):
            each.inbox.store(TEAM, forged)
    assert state(ledger, sent.id) is State.QUEUED
    assert [(m.sender, m.body) for m in far.inbox.waiting(TEAM, "Bob")] == [("Alice", "text")]


def flood(ledger: Ledger, count: int, first: int = 1, **more: Any) -> None:
    """Store `count` messages from Mallory to Bob."""
    for number in range(first, first + count):
        message = Message(f"m{number:07}", "Mallory", "Bob", "x", ledger.now(), State.STORED)
        ledger.inbox.store(TEAM, Envelope(message, "origin", number, first, **more))


def test_a_sender_at_its_limit_does_not_block_others(
    ledger: Ledger, far: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10."""
    monkeypatch.setattr(inbox, "MOST", 5)
    with pytest.raises(InboxFull, match="Mallory has reached the limit of waiting messages for Bob"):
        flood(ledger, 6)
    send(far, TEAM, "Alice", ["Bob"], "from another home")
    assert store(ledger, claim(far)[0]) == ["from another home"]
    ledger.registry.register(TEAM, "Bob", here=True)
    send(ledger, TEAM, "Dan", ["Bob"], "from here")
    waiting = bodies(ledger.inbox.waiting(TEAM, "Bob"))
    assert waiting == ["x", "from another home", "from here", "x", "x", "x", "x"]
    ledger.inbox.settle(TEAM, "Bob", "m0000001", State.INJECTED)
    flood(ledger, 1, first=6)


def test_a_senders_limit_also_counts_bytes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_BYTES", 3 * MAX_BODY)
    flood(ledger, 3)  # at least as many may be in flight
    flood(ledger, 10, first=4)
    monkeypatch.setattr(inbox, "MOST_BYTES", 10)
    with pytest.raises(InboxFull):
        flood(ledger, 1, first=14)


def test_the_oldest_settled_messages_make_room(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise messages that expire immediately would fill the ledger for a month."""
    monkeypatch.setattr(inbox, "MOST", 20)
    for number in range(1, 101):
        flood(ledger, 1, first=number, ttl=0.0)
        clock.now += 1
        assert ledger.outbox.expire() == 1
        ledger.inbox.receipted(TEAM, ledger.inbox.receipts(TEAM, "Bob", 10))
    kept = [entry.message for entry in ledger.messages()]
    assert len(kept) <= 20
    assert (kept[-1].id, kept[-1].state) == ("m0000100", State.EXPIRED)


def test_a_senders_streams_are_limited(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "STREAMS", 3)

    def store(number: int) -> None:
        message = Message(f"m{number}", "Mallory", "Bob", "x", ledger.now(), State.STORED)
        ledger.inbox.store(TEAM, Envelope(message, f"origin{number}", 1, 1))

    for number in range(3):
        store(number)
    with pytest.raises(InboxFull):
        store(3)
    ledger.inbox.settle(TEAM, "Bob", "m1", State.INJECTED)
    store(3)
    assert ledger.rows("SELECT origin FROM pairs ORDER BY origin") == [
        ("origin0",),
        ("origin2",),
        ("origin3",),
    ]


def test_an_ambiguous_id_prefix_is_an_error_that_lists_the_matches(ledger: Ledger) -> None:
    flood(ledger, 5, first=10)
    assert ledger.find("m0000011").message.id == "m0000011"
    with pytest.raises(LedgerError, match="m0000010, m0000011, m0000012, \\.\\.\\.") as error:
        ledger.find("m00")
    assert "Give more of the id" in str(error.value)


def test_states_never_go_back(ledger: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "text")
    ledger.transit.receipt(TEAM, Receipt(sent.id, "Bob", "Alice", State.INJECTED))
    ledger.transit.receipt(TEAM, Receipt(sent.id, "Bob", "Alice", State.STORED))
    ledger.transit.sent([sent.id])
    assert state(ledger, sent.id) is State.INJECTED


def test_the_last_spelling_of_a_name_is_remembered(ledger: Ledger) -> None:
    for name in ("Bob", "alice", "Alice"):
        ledger.registry.register(TEAM, name)
    ledger.registry.register("other", "Carol")
    assert ledger.registry.known("DEFAULT") == ["Alice", "Bob"]


def test_the_list_of_messages_can_be_filtered_and_limited(ledger: Ledger) -> None:
    send(ledger, TEAM, "Alice", ["Bob"], "1")
    send(ledger, TEAM, "Bob", ["Alice"], "2")
    send(ledger, "other", "Carol", ["Dan"], "3")

    def listed(**filters: str | int) -> list[str]:
        return bodies([entry.message for entry in ledger.messages(**filters)])  # type: ignore[arg-type]

    assert listed() == ["1", "2", "3"]
    assert listed(limit=2) == ["2", "3"]
    assert listed(to="bob") == ["1"]
    assert listed(sender="BOB") == ["2"]
    assert listed(of="bob", team=TEAM) == ["1", "2"]
    assert listed(team="other") == ["3"]


def test_a_message_is_found_by_a_prefix_of_its_id(ledger: Ledger) -> None:
    (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "1")
    assert ledger.find(sent.id[:5]).message == sent
    assert ledger.find(sent.id).message == sent
    for wrong in ("zz", "_", sent.id + "0"):
        with pytest.raises(LedgerError, match="no message has an id that begins with"):
            ledger.find(wrong)
    for wrong in ("", "%", "a b", "\udcff"):
        with pytest.raises(LedgerError, match="does not begin any id"):
            ledger.find(wrong)


def test_only_old_settled_messages_are_pruned(ledger: Ledger, clock: Clock) -> None:
    done, open_ = (send(ledger, TEAM, "Alice", ["Bob"], body)[0] for body in ("done", "open"))
    clock.now += (KEEP_DAYS + 1) * 86400
    ledger.prune()
    ledger.transit.receipt(TEAM, Receipt(done.id, "Bob", "Alice", State.INJECTED))
    ledger.prune()  # it was settled only now
    assert [entry.message.id for entry in ledger.messages()] == [done.id, open_.id]
    clock.now += (KEEP_DAYS + 1) * 86400
    ledger.prune()
    assert [entry.message.id for entry in ledger.messages()] == [open_.id]
