"""With kill -9 at every named step of the protocol, each message is typed once, or its state is accurate."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from failpoints import (
    INJECTED,
    POINTS,
    READERS,
    RECEIVING,
    SENDING,
    STARTING,
    TEAM,
    TRANSACTIONS,
    UNCERTAIN_OUTCOMES,
    Actor,
    Failpoint,
    Outcome,
    Point,
    When,
    change,
    everybody_away,
    far_url,
    nobody_present,
    run_and_die,
)

from ledgers import post, send
from relay import names
from relay.home import Home
from relay.message import Message, State
from relay.messaging.channels import CATCH_UP
from relay.messaging.envelope import Receipt
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.runaway import Limits
from support import LONG, wait_until

SECONDS = 60.0
"""Seconds after which a test considers the program broken."""

BODIES = ["first", "second", "third"]

PLACES = ["one home", "two homes"]

ONLY_IN = {
    "_launch": "one home",
    "_reload": "two homes",
    **dict.fromkeys(("Transit.claim", "Transit.sent", "Transit.receipt"), "two homes"),
    **dict.fromkeys(("Inbox.store", "MqttTransport.publish of a receipt", "Inbox.receipted"), "two homes"),
    "MqttTransport.publish of a message": "two homes",
    "MqttTransport.send": "one home",
}
"""The broker of two homes is already running; that of one home knows every agent when it starts. Within a
home no message is in transit."""

PAIRS = ["it and the broker", "both agents", "all three"]


def sweep(points: list[Point]) -> list[tuple[str, Point, When]]:
    """Return each step before and after it in each place, in `make test-long`; otherwise after it, in turn.

    Who dies before a step has done what it has done after the last one: only the first step differs, and one
    that only a second start reaches.
    """
    found = []
    for number, (point, when) in enumerate(itertools.product(points, When)):
        places = [place for place in PLACES if place == ONLY_IN.get(point.name, place)]
        if LONG:
            found += [(place, point, when) for place in places]
        elif when is When.AFTER or point is points[0] or point.first_dies_at:
            found.append((places[number // len(When) % len(places)], point, when))
    return found


def named(value: object) -> str:
    return value.name if isinstance(value, Point) else str(value)


class Stage:
    """Alice, in `home`, has messages for Bob, who may be in another home; both die and restart."""

    def __init__(self, home: Home, far: Home | None) -> None:
        self.home = home
        self.far = far
        self.alice = Actor(home, "Alice")
        self.bob = Actor(far or home, "Bob")
        self.sending = False  # Alice sends the messages, and was not killed since
        self.ledger = Ledger(home.ledger)
        for name in ("Alice", "Bob"):
            self.ledger.registry.register(TEAM, name, here=far is None or name == "Alice")
        if far is not None:
            self.bob.url = far_url(home, "Bob")

    def kill_at(self, point: Point, when: When, also: tuple[Path, ...] = ()) -> None:
        """Kill the process that takes this step, and those in `also`."""
        dying = self.bob if point in RECEIVING else self.alice
        if point.first_dies_at is not None:
            self.kill(dying, point.first_dies_at)
        self.kill(dying, Failpoint(point, when, also=also))

    def close(self) -> None:
        self.alice.stop()
        self.bob.stop()
        self.ledger.close()

    def kill(self, actor: Actor, failpoint: Failpoint) -> None:
        """Start `actor` so that it dies at `failpoint`, and everything needed for it to get there."""
        other = self.bob if actor is self.alice else self.alice
        actor.start(failpoint)
        if failpoint.point not in STARTING and other._process is None:
            other.start(listens=failpoint.point.name != "Transit.appeared")
        if not self.messages():
            self.send()
        assert actor.join(SECONDS), f"{actor.name} never reached {failpoint.point.name}"
        for each in (self.alice, self.bob):
            if each is actor or each.pid_file in failpoint.also:
                each.stop()  # the other one may have been started just after this one died
                self.sending = self.sending and each is not self.alice

    def restart(self) -> None:
        """Restart what has died, and resend what was not accepted."""
        for actor in (self.alice, self.bob):
            if actor._process is None:
                actor.start()
        if not self.messages():
            self.send()

    def send(self) -> None:
        self.sending = True
        self.alice.send("Bob", BODIES)

    def messages(self) -> list[Message]:
        return [entry.message for entry in self.ledger.messages()]

    def typed(self) -> list[str]:
        """Return the ids of the messages typed into Bob's agent, in order."""
        log = self.bob.log
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each message, in the order of sending, once nothing is in flight."""
        wait_until(
            lambda: (
                len(self.messages()) >= (len(BODIES) if self.sending else 1)
                and all(message.state.final for message in self.messages())
            ),
            SECONDS,
            lambda: f"{self.messages()} {self.typed()}",
        )
        messages, typed = self.messages(), self.typed()
        # In order, and nothing that was not sent.
        assert typed == [message.id for message in messages if message.id in typed]
        ids = [message.id for message in messages]
        assert [message.body for message in messages] == BODIES[: len(messages)]
        if self.alice.accepted.exists():
            assert {*self.alice.accepted.read_text().split()} <= {*ids}
        return [Outcome(message.state, typed.count(message.id)) for message in messages]


@pytest.fixture
def far(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()


@pytest.fixture
def stage(home: Home, far: Home, request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(home, far if request.param == "two homes" else None)
    yield made
    made.close()


def test_every_step_that_writes_has_a_failpoint(tmp_path: Path) -> None:
    """A new step of the protocol needs a failpoint in POINTS."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        found = (type(part) for part in vars(ledger).values())
        parts = {part for part in found if part.__module__.startswith("relay.messaging.")} | {Ledger}
    steps = {
        f"{part.__module__}:{part.__qualname__}.{name}": method
        for part in parts
        for name, method in vars(part).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    modules = {target.partition(":")[0] for target in steps}
    named = {point.target for point in POINTS if point.target.partition(":")[0] in modules}
    assert set(steps) == named | READERS
    assert not named & READERS
    for target in READERS:
        assert "transaction(" not in inspect.getsource(steps[target]), f"{target} changes something"


@pytest.mark.parametrize(
    ("stage", "point", "when"),
    [*sweep(STARTING), *sweep(SENDING), *sweep(RECEIVING)],
    indirect=["stage"],
    ids=named,
)
def test_a_kill_at_any_step_loses_and_duplicates_nothing(stage: Stage, point: Point, when: When) -> None:
    """R88: only the message being typed is uncertain; everything else arrives once, in order."""
    stage.kill_at(point, when)
    stage.restart()
    first, *others = stage.outcomes()
    expected = point.before if when is When.BEFORE else point.after
    assert first == expected or expected is None
    other_outcomes = [outcome for outcome in others if outcome != INJECTED]
    if point in RECEIVING and expected == INJECTED:  # it may have been typing the next one
        assert len(other_outcomes) <= 1 and {*other_outcomes} <= UNCERTAIN_OUTCOMES
    else:
        assert other_outcomes == []


def pairs_to_kill() -> list[tuple[str, Point, When, str]]:
    """Return each step with every pair in `make test-long`; otherwise each step once, the rest in turn."""
    points = [*SENDING, *RECEIVING]
    if LONG:
        return [(*each, pair) for each in sweep(points) for pair in PAIRS]
    turns = zip(points, itertools.cycle(When), itertools.cycle(PAIRS), strict=False)
    return [(ONLY_IN.get(turn[0].name, "two homes"), *turn) for turn in turns]


@pytest.mark.parametrize(("stage", "point", "when", "pair"), pairs_to_kill(), indirect=["stage"], ids=named)
def test_killing_any_two_at_any_step_loses_and_duplicates_nothing(
    stage: Stage, point: Point, when: When, pair: str
) -> None:
    """The processes of `pair` die when one of them, or a third one, takes the step."""
    other = stage.alice if point in RECEIVING else stage.bob
    also = []
    if pair != "both agents":
        also.append(stage.home.broker / "endpoint.json")
    if pair != "it and the broker":
        also.append(other.pid_file)
    stage.kill_at(point, when, tuple(also))
    stage.restart()
    # The other process may have been at any step.
    assert all(outcome == INJECTED or outcome in UNCERTAIN_OUTCOMES for outcome in stage.outcomes())


PUBLISHING = [
    point
    for point in SENDING
    if point.name.split(".")[-1].split()[0] in {"claim", "publish", "sent", "receipt"}
]


@pytest.mark.parametrize(
    ("point", "when"), [(point, when) for _, point, when in sweep(PUBLISHING)], ids=named
)
def test_a_session_that_publishes_for_another_can_be_killed_at_any_step(
    home: Home, far: Home, point: Point, when: When
) -> None:
    """The user has no session: Alice's session publishes the user's messages."""
    stage = Stage(home, far)
    try:
        for body in BODIES:
            post(stage.ledger, TEAM, names.PERSON, "Bob", body)
        stage.bob.start()
        stage.alice.start(Failpoint(point, when))
        assert stage.alice.join(SECONDS), f"never reached {point.name}"
        stage.alice.stop()
        stage.alice.start()
        assert stage.outcomes() == [INJECTED] * len(BODIES)
    finally:
        stage.close()


def contents(path: Path) -> list[str]:
    """Return the contents of the ledger, except its clock, which every process advances."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [row for row in db.iterdump() if not row.startswith('INSERT INTO "meta"')]


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Callable[..., None]]]:
    """Return a ledger in which each of TRANSACTIONS changes something, and these by name."""
    path = tmp_path_factory.mktemp("transactions") / "ledger.db"
    with Ledger(path) as ledger:
        (sent,) = send(ledger, TEAM, names.PERSON, ["Bob"], "hello")
        (message,) = send(ledger, TEAM, "Alice", [names.PERSON], "hello")
        (held,) = send(ledger, TEAM, "Alice", ["Bob"], "hello", depth=9, limits=Limits(depth=8))
        for _ in range(CATCH_UP + 1):
            send(ledger, TEAM, "Alice", ["Carol"], "hello", channel="all")
        ledger.transit.claim(TEAM, "Alice", lambda receiver, attempt: None, CATCH_UP + 1)
        ledger.channels.join(TEAM, "all", "Carol")
        ledger.owners.take(TEAM, "Dan", Owner.of_run("1"))
        for _ in range(2):
            send(ledger, TEAM, "Alice", ["Dan"], "hello")
        ledger.registry.register(TEAM, "Frank", here=True)
        send(ledger, TEAM, "Alice", ["Frank"], "hello")
        (far,) = send(ledger, TEAM, "Alice", ["Eve"], "hello")
        ledger.transit.receipt(TEAM, Receipt(far.id, "Eve", "Alice", State.STORED))
        ledger.write("UPDATE messages SET ask = 0 WHERE id = ?", far.id)
        inbox = ledger.user_inbox
        inbox.add(TEAM, "Ann", "question", "Which one?")
        pushed = inbox.next_push("ntfy", settled=True)
        assert pushed is not None
        read, question = inbox.find(message.id), inbox.find(pushed.id)
    return path, {
        "Ledger.retry": partial(change, "retry", sent.id),
        "Ledger.drop": partial(change, "drop", sent.id),
        "Outbox.release": partial(change, "outbox.release", [held.id]),
        "Ledger.move_away": partial(change, "move_away", TEAM, "Frank"),
        "Transit.begin": partial(change, "transit.begin", TEAM, "Frank"),
        "Transit.end": partial(change, "transit.end", TEAM, "Bob"),
        "Transit.park": partial(change, "transit.park", TEAM, names.PERSON, nobody_present),
        "Transit.ask": partial(change, "transit.ask", TEAM, "Alice", str),
        "Transit.hindered": partial(change, "transit.hindered", TEAM, names.PERSON, "the broker is away"),
        "ChannelRegistry.join": partial(change, "channels.join", TEAM, "some", "Carol"),
        "ChannelRegistry.leave": partial(change, "channels.leave", TEAM, "all", "Carol"),
        "ChannelRegistry.heard": partial(change, "channels.heard", TEAM, "Carol", ["some"]),
        "ChannelRegistry.limit": partial(change, "channels.limit", TEAM, everybody_away),
        "NameOwners.end": partial(change, "owners.end", TEAM, "Dan", "run/1"),
        "NameOwners.end_gone": partial(change, "owners.end_gone", nobody_present),
        "UserInbox.add": partial(change, "user_inbox.add", TEAM, "Ann", "failed", "It has failed."),
        "UserInbox.begin": partial(change, "user_inbox.begin", TEAM, "Ann", begins=False),
        "UserInbox.end": partial(change, "user_inbox.end", TEAM, "Ann", "question"),
        "UserInbox.settle": partial(change, "user_inbox.settle", nobody_present),
        "UserInbox.read": partial(change, "user_inbox.read", read),
        "UserInbox.done": partial(change, "user_inbox.done", question),
        "UserInbox.next_push": partial(change, "user_inbox.next_push", "desktop", settled=True),
        "UserInbox.pushed": partial(change, "user_inbox.pushed", pushed.id, "ntfy", succeeded=True),
    }


@pytest.mark.parametrize("when", When if LONG else [When.AFTER])
@pytest.mark.parametrize("point", TRANSACTIONS, ids=lambda point: point.name)
def test_a_killed_transaction_happens_completely_or_not_at_all(
    tmp_path: Path, transactions: tuple[Path, dict[str, Callable[..., None]]], point: Point, when: When
) -> None:
    """R88: and a transaction that did not happen can be repeated."""
    template, changes = transactions
    path = Path(shutil.copy(template, tmp_path))
    action = partial(changes[point.name], path=path)
    before = contents(path)
    run_and_die(Failpoint(point, when), action)
    assert (contents(path) != before) is (when is When.AFTER)
    if when is When.BEFORE:
        action()
        assert contents(path) != before
