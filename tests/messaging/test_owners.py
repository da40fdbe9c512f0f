"""The owner of a name: mail for a run ends with the run; mail for a folder's agent waits for that agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgers import post, send
from relay.errors import ReceiverEnded, UnknownRecipient
from relay.message import State
from relay.messaging.envelope import Envelope, decode, encode
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.runaway import Limits
from relay.transport.topics import InboxTopic

TEAM = "default"
FIRST, SECOND = Owner.of_run("1"), Owner.of_run("2")
HERE, ELSEWHERE = Owner.of_folder(Path("/home/ann/shop")), Owner.of_folder(Path("/home/ann/blog"))


@pytest.fixture(autouse=True)
def team(ledger: Ledger) -> None:
    for name in ("Alice", "claude"):
        ledger.registry.register(TEAM, name)


def take(ledger: Ledger, owner: Owner, *, begins: bool = True) -> None:
    ledger.owners.take(TEAM, "claude", owner, begins=begins)


def be(ledger: Ledger, *, here: bool) -> None:
    """Let claude be in the home of `ledger`, or in another one."""
    ledger.registry.register(TEAM, "claude", here=here)


def send_to_claude(ledger: Ledger, *bodies: str) -> None:
    for body in bodies:
        send(ledger, TEAM, "Alice", ["claude"], body)


def claim(ledger: Ledger) -> list[Envelope]:
    """Return what is published now, as the receiver decodes it."""
    sent = ledger.transit.claim(TEAM, "Alice", lambda *_: 5.0, 100)
    received = [decode(encode(each), InboxTopic(TEAM, "claude", "alice")) for each in sent]
    return [each for each in received if isinstance(each, Envelope)]


def deliver(ledger: Ledger, envelopes: list[Envelope], owner: Owner) -> list[str]:
    """Deliver `envelopes`; return the bodies that may now be typed into the agent that holds the name."""
    found = []
    for each in envelopes:
        ((latest,),) = ledger.rows("SELECT ifnull(max(turn), 0) FROM messages")
        ledger.inbox.store(TEAM, each, owner=owner.id)
        found += [m.body for _, m in ledger.inbox.arrived(TEAM, "claude", latest, owner.id)]
    return found


def waiting(ledger: Ledger, owner: Owner) -> list[str]:
    return [message.body for message in ledger.inbox.waiting(TEAM, "claude", owner=owner.id)]


def outcomes(ledger: Ledger) -> dict[str, tuple[str, str | None]]:
    return {each.message.body: (each.message.state, each.message.detail) for each in ledger.messages()}


def queue_in_every_state(ledger: Ledger) -> None:
    """Queue messages for claude: one being typed, one stored, one sent, one queued, one held."""
    be(ledger, here=True)
    send_to_claude(ledger, "typing", "stored")
    ledger.inbox.injecting(TEAM, "claude", ledger.messages()[0].message.id)
    be(ledger, here=False)
    send_to_claude(ledger, "sent")
    ledger.transit.sent([each.message.id for each in claim(ledger)])
    send_to_claude(ledger, "queued")
    send(ledger, TEAM, "Alice", ["claude"], "held", depth=9, limits=Limits(depth=8))
    ledger.outbox.outcomes(TEAM, "Alice")


ENDED = {
    "typing": ("uncertain", "the receiver ended while it was being typed"),
    "stored": ("rejected", "claude has ended"),
    "sent": ("expired", "claude has ended"),
    "queued": ("expired", "claude has ended"),
    "held": ("expired", "claude has ended"),
}


@pytest.mark.parametrize("how", ["it ends", "another run follows", "its agent is gone"])
def test_mail_for_a_run_ends_with_it_and_its_sender_is_notified(ledger: Ledger, how: str) -> None:
    """U2."""
    take(ledger, FIRST)
    queue_in_every_state(ledger)
    match how:
        case "it ends":
            ledger.owners.end(TEAM, "claude", FIRST.id)
        case "another run follows":
            take(ledger, SECOND)
        case "its agent is gone":
            ledger.owners.end_gone(lambda team, name: True)
            assert outcomes(ledger)["queued"] == ("queued", None)
            ledger.owners.end_gone(lambda team, name: False)
    assert outcomes(ledger) == ENDED
    reported = {message.body: message.state for message in ledger.outbox.outcomes(TEAM, "Alice")}
    assert reported == {body: state for body, (state, _) in ENDED.items()}
    take(ledger, SECOND)
    assert claim(ledger) == [] and waiting(ledger, SECOND) == []
    assert outcomes(ledger) == ENDED
    be(ledger, here=True)
    send_to_claude(ledger, "for the second")
    assert waiting(ledger, SECOND) == ["for the second"]


def test_outcomes_are_reported_only_to_the_owner_that_sent_the_messages(ledger: Ledger) -> None:
    """U2: not to the next run or to another folder's agent, but to the sender itself when it is back."""

    def reported_to(owner: Owner) -> list[str]:
        take(ledger, owner)
        return [each.body for each in ledger.outbox.outcomes(TEAM, "claude", owner.id)]

    for owner in (FIRST, HERE):
        take(ledger, owner)
        send(ledger, TEAM, "claude", ["Alice"], f"from {owner.id}")
        assert reported_to(owner) == []
    for each in ledger.messages():
        ledger.drop(each.message.id)
    assert [reported_to(owner) for owner in (SECOND, ELSEWHERE)] == [[], []]
    assert reported_to(HERE) == [f"from {HERE.id}"]
    assert reported_to(HERE) == []


