"""What waits for the user, as the ledger keeps it: the list, what is read and done, and what sinks get."""

from __future__ import annotations

from pathlib import Path

import pytest
from clocks import Clock

from ledgers import send
from relay import names
from relay.errors import NoSuchMessage
from relay.message import State
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.messaging.user_inbox import (
    ATTEMPTS,
    LEASE,
    NOTICE_DAYS,
    NOTICES,
    ORDER,
    RATE,
    RATE_SECONDS,
    SAME,
    SETTLES,
    Item,
    number_of_unread,
)

TEAM = "default"


def shown(ledger: Ledger, team: str | None = None) -> list[tuple[str, str]]:
    return [(item.kind, item.text) for item in ledger.user_inbox.items(team)]


def only(ledger: Ledger) -> Item:
    (item,) = ledger.user_inbox.items()
    return item


def add(ledger: Ledger, kind: str, text: str = "text", name: str = "Bob", **more: object) -> None:
    ledger.user_inbox.add(TEAM, name, kind, text, **more)  # type: ignore[arg-type]


def test_the_most_urgent_come_first_and_of_each_kind_the_oldest(ledger: Ledger, clock: Clock) -> None:
    kinds = [kind for kind in ORDER if kind not in {"runaway", "message", "undelivered"}]
    for kind in reversed(kinds):
        for name in ("Bob", "Ann"):
            add(ledger, kind, name, name)
            clock.now += 1
    found = [(item.kind, item.name) for item in ledger.user_inbox.items()]
    assert found == [(kind, name) for kind in kinds for name in ("Bob", "Ann")]


def test_messages_are_items_until_they_are_read(ledger: Ledger, tmp_path: Path) -> None:
    """C8: not dropped ones, nor those to agents; of one team or of all."""
    one, two, dropped, elsewhere = (
        send(ledger, team, "Alice", [names.PERSON], "hi")[0] for team in (TEAM, TEAM, TEAM, "other")
    )
    send(ledger, TEAM, "Alice", ["Bob"], "hi")
    ledger.drop(dropped.id)
    inbox = ledger.user_inbox
    inbox.read(inbox.find(one.id))
    assert {item.id for item in inbox.items()} == {two.id, elsewhere.id}
    assert [item.id for item in inbox.items(TEAM.upper())] == [two.id]
    assert ledger.find(one.id).message.state is State.READ
    assert (number_of_unread(ledger.path), number_of_unread(ledger.path, TEAM.upper())) == (2, 1)
    assert number_of_unread(tmp_path / "none") == 0


def test_unread_items_are_counted_without_reading_all_messages(ledger: Ledger) -> None:
    plan = ledger.rows("EXPLAIN QUERY PLAN SELECT count(*) FROM inbox WHERE NOT read")
    steps = [step for *_, step in plan if " messages" in step or " items" in step]
    assert len(steps) == 4 and all("USING INDEX" in step for step in steps), steps


def test_a_mistake_of_several_agents_is_one_item(ledger: Ledger) -> None:
    for name in ("Bob", "Ann"):
        add(ledger, "configuration", "a mistake", name)
    item = only(ledger)
    assert {*item.name.split(", ")} == {"Ann", "Bob"} and item.next.split()[-1] in {"Ann", "Bob"}
    assert item.title == f"{item.name} have a mistake in their configuration"
    ledger.user_inbox.end(TEAM, "Bob", "configuration")
    assert only(ledger).name == "Ann" and only(ledger).title == "Ann has a mistake in its configuration"
    add(ledger, "configuration", "a mistake", "Bob")
    ledger.user_inbox.done(only(ledger))
    assert shown(ledger) == []


def test_a_new_question_replaces_the_last_one(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "Run make?")
    add(ledger, "question", "Run ls?", name="Ann")
    clock.now += 1
    add(ledger, "question", "Delete it?")
    assert shown(ledger) == [("question", "Run ls?"), ("question", "Delete it?")]


def test_what_is_added_again_soon_is_the_same_item(ledger: Ledger, clock: Clock) -> None:
    """A dialog is redrawn, and a session that takes over adds what still waits: neither is news."""
    add(ledger, "question")
    first = only(ledger)
    ledger.user_inbox.read(first)
    ledger.user_inbox.end(TEAM, "Bob", "question")
    assert shown(ledger) == []
    clock.now += SAME - 1
    add(ledger, "question")
    assert (only(ledger).id, only(ledger).read) == (first.id, True)
    ledger.user_inbox.end(TEAM, "bob", "question")
    clock.now += SAME + 1
    add(ledger, "question")
    assert (only(ledger).id != first.id, only(ledger).read) == (True, False)


