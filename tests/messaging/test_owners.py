"""Who owns a name: mail for a run ends with the run; mail for a folder's agent waits for that agent."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from ledgers import post, send
from relay.errors import ReceiverEnded, UnknownRecipient
from relay.message import State
from relay.messaging.envelope import Envelope, decode, encode
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import end_gone
from relay.messaging.owner import Owner
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


def say(ledger: Ledger, *bodies: str) -> None:
    for body in bodies:
        send(ledger, TEAM, "Alice", ["claude"], body)


def claim(ledger: Ledger) -> list[Envelope]:
    """Return what is published now, as it arrives."""
    sent = ledger.outbox.claim(TEAM, "Alice", lambda *_: 5.0, 100)
    received = [decode(encode(each), InboxTopic(TEAM, "claude", "alice")) for each in sent]
    return [each for each in received if isinstance(each, Envelope)]


def arrive(ledger: Ledger, envelopes: list[Envelope], owner: Owner) -> list[str]:
    """Return which of `envelopes` may be typed into the agent that holds the name."""
    return [m.body for each in envelopes for m in ledger.inbox.store(TEAM, each, owner=owner.id)]


def waiting(ledger: Ledger, owner: Owner) -> list[str]:
    return [message.body for message in ledger.inbox.waiting(TEAM, "claude", owner=owner.id)]


def ends(ledger: Ledger) -> dict[str, tuple[str, str | None]]:
    return {each.message.body: (each.message.state, each.message.detail) for each in ledger.messages()}


def wait_everywhere(ledger: Ledger) -> None:
    """Queue messages for claude: one being typed, one stored, one sent, one queued, one held."""
    say(ledger, "typing", "stored", "sent")
    first, second, third = claim(ledger)
    for each in (first, second):
        ledger.inbox.store(TEAM, each)
    ledger.outbox.sent([third.message.id])
    ledger.inbox.injecting(TEAM, "claude", first.message.id)
    say(ledger, "queued")
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
def test_mail_for_a_run_ends_with_it_and_its_sender_is_told(ledger: Ledger, how: str) -> None:
    """U2."""
    take(ledger, FIRST)
    wait_everywhere(ledger)
    match how:
        case "it ends":
            ledger.owners.end(TEAM, "claude", FIRST.id)
        case "another run follows":
            take(ledger, SECOND)
        case "its agent is gone":
            end_gone(ledger.owners, lambda team, name: True)
            assert ends(ledger)["queued"] == ("queued", None)
            end_gone(ledger.owners, lambda team, name: False)
    assert ends(ledger) == ENDED
    told = {message.body: message.state for message in ledger.outbox.outcomes(TEAM, "Alice")}
    assert told == {body: state for body, (state, _) in ENDED.items()}
    take(ledger, SECOND)
    assert claim(ledger) == [] and waiting(ledger, SECOND) == []
    assert ends(ledger) == ENDED
    say(ledger, "for the second")
    assert arrive(ledger, claim(ledger), SECOND) == waiting(ledger, SECOND) == ["for the second"]


def test_what_a_run_has_sent_is_no_news_for_the_next_of_its_name(ledger: Ledger) -> None:
    """U2: nor for the agent of another folder; the sender itself learns the outcome when it is back."""

    def news(owner: Owner) -> list[str]:
        take(ledger, owner)
        return [each.body for each in ledger.outbox.outcomes(TEAM, "claude", owner.id)]

    for owner in (FIRST, HERE):
        take(ledger, owner)
        send(ledger, TEAM, "claude", ["Alice"], f"from {owner.id}")
        assert news(owner) == []
    for each in ledger.messages():
        ledger.drop(each.message.id)
    assert [news(owner) for owner in (SECOND, ELSEWHERE)] == [[], []]
    assert news(HERE) == [f"from {HERE.id}"]
    assert news(HERE) == []


def test_a_run_that_another_follows_without_a_word_leaves_nothing_stored_for_ever(
    ledger: Ledger, far: Ledger
) -> None:
    """U2: the first run's host is gone; whatever that host reports later wins."""
    take(ledger, FIRST)
    take(far, FIRST)
    say(ledger, "one")
    (parcel,) = claim(ledger)
    arrive(far, [parcel], FIRST)
    for each in far.inbox.receipts(TEAM, "claude", 10):
        ledger.outbox.receipt(TEAM, each)
    assert ends(ledger) == {"one": ("stored", None)}
    take(ledger, SECOND)
    why = "it had arrived, and claude has ended on its host without confirming it"
    assert ends(ledger) == {"one": ("uncertain", why)}
    end_gone(far.owners, lambda team, name: False)
    assert far.inbox.left_receipts(TEAM) == ["claude"]
    for each in far.inbox.receipts(TEAM, "claude", 10):
        ledger.outbox.receipt(TEAM, each)
        far.inbox.receipted(TEAM, [each])
    assert ends(ledger) == {"one": ("rejected", "claude has ended")}
    assert far.inbox.left_receipts(TEAM) == []