def test_a_run_that_is_replaced_silently_leaves_nothing_stored_forever(ledger: Ledger, far: Ledger) -> None:
    """U2: the first run's host is gone; what that host may still report wins."""
    take(ledger, FIRST)
    take(far, FIRST)
    send_to_claude(ledger, "one")
    (parcel,) = claim(ledger)
    deliver(far, [parcel], FIRST)
    for each in far.inbox.receipts(TEAM, "claude", 10):
        ledger.transit.receipt(TEAM, each)
    assert outcomes(ledger) == {"one": ("stored", None)}
    take(ledger, SECOND)
    why = "it had arrived, and claude has ended on its host without confirming it"
    assert outcomes(ledger) == {"one": ("uncertain", why)}
    far.owners.end_gone(lambda team, name: False)
    assert far.inbox.left_receipts(TEAM) == ["claude"]
    for each in far.inbox.receipts(TEAM, "claude", 10):
        ledger.transit.receipt(TEAM, each)
        far.inbox.receipted(TEAM, [each])
    assert outcomes(ledger) == {"one": ("rejected", "claude has ended")}
    assert far.inbox.left_receipts(TEAM) == []


def test_a_new_session_of_the_same_run_keeps_its_mail(ledger: Ledger) -> None:
    """U2: as after a kill -9 or `relay restart`."""
    take(ledger, FIRST)
    queue_in_every_state(ledger)
    before = outcomes(ledger)
    take(ledger, FIRST, begins=False)
    take(ledger, FIRST)
    assert outcomes(ledger) == before
    assert waiting(ledger, FIRST) == ["stored"]


def test_mail_for_a_folders_agent_waits_for_that_agent(ledger: Ledger) -> None:
    """U2: another agent of that name does not get it, and it does not block that agent's mail."""
    be(ledger, here=True)
    take(ledger, HERE)
    send_to_claude(ledger, "one", "two")
    take(ledger, ELSEWHERE)
    assert waiting(ledger, ELSEWHERE) == []
    assert ledger.inbox.arrived(TEAM, "claude", 0, ELSEWHERE.id) == []
    assert ledger.owners.others(TEAM, "Claude", ELSEWHERE.id) == [("/home/ann/shop", 2)]
    send_to_claude(ledger, "three", "four")
    assert waiting(ledger, ELSEWHERE) == ["three", "four"]
    take(ledger, HERE)
    assert waiting(ledger, HERE) == ["one", "two"]
    assert ledger.owners.others(TEAM, "claude", HERE.id) == [("/home/ann/blog", 2)]


def test_mail_for_a_folders_agent_in_another_home_waits_for_that_agent(ledger: Ledger, far: Ledger) -> None:
    """U2: some of it in that home, the rest here."""
    for each in (ledger, far):
        take(each, HERE)
    send_to_claude(ledger, "one", "two")
    deliver(far, claim(ledger)[:1], HERE)
    for each in (ledger, far):
        take(each, ELSEWHERE)
    assert waiting(far, ELSEWHERE) == []
    assert ledger.owners.others(TEAM, "Claude", ELSEWHERE.id) == [("/home/ann/shop", 2)]
    assert far.owners.others(TEAM, "Claude", ELSEWHERE.id) == [("/home/ann/shop", 1)]
    send_to_claude(ledger, "three", "four")
    ledger.transit.park(TEAM, "Alice", lambda name, owner: owner == ELSEWHERE.id)
    assert deliver(far, claim(ledger), ELSEWHERE) == waiting(far, ELSEWHERE) == ["three", "four"]
    for each in (ledger, far):
        take(each, HERE)
    assert waiting(far, HERE) == ["one"]
    ledger.transit.appeared(TEAM, "claude", owner=HERE.id)
    ledger.transit.park(TEAM, "Alice", lambda name, owner: owner == HERE.id)
    assert deliver(far, claim(ledger), HERE) == ["two"]
    assert waiting(far, HERE) == ["one", "two"]
    assert far.owners.others(TEAM, "claude", HERE.id) == [("/home/ann/blog", 2)]


