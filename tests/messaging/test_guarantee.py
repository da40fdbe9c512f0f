"""The delivery guarantee, with real ledgers and a network that loses, repeats and reorders payloads.

Four agents in two homes send, die and restart at any moment, one of them also in the other home, while the
user drops and retries messages and clocks jump. Whatever happens, nothing is typed twice, messages between
two agents are typed in order, and every accepted message is listed with its true state. Once all faults are
over, every message gets an outcome.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledgers import send
from relay.errors import LedgerError, MessageRefused
from relay.message import Message, Priority, State
from relay.messaging.envelope import Envelope, Receipt, decode, encode
from relay.messaging.inbox import InboxFull
from relay.messaging.ledger import KEEP_DAYS, Ledger
from relay.messaging.runaway import Limits
from relay.transport import topics

LONG = bool(os.environ.get("RELAY_LONG"))

TEAM = "default"
HOMES = {"Alice": "here", "Bob": "there", "Carol": "here", "Dan": "here"}  # at first: Carol moves
PAIRS = [("Alice", "Bob"), ("Bob", "Alice"), ("Alice", "Carol"), ("Bob", "Carol"), ("Alice", "Dan")]
SENDERS = ("Alice", "Bob")
TTL = 600.0
DAY = 86400.0

QUEUE = 12  # messages of a sender that wait, and for a receiver
RETRY = 5.0  # seconds until a message is resent to a receiver that is online
ROUNDS = 60  # within which every message must reach its outcome
QUIET = 60 if LONG else 6  # after so many rounds in which nothing is sent or typed, nothing will be

agents = st.sampled_from(sorted(HOMES))
pairs = st.sampled_from(PAIRS)
picks = st.integers(min_value=0, max_value=1 << 16)


@dataclass(slots=True)
class Process:
    """One agent's session: its connection to its home's ledger, and the state it keeps only in memory.

    seen: the turn of the last message of which it knows. news: the ids of all of which it knows.
    """

    ledger: Ledger
    typing: Message | None = None
    typed: bool = False
    seen: int = 0
    news: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """How a message was sent, and what happened to it that excuses a missing injection."""

    pair: tuple[str, str]
    priority: Priority
    turn: int  # its position among everything sent or released
    seen: State = State.QUEUED
    hidden: bool = False
    excuses: set[str] = field(default_factory=set)


class Network(RuleBasedStateMachine):
    """routes: who sends to whom. instead: who acts when another agent is drawn."""

    routes: ClassVar[list[tuple[str, str]]] = PAIRS
    instead: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="guarantee-")
        self.now = time.time()
        self.processes: dict[str, Process] = {}
        self.flying: list[tuple[str, str, bytes]] = []  # (to, from, payload), as in a broker
        self.records: dict[str, Record] = {}
        self.log: list[tuple[str, str]] = []  # ids, in the order given to the agents, and the agent's home
        self.turns = 0
        self.homes = dict(HOMES)
        self.copies: list[str] = []  # ids of messages within a home, as published
        self.published: set[str] = set()  # ids of messages that were in transit
        self.arrived: set[bytes] = set()  # messages that some home has got

    def teardown(self) -> None:
        try:
            if self.processes:
                self.end_all_faults()
        finally:
            for process in self.processes.values():
                process.ledger.close()
            self.folder.cleanup()

    # Possible actions and faults.

    @initialize()
    def start_everyone(self) -> None:
        for name in HOMES:
            self.start(name)
        for pair in self.routes * 2:
            self.send(pair, Priority.NORMAL, depth=0)

    @rule(pair=pairs, priority=st.sampled_from(Priority), depth=st.sampled_from([*[0] * 15, 9]))
    def send(self, pair: tuple[str, str], priority: Priority, depth: int) -> None:
        pair = pair if pair in self.routes else self.routes[0]
        if process := self.processes.get(pair[0]):
            try:
                (message,) = send(process.ledger,
                    TEAM, pair[0], [pair[1]], "hello", priority=priority, depth=depth, ttl=TTL,
                    limits=Limits(depth=8, queue=QUEUE),
                )  # fmt: skip
            except MessageRefused:
                return
            self.accepted(message)
            if pair == ("Alice", "Dan"):
                assert message.state in {State.STORED, State.HELD}, "it need not go anywhere"

    @rule(name=agents, there=st.booleans(), outcome=st.sampled_from(["taken", "refused", "dies"]))
    def publish(self, name: str, there: bool, outcome: str) -> None:
        """there: whether the receivers count as online. outcome: the broker's, or the sender's death."""
        name = self.instead.get(name, name)
        if process := self.processes.get(name):
            copies = process.ledger.transit.copies(TEAM, name)
            self.copies += [each.message.id for each in copies]
            self.flying += [(each.message.to, name, encode(each)) for each in copies]
            # A message that is published while nobody knows her home may arrive in both.
            process.ledger.transit.park(TEAM, name, lambda to, _: to != "Carol" or to in self.processes)
            parcels = process.ledger.transit.claim(
                TEAM, name, lambda receiver, attempt: RETRY if there else None, 3, self.home_of
            )
            self.flying += [(each.message.to, name, encode(each)) for each in parcels]
            self.published |= {each.message.id for each in parcels}
            if outcome == "taken":
                process.ledger.transit.sent([each.message.id for each in parcels])
            elif outcome == "dies":
                self.die(name)

    @rule(name=agents, outcome=st.sampled_from(["taken", "refused", "dies"]))
    def publish_receipts(self, name: str, outcome: str) -> None:
        name = self.instead.get(name, name)
        if process := self.processes.get(name):
            receipts = process.ledger.inbox.receipts(TEAM, name, 3)
            self.flying += [(each.sender, name, encode(each)) for each in receipts]
            if outcome == "taken":
                process.ledger.inbox.receipted(TEAM, receipts)
            elif outcome == "dies":
                self.die(name)

    @precondition(lambda self: self.flying)
    @rule(pick=picks, again=st.booleans())
    def deliver(self, pick: int, again: bool) -> None:
        """Deliver any payload in flight; if `again`, also keep it in flight."""
        place = pick % len(self.flying)
        to, sender, payload = self.flying[place]
        if to in self.processes:
            if not again:
                del self.flying[place]
            self.arrive(to, sender, payload)

    @precondition(lambda self: self.flying)
    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        """Make the broker forget a payload that it may have acknowledged."""
        to, sender, payload = self.flying.pop(pick % len(self.flying))
        item = decode(payload, topics.InboxTopic(TEAM, topics.level(to), topics.level(sender)))
        if isinstance(item, Receipt) and item.id in self.records:
            self.records[item.id].excuses.add("receipt lost")

    @rule(name=agents)
    def begin_typing(self, name: str) -> None:
        name = self.instead.get(name, name)
        process = self.processes.get(name)
        if process is None or process.typing is not None:
            return
        for message in process.ledger.inbox.waiting(TEAM, name)[:1]:
            self.look(name)
            assert message.id in process.news, "its session has not heard of it"
            process.ledger.inbox.injecting(TEAM, name, message.id)
            process.typing, process.typed = message, False

    @rule(name=agents)
    def type(self, name: str) -> None:
        name = self.instead.get(name, name)
        process = self.processes.get(name)
        if process is not None and process.typing is not None and not process.typed:
            process.typed = True
            self.log.append((process.typing.id, self.homes[name]))

    @rule(name=agents, doubt=st.booleans())
    def settle(self, name: str, doubt: bool) -> None:
        """Settle the text: if typed, as confirmed or in doubt; otherwise it waits again or is rejected."""
        name = self.instead.get(name, name)
        process = self.processes.get(name)
        if process is None or process.typing is None:
            return
        message, process.typing = process.typing, None
        if process.typed:
            state = State.UNCERTAIN if doubt else State.INJECTED
        else:
            state = State.REJECTED if doubt else State.STORED
        if doubt:
            self.records[message.id].excuses.add(str(state))
        process.ledger.inbox.settle(TEAM, name, message.id, state)

    @rule(name=agents, again=st.booleans())
    def work(self, name: str, again: bool) -> None:
        """Let everything work for a while; if `again`, the broker will repeat everything."""
        name = self.instead.get(name, name)
        self.start(name)
        self.work_on_mail(name)
        if not again:
            self.flying = [each for each in self.flying if each[0] != name or name not in self.processes]
        for _ in range(3):
            self.begin_typing(name)
            self.type(name)
            self.settle(name, doubt=False)
        self.publish(name, there=True, outcome="taken")
        self.publish_receipts(name, outcome="taken")

    @rule(name=agents)
    def die(self, name: str) -> None:
        name = self.instead.get(name, name)
        if process := self.processes.pop(name, None):
            if process.typing is not None:
                self.records[process.typing.id].excuses.add("died while typing")
            process.ledger.close()

    @rule(name=agents, typed=st.booleans())
    def die_while_typing(self, name: str, typed: bool) -> None:
        name = self.instead.get(name, name)
        self.work_on_mail(name)
        self.begin_typing(name)
        if typed:
            self.type(name)
        self.die(name)
        self.start(name)

    @rule(name=agents)
    def start(self, name: str) -> None:
        """Do what a session does when it starts."""
        name = self.instead.get(name, name)
        if name in self.processes:
            return
        ledger = Ledger(Path(self.folder.name) / f"{self.homes[name]}.db", clock=lambda: self.now)
        self.processes[name] = Process(ledger)
        ledger.arrive(TEAM, name)
        ledger.inbox.recover(TEAM, name)
        ledger.prune()
        ledger.transit.resume(TEAM, name)

    @rule(name=agents)
    def prune(self, name: str) -> None:
        name = self.instead.get(name, name)
        if process := self.processes.get(name):
            process.ledger.prune()

    @rule(pair=pairs)
    def notice_receiver(self, pair: tuple[str, str]) -> None:
        """Let the sender notice that the receiver is online, and where."""
        pair = pair if pair in self.routes else self.routes[0]
        sender, receiver = pair
        process, home = self.processes.get(sender), self.home_of(receiver)
        if process and home and home != process.ledger.origin:
            process.ledger.move_away(TEAM, receiver, home)

    @rule(name=agents)
    def notice_deaths(self, name: str) -> None:
        """Let a session mark what dead sessions of its home were typing."""
        name = self.instead.get(name, name)
        if process := self.processes.get(name):
            for each in process.ledger.inbox.begun(TEAM):
                if self.home_of(each) != process.ledger.origin:
                    process.ledger.inbox.recover(TEAM, each)

    @rule(back=st.booleans(), typing=st.booleans(), noticed=st.booleans())
    def move(self, back: bool, typing: bool, noticed: bool) -> None:
        """Let Carol go on in the other home; if `back`, she returns before anybody has noticed.

        A message that may be in the home that she leaves is for her there.
        """
        if typing:
            self.begin_typing("Carol")
            self.type("Carol")
        self.die("Carol")
        for _ in range(1 + back):
            left = self.homes["Carol"]
            with Ledger(Path(self.folder.name) / f"{left}.db", clock=lambda: self.now) as ledger:
                query = "SELECT id FROM messages WHERE to_key = 'carol' AND here AND told IS NULL"
                stays = {id for (id,) in ledger.rows(query)}
            for id, record in self.records.items():
                if record.pair[1] == "Carol" and (id in stays or id in self.published):
                    record.excuses.add("moved")
            # A broker may redeliver a message for any home of hers, but not to two of them.
            self.flying = [each for each in self.flying if each[0] != "Carol" or each[2] not in self.arrived]
            self.homes["Carol"] = "there" if left == "here" else "here"
            self.start("Carol")
            if back:
                self.die("Carol")
        self.start("Carol")
        if noticed:
            for pair in self.routes:
                self.notice_receiver(pair)

    @rule(seconds=st.sampled_from([*[1.0, RETRY] * 8, TTL / 2, TTL, -3600.0, DAY, (KEEP_DAYS + 1) * DAY]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass or jump, even back, as after booting with a wrong clock."""
        self.now += seconds
        self.expire()

    @precondition(lambda self: self.records)
    @rule(pick=picks, action=st.sampled_from(["drop", "retry", "release"]))
    def user(self, pick: int, action: str) -> None:
        id = list(self.records)[pick % len(self.records)]  # ids are random, their order is not
        record = self.records[id]
        process = self.processes.get(record.pair[0])
        if process is None:
            return
        ledger = process.ledger
        try:
            if action == "drop":
                record.hidden |= ledger.drop(id).state.final
                record.excuses.add("dropped")
            elif action == "retry":
                again = ledger.retry(id)
                if again.id != id:
                    self.accepted(again)
            else:
                for message in ledger.outbox.release([id]):
                    self.records[message.id].turn = self.next_turn()
        except LedgerError:
            assert not self.can_expect(ledger, id, action)

    # Invariants.

    @invariant()
    def nothing_is_typed_twice(self) -> None:
        assert len({id for id, _ in self.log}) == len(self.log)

    @invariant()
    def copies_are_published_once(self) -> None:
        assert len(set(self.copies)) == len(self.copies)

    @invariant()
    def order_is_kept(self) -> None:
        """What Carol did not get in one home is for her there, whenever she is back."""
        streams: dict[object, int] = {}
        for id, home in self.log:
            record = self.records[id]
            stream = (record.pair, record.priority, home)
            assert streams.get(stream, 0) < record.turn, "it overtook an earlier one"
            streams[stream] = record.turn

    @invariant()
    def every_message_is_listed_with_its_true_state(self) -> None:
        for name in SENDERS:
            sharing = [each for other, each in self.processes.items() if self.homes[other] == HOMES[name]]
            for process in sharing[:1]:  # the user sees it even if its sender is offline
                shown = {entry.message.id: entry.message for entry in process.ledger.messages(sender=name)}
                for id, record in self.records.items():
                    if record.pair[0] == name:
                        self.check(id, record, shown.get(id))

    def check(self, id: str, record: Record, message: Message | None) -> None:
        if message is None:
            assert record.hidden or record.seen.final, "it is not listed"
            record.excuses.add("forgotten")
            return
        typed = self.typed(id)
        assert message.state is not State.INJECTED or typed, "it is listed as injected but was not typed"
        assert message.state is not State.REJECTED or not typed, "it is listed as rejected but was typed"
        assert message.state is not State.HELD or record.seen in {State.HELD, State.QUEUED}
        if (message.detail or "").startswith("it came again"):
            record.excuses.add("forgotten")  # and a copy has arrived since
        if record.seen in {State.INJECTED, State.REJECTED} and "forgotten" not in record.excuses:
            assert message.state is record.seen, "a final state has changed"
        if message.state is State.EXPIRED:
            record.excuses.add("expired")
        if (message.detail or "").startswith("it had arrived, but"):
            record.excuses.add("unreported")  # as time jumped over all reports
        record.seen = message.state

    # Helpers.

    def work_on_mail(self, name: str) -> None:
        """Deliver everything in flight to `name`, and keep it in flight."""
        for to, sender, payload in self.flying:
            if to == name and name in self.processes:
                self.arrive(to, sender, payload)

    def accepted(self, message: Message) -> None:
        self.records[message.id] = Record((message.sender, message.to), message.priority, self.next_turn())

    def typed(self, id: str) -> int:
        return [each for each, _ in self.log].count(id)

    def look(self, name: str) -> None:
        """Let `name` see what has arrived, as its session does after each commit of which it hears."""
        process = self.processes[name]
        for turn, message in process.ledger.inbox.arrived(TEAM, name, process.seen):
            assert turn > process.seen
            process.seen = turn
            process.news.append(message.id)
        assert len({*process.news}) == len(process.news), "it is news twice"

    def next_turn(self) -> int:
        self.turns += 1
        return self.turns

    def home_of(self, name: str) -> str | None:
        return self.processes[name].ledger.origin if name in self.processes else None

    def arrive(self, to: str, sender: str, payload: bytes) -> None:
        ledger = self.processes[to].ledger
        item = decode(payload, topics.InboxTopic(TEAM, topics.level(to), topics.level(sender)))
        if isinstance(item, Envelope):
            if item.sequence > 0:
                if item.home is None:
                    self.arrived.add(payload)
                with contextlib.suppress(InboxFull):
                    ledger.inbox.store(TEAM, item, QUEUE)
            self.look(to)
        else:
            ledger.transit.receipt(TEAM, item)
            ledger.outbox.outcomes(TEAM, to)

    def expire(self) -> None:
        for process in self.processes.values():
            process.ledger.outbox.expire()

    def can_expect(self, ledger: Ledger, id: str, action: str) -> bool:
        """Return whether the user may expect `action` to work on a message; some action always does."""
        shown = {entry.message.id: entry.message for entry in ledger.messages()}
        if id not in shown:
            return False
        being_typed = any(each.typing and each.typing.id == id for each in self.processes.values())
        state = shown[id].state
        if action == "drop":
            # A message whose session died while typing it becomes uncertain once its receiver is back there.
            left = ledger.rows("SELECT 1 FROM messages WHERE id = ? AND injecting AND state = 'stored'", id)
            receiver = self.home_of(self.records[id].pair[1])
            return not being_typed and receiver is not None and (receiver == ledger.origin or not left)
        return state not in {State.STORED, State.HELD}

    def end_all_faults(self) -> None:
        """End all faults: everyone is online, everything arrives, and every agent is ready."""
        for name in HOMES:
            self.start(name)
        for name in HOMES:
            self.settle(name, doubt=False)
        for pair in self.routes:
            self.notice_receiver(pair)
        for name in HOMES:
            self.notice_deaths(name)
        quiet = 0
        for _ in range(ROUNDS):
            self.now += RETRY
            self.expire()
            typed = len(self.log)
            for name, process in self.processes.items():
                while self.step(name, process):
                    pass
            flying, self.flying = self.flying, []
            quiet = 0 if flying or len(self.log) > typed else quiet + 1
            if quiet == QUIET:
                break
            for payload in flying:
                self.arrive(*payload)
        self.nothing_is_typed_twice()
        self.order_is_kept()
        self.copies_are_published_once()
        self.every_message_is_listed_with_its_true_state()
        for id, record in self.records.items():
            self.check_outcome(id, record)

    def step(self, name: str, process: Process) -> bool:
        """Let `name` take one step; return whether it typed a message."""
        self.begin_typing(name)
        typing = process.typing is not None
        self.type(name)
        self.settle(name, doubt=False)
        self.publish_receipts(name, "taken")
        self.publish(name, True, "taken")
        return typing

    def check_outcome(self, id: str, record: Record) -> None:
        typed = self.typed(id)
        match record.seen:
            case State.INJECTED:
                assert typed == 1
            case State.HELD:
                pass
            case State.UNCERTAIN | State.REJECTED | State.EXPIRED:
                assert record.excuses, f"it is {record.seen} without a cause"
                unreported = {"receipt lost", "forgotten", "moved"} & record.excuses
                assert record.seen is State.UNCERTAIN or not typed or unreported
            case State.STORED:
                assert {"receipt lost", "moved"} & record.excuses, "it stays stored forever"
            case _:
                raise AssertionError(f"it stays {record.seen} forever")


class Moving(Network):
    """Most happens between Alice and Carol, who moves."""

    routes: ClassVar = [("Alice", "Carol")] * 4
    instead: ClassVar = {"Bob": "Carol", "Dan": "Alice"}


def _profile() -> settings:
    """Return settings for a few seconds; RELAY_LONG=1 runs for minutes, with new examples each time."""
    return settings(
        max_examples=3000 if LONG else 25,
        stateful_step_count=60,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


pytestmark = pytest.mark.timeout(3600 if LONG else 120)

TestGuarantee: Callable[[], None] = Network.TestCase
TestGuarantee.settings = _profile()  # type: ignore[attr-defined]
TestMoving: Callable[[], None] = Moving.TestCase
TestMoving.settings = _profile()  # type: ignore[attr-defined]