def test_a_session_that_follows_beside_the_same_agent_has_its_mail(ledger: Ledger) -> None:
    """U2: this holds after a kill -9 and after `relay restart`."""
    take(ledger, FIRST)
    wait_everywhere(ledger)
    before = ends(ledger)
    take(ledger, FIRST, begins=False)
    take(ledger, FIRST)
    assert ends(ledger) == before
    assert waiting(ledger, FIRST) == ["stored"]


def test_mail_in_a_folder_waits_for_the_agent_of_that_folder(ledger: Ledger) -> None:
    """U2: another agent of that name does not get it, nor does it block that agent's mail."""
    take(ledger, HERE)
    say(ledger, "one", "two")
    arrive(ledger, claim(ledger)[:1], HERE)
    take(ledger, ELSEWHERE)
    assert waiting(ledger, ELSEWHERE) == []
    assert ledger.owners.others(TEAM, "Claude", ELSEWHERE.id) == [("/home/ann/shop", 2)]
    say(ledger, "three", "four")
    ledger.outbox.park(TEAM, "Alice", lambda name, owner: owner == ELSEWHERE.id)
    assert arrive(ledger, claim(ledger), ELSEWHERE) == waiting(ledger, ELSEWHERE) == ["three", "four"]
    take(ledger, HERE)
    assert waiting(ledger, HERE) == ["one"]
    ledger.outbox.appeared(TEAM, "claude", owner=HERE.id)
    ledger.outbox.park(TEAM, "Alice", lambda name, owner: owner == HERE.id)
    assert arrive(ledger, claim(ledger), HERE) == ["two"]
    assert waiting(ledger, HERE) == ["one", "two"]
    assert ledger.owners.others(TEAM, "claude", HERE.id) == [("/home/ann/blog", 2)]


def test_a_run_has_nothing_of_a_folder_s_mail(ledger: Ledger) -> None:
    """U2: nor does the run's end affect that mail."""
    take(ledger, HERE)
    say(ledger, "one")
    take(ledger, FIRST)
    ledger.outbox.appeared(TEAM, "claude", owner=FIRST.id)
    ledger.owners.end(TEAM, "claude", FIRST.id)
    assert ends(ledger) == {"one": ("queued", None)}
    take(ledger, HERE)
    assert arrive(ledger, claim(ledger), HERE) == ["one"]


def test_what_comes_late_for_a_former_run_is_not_given_to_the_next(ledger: Ledger, far: Ledger) -> None:
    """U2: the message was in flight from another host, and its sender learns the outcome."""
    take(ledger, FIRST)
    say(ledger, "one", "two")
    late = claim(ledger)
    take(far, SECOND)
    assert arrive(far, late, SECOND) == []
    receipts = far.inbox.receipts(TEAM, "claude", 10)
    assert [each.state for each in receipts] == [State.REJECTED] * 2
    for each in receipts:
        ledger.outbox.receipt(TEAM, each)
    why = "the claude that it was sent to has ended"
    assert ends(ledger) == {"one": ("rejected", why), "two": ("rejected", why)}
    assert arrive(far, late, SECOND) == [] and waiting(far, SECOND) == []
    take(ledger, SECOND)
    say(ledger, "three")
    assert arrive(far, claim(ledger), SECOND) == ["three"]


def test_what_comes_as_the_run_ends_does_not_wait_in_its_ledger_for_ever(ledger: Ledger, far: Ledger) -> None:
    """U2: the run's client may still be listening."""
    take(ledger, FIRST)
    say(ledger, "one")
    take(far, FIRST)
    far.owners.end(TEAM, "claude", FIRST.id)
    assert arrive(far, claim(ledger), FIRST) == []
    assert [each.state for each in far.inbox.receipts(TEAM, "claude", 10)] == [State.REJECTED]


def test_what_waits_for_its_turn_as_the_run_ends_has_a_receipt_too(ledger: Ledger, far: Ledger) -> None:
    take(ledger, FIRST)
    take(far, FIRST)
    say(ledger, "one", "two")
    arrive(far, claim(ledger)[1:], FIRST)
    far.owners.end(TEAM, "claude", FIRST.id)
    assert [each.state for each in far.inbox.receipts(TEAM, "claude", 10)] == [State.REJECTED]


def test_what_comes_to_the_agent_of_another_folder_stays_with_its_sender(ledger: Ledger, far: Ledger) -> None:
    """U2: the receiver does not come back to that host."""
    take(ledger, HERE)
    say(ledger, "one")
    (parcel,) = claim(ledger)
    take(far, ELSEWHERE)
    assert arrive(far, [parcel], ELSEWHERE) == []
    assert far.messages() == [] and far.inbox.receipts(TEAM, "claude", 10) == []
    take(far, HERE)
    assert arrive(far, [parcel], HERE) == ["one"]