@pytest.mark.parametrize("here", [True, False], ids=["here", "in another home"])
def test_a_run_gets_none_of_a_folders_mail(ledger: Ledger, far: Ledger, here: bool) -> None:
    """U2: the run's end does not affect that mail either."""
    be(ledger, here=here)
    take(ledger, HERE)
    send_to_claude(ledger, "one")
    take(ledger, FIRST)
    assert waiting(ledger, FIRST) == []
    ledger.transit.begin(TEAM, "claude", owner=FIRST.id)
    ledger.transit.appeared(TEAM, "claude", owner=FIRST.id)
    ledger.owners.end(TEAM, "claude", FIRST.id)
    assert outcomes(ledger) == {"one": ("stored" if here else "queued", None)}
    take(ledger, HERE)
    assert (waiting(ledger, HERE) if here else deliver(far, claim(ledger), HERE)) == ["one"]


def test_late_mail_for_a_former_run_is_not_given_to_the_next(ledger: Ledger, far: Ledger) -> None:
    """U2: it was in flight from another host, and its sender learns the outcome."""
    take(ledger, FIRST)
    send_to_claude(ledger, "one", "two")
    late = claim(ledger)
    take(far, SECOND)
    assert deliver(far, late, SECOND) == []
    receipts = far.inbox.receipts(TEAM, "claude", 10)
    assert [each.state for each in receipts] == [State.REJECTED] * 2
    for each in receipts:
        ledger.transit.receipt(TEAM, each)
    why = "the claude that it was sent to has ended"
    assert outcomes(ledger) == {"one": ("rejected", why), "two": ("rejected", why)}
    assert deliver(far, late, SECOND) == [] and waiting(far, SECOND) == []
    take(ledger, SECOND)
    send_to_claude(ledger, "three")
    assert deliver(far, claim(ledger), SECOND) == ["three"]


def test_mail_that_arrives_after_its_run_has_ended_is_rejected(ledger: Ledger, far: Ledger) -> None:
    """U2: the run's client may still be listening."""
    take(ledger, FIRST)
    send_to_claude(ledger, "one")
    take(far, FIRST)
    far.owners.end(TEAM, "claude", FIRST.id)
    assert deliver(far, claim(ledger), FIRST) == []
    assert [each.state for each in far.inbox.receipts(TEAM, "claude", 10)] == [State.REJECTED]


def test_mail_that_is_held_back_when_its_run_ends_is_rejected(ledger: Ledger, far: Ledger) -> None:
    take(ledger, FIRST)
    take(far, FIRST)
    send_to_claude(ledger, "one", "two")
    deliver(far, claim(ledger)[1:], FIRST)
    far.owners.end(TEAM, "claude", FIRST.id)
    assert [each.state for each in far.inbox.receipts(TEAM, "claude", 10)] == [State.REJECTED]


def test_mail_for_another_folders_agent_stays_with_its_sender(ledger: Ledger, far: Ledger) -> None:
    """U2: until its own agent is on that host."""
    take(ledger, HERE)
    send_to_claude(ledger, "one")
    (parcel,) = claim(ledger)
    take(far, ELSEWHERE)
    assert deliver(far, [parcel], ELSEWHERE) == []
    assert far.messages() == [] and far.inbox.receipts(TEAM, "claude", 10) == []
    take(far, HERE)
    assert deliver(far, [parcel], HERE) == ["one"]


def test_mail_without_an_owner_goes_to_whoever_has_the_name(ledger: Ledger, far: Ledger) -> None:
    """Hosts with an earlier relay announce no owner."""
    send_to_claude(ledger, "one")
    (parcel,) = claim(ledger)
    assert parcel.owner is None
    take(far, FIRST)
    assert deliver(far, [parcel], FIRST) == ["one"]
    far.owners.end(TEAM, "claude", FIRST.id)  # the run that had the name got it
    assert outcomes(far) == {"one": ("rejected", "claude has ended")}