def test_the_question_of_a_new_agent_is_a_new_item(ledger: Ledger) -> None:
    for begins in (False, True):
        add(ledger, "question")
        before = only(ledger)
        ledger.user_inbox.begin(TEAM, "Bob", begins=begins)
        assert shown(ledger) == []
        add(ledger, "question")
        assert (only(ledger).id != before.id) == begins


def test_ending_a_kind_leaves_the_others(ledger: Ledger) -> None:
    for kind, text in (("question", "a"), ("configuration", "b"), ("configuration", "c"), ("notice", "d")):
        add(ledger, kind, text)
    add(ledger, "question", "of another", name="Ann")
    ledger.user_inbox.end(TEAM, "BOB", "configuration", "b")
    assert ("configuration", "c") in shown(ledger) and ("configuration", "b") not in shown(ledger)
    ledger.user_inbox.end(TEAM, "Bob", "configuration")
    assert ("configuration", "c") not in shown(ledger) and ("notice", "d") in shown(ledger)


@pytest.mark.parametrize("begins", [False, True])
def test_a_session_begins_with_the_notices_and_escalations_of_the_last(ledger: Ledger, begins: bool) -> None:
    """Another run of the agent begins without its escalation."""
    for kind in ("question", "held", "configuration", "escalation", "notice"):
        add(ledger, kind, kind)
    ledger.user_inbox.begin(TEAM, "Bob", begins=begins)
    stay = [("notice", "notice")] if begins else [("escalation", "escalation"), ("notice", "notice")]
    assert shown(ledger) == stay


def test_items_of_a_dead_agent_end_except_how_it_failed(ledger: Ledger, clock: Clock) -> None:
    for kind in ("question", "held", "escalation", "configuration", "failed", "notice"):
        add(ledger, kind, name="Dead")
    add(ledger, "question", name="Alive")
    ledger.user_inbox.settle(lambda team, name: (team, name) == (TEAM, "alive"))
    found = {(item.kind, item.name) for item in ledger.user_inbox.items()}
    assert found == {("question", "Alive"), ("failed", "Dead"), ("notice", "Dead")}


def test_an_item_ends_when_it_is_no_longer_news(ledger: Ledger, clock: Clock) -> None:
    """C12."""
    add(ledger, "failed", lasts=600.0)
    clock.now += 599
    ledger.user_inbox.settle(lambda team, name: False)
    assert shown(ledger)
    clock.now += 2
    ledger.user_inbox.settle(lambda team, name: False)
    assert not shown(ledger)
    clock.now += (NOTICE_DAYS + 1) * 86400
    ledger.user_inbox.settle(lambda team, name: False)
    assert ledger.rows("SELECT count(*) FROM items") == [(0,)]


def test_only_the_newest_notices_of_an_agent_wait(ledger: Ledger) -> None:
    for number in range(NOTICES + 5):
        add(ledger, "notice", str(number))
    add(ledger, "notice", "another's", name="Ann")
    assert {text for _, text in shown(ledger)} == {*map(str, range(5, NOTICES + 5)), "another's"}


def test_held_messages_are_one_item_until_they_are_released(ledger: Ledger) -> None:
    """Reading them releases nothing."""
    for _ in range(3):
        send(ledger, TEAM, "Bob", ["Ann"], "hi", depth=9, limits=Limits(depth=8))
    item = only(ledger)
    assert (item.kind, item.name, item.text) == ("runaway", "Bob", "3 messages held")
    assert item.next == "relay release --from Bob"
    ledger.user_inbox.done(item)
    assert only(ledger).read and number_of_unread(ledger.path) == 0
    send(ledger, TEAM, "Bob", ["Ann"], "hi", depth=9, limits=Limits(depth=8))
    assert number_of_unread(ledger.path) == 1
    for id in ledger.held():
        ledger.drop(id)
    assert shown(ledger) == []


def expired(ledger: Ledger, clock: Clock, sender: str = "Ann", number: int = 1) -> list[str]:
    sent = [send(ledger, TEAM, sender, ["Bob"], "hi", ttl=5)[0].id for _ in range(number)]
    clock.now += 6
    ledger.outbox.expire()
    return sent