def test_whoever_has_no_known_owner_is_not_told_apart(ledger: Ledger, far: Ledger) -> None:
    """Hosts with an earlier relay announce no owner."""
    say(ledger, "one")
    (parcel,) = claim(ledger)
    assert parcel.owner is None
    take(far, FIRST)
    assert arrive(far, [parcel], FIRST) == ["one"]
    far.owners.end(TEAM, "claude", FIRST.id)  # the run that was there got it
    assert ends(far) == {"one": ("rejected", "claude has ended")}


def test_who_has_ended_is_sent_nothing(ledger: Ledger) -> None:
    """U2: `relay send` says so, and what to do; it suggests the names of other agents."""
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


def test_the_memberships_of_a_run_end_with_it(ledger: Ledger) -> None:
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


def test_mail_for_one_owner_never_waits_for_that_of_another(ledger: Ledger, far: Ledger) -> None:
    """Each owner has separate streams, in order, whoever holds the name meanwhile."""
    for turn, owner in enumerate((HERE, ELSEWHERE, HERE, ELSEWHERE)):
        take(ledger, owner)
        say(ledger, f"{turn}a", f"{turn}b")
    found = []
    for owner in (ELSEWHERE, HERE):
        take(far, owner)
        ledger.outbox.appeared(TEAM, "claude", owner=owner.id)
        for _ in range(4):  # until nothing is held back

            def present(name: str, of: str | None, owner: Owner = owner) -> bool:
                return of == owner.id

            ledger.outbox.reopen(TEAM, "Alice", present)
            ledger.outbox.park(TEAM, "Alice", present)
            found += arrive(far, claim(ledger), owner)
            for each in far.inbox.receipts(TEAM, "claude", 10):
                ledger.outbox.receipt(TEAM, each)
                far.inbox.receipted(TEAM, [each])
            ledger.outbox.appeared(TEAM, "claude", owner=owner.id)
    assert found == ["1a", "1b", "3a", "3b", "0a", "0b", "2a", "2b"]


@pytest.mark.parametrize("owner", [FIRST, HERE], ids=["a run", "a folder"])
@pytest.mark.parametrize("begins", [True, False])
def test_what_an_earlier_relay_has_written_is_for_who_has_the_name(
    ledger: Ledger, owner: Owner, begins: bool
) -> None:
    """A new run is not the one it was written for; one whose session was replaced is."""
    wait_everywhere(ledger)
    take(ledger, owner, begins=begins)
    if owner is FIRST and begins:
        assert ends(ledger) == ENDED
    else:
        assert {body: state for body, (state, _) in ends(ledger).items()} == {
            "typing": "stored",
            "stored": "stored",
            "sent": "sent",
            "queued": "queued",
            "held": "held",
        }
        assert waiting(ledger, owner) == ["stored"]
        take(ledger, ELSEWHERE)  # only what is known to be for another owner
        assert waiting(ledger, ELSEWHERE) == []


def test_a_ledger_of_version_4_goes_on_working(tmp_path: Path) -> None:
    """The contents stay, and the streams continue where they were."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        say(ledger, "stored", "queued")
        ledger.inbox.store(TEAM, claim(ledger)[0])
    db = sqlite3.connect(path)
    for (index,) in db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall():
        db.execute(f"DROP INDEX {index}")
    for table in ("outbox", "inbox"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN owner")
    for table, column in (("inbox", "size"), ("outbox", "sent_by"), ("outbox", "ask")):
        db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    for table in ("owners", "presences"):
        db.execute(f"DROP TABLE {table}")
    db.execute("PRAGMA user_version = 4")
    db.commit()
    db.close()
    with Ledger(path) as ledger:
        take(ledger, HERE)
        assert waiting(ledger, HERE) == ["stored"]
        say(ledger, "new")
        ledger.outbox.appeared(TEAM, "claude", owner=HERE.id)
        assert [(each.message.body, each.sequence) for each in claim(ledger)] == [("queued", 2), ("new", 3)]
        assert arrive(ledger, [replace(each) for each in claim(ledger)], HERE) == []


def test_an_agent_lists_nothing_of_another_one_that_had_its_name(ledger: Ledger) -> None:
    """U2: neither messages to the other agent nor messages from it."""

    def listed() -> list[str]:
        return [entry.message.body for entry in ledger.messages(team=TEAM, of="Claude")]

    take(ledger, FIRST)
    say(ledger, "to the first")
    arrive(ledger, claim(ledger), FIRST)
    send(ledger, TEAM, "claude", ["Alice"], "from the first")
    assert listed() == ["to the first", "from the first"]
    take(ledger, SECOND)
    assert listed() == []
    say(ledger, "to the second")
    send(ledger, TEAM, "claude", ["Alice"], "from the second")
    assert listed() == ["to the second", "from the second"]