def test_a_message_to_an_ended_agent_is_refused(ledger: Ledger) -> None:
    """U2: the error says what to do; other errors do not suggest the ended agent."""
    take(ledger, FIRST)
    ledger.owners.end(TEAM, "claude", FIRST.id)
    with pytest.raises(ReceiverEnded, match=r"claude has ended.*`relay wrap -n claude`"):
        post(ledger, TEAM, "Alice", "Claude", "hello")
    with pytest.raises(UnknownRecipient, match="The team has no agents"):
        post(ledger, TEAM, "Alice", "claud", "hello")
    with pytest.raises(UnknownRecipient, match="has no other agents"):
        post(ledger, TEAM, "Alice", "*", "hello")
    assert ledger.messages() == []
    take(ledger, HERE)
    (sent,) = post(ledger, TEAM, "Alice", "claude", "hello")
    assert sent.state is State.QUEUED


def test_a_runs_channel_memberships_end_with_it(ledger: Ledger) -> None:
    """U2: messages in a channel are mail, too."""
    take(ledger, FIRST)
    for name in ("Alice", "claude"):
        ledger.channels.join(TEAM, "ops", name)
    ledger.owners.end(TEAM, "claude", FIRST.id)
    assert ledger.channels.of(TEAM, "claude") == []
    with pytest.raises(UnknownRecipient, match="nobody else is in #ops"):
        post(ledger, TEAM, "Alice", "#ops", "hello")


def test_only_the_run_that_has_the_name_can_end_it(ledger: Ledger) -> None:
    take(ledger, FIRST)
    take(ledger, SECOND)
    ledger.owners.end(TEAM, "claude", FIRST.id)
    ledger.owners.end(TEAM, "claude", HERE.id)
    assert ledger.owners.of(TEAM, "claude") == (SECOND.id, False)
    take(ledger, HERE)
    ledger.owners.end(TEAM, "claude", HERE.id)
    assert ledger.owners.of(TEAM, "claude") == (HERE.id, False)


def test_mail_for_one_owner_never_waits_for_anothers(ledger: Ledger, far: Ledger) -> None:
    """Each owner has separate streams, in order, whoever holds the name."""
    for turn, owner in enumerate((HERE, ELSEWHERE, HERE, ELSEWHERE)):
        take(ledger, owner)
        send_to_claude(ledger, f"{turn}a", f"{turn}b")
    found = []
    for owner in (ELSEWHERE, HERE):
        take(far, owner)
        ledger.transit.appeared(TEAM, "claude", owner=owner.id)
        for _ in range(4):  # until nothing is held back

            def present(name: str, of: str | None, owner: Owner = owner) -> bool:
                return of == owner.id

            ledger.transit.park(TEAM, "Alice", present)
            found += deliver(far, claim(ledger), owner)
            for each in far.inbox.receipts(TEAM, "claude", 10):
                ledger.transit.receipt(TEAM, each)
                far.inbox.receipted(TEAM, [each])
            ledger.transit.appeared(TEAM, "claude", owner=owner.id)
    assert found == ["1a", "1b", "3a", "3b", "0a", "0b", "2a", "2b"]


@pytest.mark.parametrize("owner", [FIRST, HERE], ids=["a run", "a folder"])
@pytest.mark.parametrize("begins", [True, False])
def test_mail_from_an_earlier_relay_belongs_to_whoever_has_the_name(
    ledger: Ledger, owner: Owner, begins: bool
) -> None:
    """Except for a new run, for which it was not written; a run whose session was replaced still gets it."""
    queue_in_every_state(ledger)
    take(ledger, owner, begins=begins)
    if owner is FIRST and begins:
        assert outcomes(ledger) == ENDED
    else:
        assert {body: state for body, (state, _) in outcomes(ledger).items()} == {
            "typing": "stored",
            "stored": "stored",
            "sent": "sent",
            "queued": "queued",
            "held": "held",
        }
        assert waiting(ledger, owner) == ["stored"]
        take(ledger, ELSEWHERE)  # it is now known to be for another owner
        assert waiting(ledger, ELSEWHERE) == []


def test_an_agent_does_not_list_messages_of_a_former_holder_of_its_name(ledger: Ledger) -> None:
    """U2: neither messages to the other agent nor messages from it."""

    def listed() -> list[str]:
        return [entry.message.body for entry in ledger.messages(team=TEAM, of="Claude")]

    take(ledger, FIRST)
    send_to_claude(ledger, "to the first")
    send(ledger, TEAM, "claude", ["Alice"], "from the first")
    assert listed() == ["to the first", "from the first"]
    take(ledger, SECOND)
    assert listed() == []
    send_to_claude(ledger, "to the second")
    send(ledger, TEAM, "claude", ["Alice"], "from the second")
    assert listed() == ["to the second", "from the second"]