def test_messages_that_did_not_arrive_wait_until_they_are_seen(ledger: Ledger, clock: Clock) -> None:
    (id,) = expired(ledger, clock)
    item = only(ledger)
    assert (item.kind, item.name, item.next) == ("undelivered", "Ann", f"relay retry {id[:8]}")
    assert item.text.startswith("1 message did not reach Bob: ")
    ledger.user_inbox.read(item)
    assert shown(ledger) == []
    assert len(expired(ledger, clock, number=2)) == 2
    assert only(ledger).next == "relay messages --from Ann --to Bob"
    ledger.user_inbox.done(only(ledger))
    assert shown(ledger) == []


@pytest.mark.parametrize("deal", [Ledger.retry, Ledger.drop])
def test_a_message_that_was_dealt_with_no_longer_waits(ledger: Ledger, clock: Clock, deal: object) -> None:
    (id,) = expired(ledger, clock)
    deal(ledger, id)  # type: ignore[operator]
    assert shown(ledger) == []


def test_a_dropped_message_is_no_news(ledger: Ledger) -> None:
    (message,) = send(ledger, TEAM, "Ann", ["Bob"], "hi")
    ledger.drop(message.id)
    assert ledger.find(message.id).message.state.final and shown(ledger) == []


def test_an_item_is_found_by_the_beginning_of_its_id(ledger: Ledger) -> None:
    add(ledger, "question")
    add(ledger, "notice")
    for item in ledger.user_inbox.items():
        assert ledger.user_inbox.find(item.id[:6]) == item
    for wrong in ("", "zz"):
        with pytest.raises(NoSuchMessage):
            ledger.user_inbox.find(wrong)


def push(ledger: Ledger, sink: str = "ntfy", agent: tuple[str, str] | None = None) -> str:
    item = ledger.user_inbox.next_push(sink, agent)
    return "" if item is None else item.text


def test_each_sink_gets_each_item_once(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "one")
    assert push(ledger) == "", "its user may deal with it at once"
    clock.now += SETTLES
    assert [push(ledger), push(ledger)] == ["one", ""]
    ledger.user_inbox.pushed(only(ledger).id, "ntfy", succeeded=True)
    clock.now += 10 * LEASE
    assert push(ledger) == ""
    assert push(ledger, "webhook") == "one"


def test_sinks_get_nothing_that_is_read_over_or_quiet(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "read")
    ledger.user_inbox.read(only(ledger))
    add(ledger, "notice", "quiet", quiet=True)
    add(ledger, "configuration", "over")
    ledger.user_inbox.end(TEAM, "Bob", "configuration")
    expired(ledger, clock)  # its sender, an agent, was told
    clock.now += SETTLES
    assert push(ledger) == ""
    expired(ledger, clock, sender=names.PERSON)
    assert push(ledger).startswith("1 message did not reach Bob")


def test_a_failed_push_is_repeated_and_given_up(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "one")
    for attempt in range(ATTEMPTS):
        clock.now += 1800.0
        assert push(ledger) == "one", attempt
        ledger.user_inbox.pushed(only(ledger).id, "ntfy", succeeded=False)
        assert push(ledger) == "", "not at once"
    clock.now += 86400.0
    assert push(ledger) == ""


def test_a_push_whose_session_died_is_repeated(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "one")
    clock.now += SETTLES
    assert push(ledger) == "one"
    clock.now += LEASE - 1
    assert push(ledger) == ""
    clock.now += 1
    assert push(ledger) == "one"


def test_a_sink_gets_a_limited_number_of_items_in_a_minute(ledger: Ledger, clock: Clock) -> None:
    for number in range(RATE + 2):
        add(ledger, "configuration", str(number))
    clock.now += SETTLES

    def pushes() -> int:
        done = 0
        while (item := ledger.user_inbox.next_push("ntfy")) is not None:
            ledger.user_inbox.pushed(item.id, "ntfy", succeeded=True)
            done += 1
        return done

    assert (pushes(), pushes()) == (RATE, 0)
    clock.now += RATE_SECONDS + 1
    assert pushes() == 2


def test_a_desktop_gets_the_items_of_one_agent(ledger: Ledger, clock: Clock) -> None:
    add(ledger, "question", "Bob's")
    add(ledger, "question", "Ann's", name="Ann")
    clock.now += SETTLES
    assert push(ledger, "desktop", ("Default", "ann")) == "Ann's"
    assert push(ledger, "desktop", (TEAM, "Ann")) == ""
