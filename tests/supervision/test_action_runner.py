"""Responses to incidents, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from relay.agents.events import AgentFailed
from relay.agents.failure import Failure
from relay.features.action_runner import ActionRunner
from relay.hooks.events import Prompting
from relay.injection.events import Inject, Withdraw
from relay.lifecycle import Identity, SessionBegan, SessionClosed
from relay.message import Message
from relay.messaging.events import MessageGiven
from relay.state.events import PromptSubmitted, TurnBegan, TurnOver
from relay.storage.journal import Journal
from relay.supervision.events import (
    AccountFreed,
    EndAgent,
    Escalate,
    Hold,
    HoldAccount,
    HoldOver,
    Incident,
    PhaseEntered,
    RestartAgent,
    RunCommand,
)
from relay.supervision.policy import Action, Supervision
from relay.supervision.restart import RESET_MARGIN
from relay.supervision.states import Phase
from relay.terminal.events import AgentExited
from supervision.phases import TRANSITIONS, check
from supervision.world import World

IDLE = Incident("idle")


def message() -> Message:
    return Message("m1", "Bob", "Alice", "news", 0.0)


class Supervised(World):
    """An agent with an ActionRunner."""

    def __init__(self, folder: Path, *, life: str = "s1", **policy: Any) -> None:
        super().__init__(folder)
        self.policy = Supervision(**policy)
        self.start(life)

    def start(self, life: str) -> None:
        session = Identity(life, "Alice", "default", Path("/"))
        journal = Journal(self.home.state / "events.jsonl", life, "Alice")
        runner = ActionRunner(
            self.bus,
            journal,
            session,
            self.policy,
            self.notes(),
            clock=self.clock,
            chance=lambda: 0.0,
        )
        self.runner = runner
        self.bus.add(runner)
        self.bus.publish(SessionBegan())

    def next_session(self, life: str) -> Supervised:
        """Return the agent in another session: of the same life, or of the next."""
        other = Supervised.__new__(Supervised)
        World.__init__(other, Path(self.home.state).parent)
        other.clock, other.policy = self.clock, self.policy
        self.clock.timers.clear()
        other.start(life)
        return other

    def publish(self, *events: Any) -> None:
        for event in events:
            self.bus.publish(event)

    def phases(self) -> list[Phase]:
        return [each.phase for each in self.of(PhaseEntered)]

    def typed(self) -> list[str]:
        """Return the nudges since the last call."""
        return [each.injection.text for each in self.new(Inject)]


@pytest.mark.parametrize(
    ("action", "event"),
    [
        (Action("nudge", text="on"), Inject),
        (Action("gate", run="true"), RunCommand),
        (Action("run", run="true"), RunCommand),
        (Action("done"), EndAgent),
        (Action("fail"), EndAgent),
        (Action("stop"), EndAgent),
        (Action("restart"), RestartAgent),
        (Action("resume"), RestartAgent),
        (Action("hold"), Hold),
        (Action("escalate"), Escalate),
    ],
)
def test_each_action_is_carried_out(tmp_path: Path, action: Action, event: type) -> None:
    alice = Supervised(tmp_path, on_idle=action)
    alice.publish(IDLE)
    assert len(alice.of(event)) == 1


def test_an_ended_agent_has_the_phase_of_its_action(tmp_path: Path) -> None:
    for action, phase in (("done", Phase.DONE), ("fail", Phase.FAILED), ("stop", Phase.OFF)):
        alice = Supervised(tmp_path / action, on_idle=Action(action))  # type: ignore[arg-type]
        alice.publish(IDLE)
        assert alice.of(EndAgent) == [EndAgent(phase, "was idle")]


def test_only_real_progress_resets_the_count(tmp_path: Path) -> None:
    """Neither an answered nudge nor a handler's text is real progress."""
    alice = Supervised(tmp_path, on_idle=Action("nudge", attempts=2, cooldown=0, text="on"))

    def idles() -> int:
        for _ in range(10):
            alice.publish(IDLE)
            alice.publish(PromptSubmitted(by_user=False), TurnOver(well=True))
        return len(alice.typed())

    assert idles() == 2
    assert len(alice.new(Escalate)) == 1
    assert idles() == 0
    alice.publish(MessageGiven(message(), begins=False))
    assert idles() == 0
    alice.publish(MessageGiven(message(), begins=True))
    assert idles() == 2
    alice.publish(PromptSubmitted(by_user=True))
    assert idles() == 2
    assert idles() == 0


def test_the_next_attempt_waits_for_the_cooldown(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("nudge", attempts=2, cooldown=90, text="on"))
    alice.publish(IDLE)
    alice.clock.passes(60)
    alice.publish(IDLE)
    alice.publish(IDLE)
    assert len(alice.typed()) == 1
    alice.clock.passes(30)
    assert len(alice.typed()) == 1


def test_a_pending_attempt_is_dropped_when_a_prompt_arrives(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("nudge", attempts=2, cooldown=90, text="on"))
    alice.publish(IDLE, IDLE, PromptSubmitted(by_user=False))
    alice.clock.passes(1000)
    assert len(alice.typed()) == 1


def test_one_nudge_follows_the_end_of_a_usage_limit(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    reset = alice.clock.now() + 3600
    alice.publish(Incident("error", "rate_limited", reset, "You've hit your limit"))
    (waiting,) = alice.new(PhaseEntered)
    assert (waiting.phase, waiting.next_try) == (Phase.WAITING, reset + RESET_MARGIN[0])
    assert alice.of(HoldAccount) == [HoldAccount("rate_limited", "You've hit your limit", reset)]
    alice.publish(IDLE)  # idle because of the limit
    alice.clock.passes(3600 + RESET_MARGIN[0] - 1)
    assert alice.typed() == []
    alice.clock.passes(1)
    assert alice.typed() == [
        "Your last turn ended with an error (usage limit) that may be over. Continue where you stopped."
    ]
    assert alice.phases() == [Phase.UP]
    alice.clock.passes(1e6)
    assert alice.typed() == []


def test_a_recurring_error_backs_off_and_is_then_escalated(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    waits = []
    for _ in range(6):
        alice.publish(Incident("error", "overloaded"))
        (waiting,) = alice.new(PhaseEntered)
        waits.append(waiting.next_try - alice.clock.now())
        alice.clock.passes(waits[-1])
        assert len(alice.typed()) == 1
        alice.publish(PromptSubmitted(by_user=False), TurnOver(well=False))
        alice.new(PhaseEntered)
    assert waits == [30, 60, 120, 240, 480, 900]
    alice.publish(Incident("error", "overloaded"))
    (escalation,) = alice.of(Escalate)
    assert "the model is overloaded" in escalation.what and "after 6 tries" in escalation.what
    alice.publish(Incident("error", "overloaded"), IDLE)
    assert len(alice.of(Escalate)) == 1


def test_a_successful_turn_resets_the_error_counts(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    for _ in range(20):
        alice.publish(Incident("error", "network"))
        alice.clock.passes(40)
        alice.publish(PromptSubmitted(by_user=False), TurnOver(well=True))
    assert len(alice.typed()) == 20 and not alice.of(Escalate)


def test_a_prompt_ends_the_wait(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(Incident("error", "network"), PromptSubmitted(by_user=False))
    assert alice.phases() == [Phase.WAITING, Phase.UP]
    alice.clock.passes(1e5)
    assert alice.typed() == []


def test_a_queued_nudge_is_withdrawn_when_the_user_submits_a_prompt(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("nudge", text="on"))
    alice.publish(IDLE)
    (nudge,) = alice.of(Inject)
    alice.publish(PromptSubmitted(by_user=True))
    assert alice.of(Withdraw) == [Withdraw(nudge.injection.id)]


@pytest.mark.parametrize("cls", ["unauthorized", "billing"])
def test_an_error_that_only_the_user_can_fix_holds_the_account(tmp_path: Path, cls: str) -> None:
    alice = Supervised(tmp_path)
    for _ in range(2):
        alice.publish(Incident("error", cls, None, "No."), Incident("error", cls, None, "No."))
        assert alice.new(HoldAccount) == [HoldAccount(cls, "No.")]
        alice.publish(IDLE, AccountFreed(), AccountFreed())
        assert len(alice.typed()) == 1
        assert alice.phases()[-2:] == [Phase.HELD, Phase.UP]


def test_a_full_context_is_escalated(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, prompt="Do it.")
    alice.publish(Incident("error", "context_full", None, "Prompt is too long"), IDLE)
    (escalation,) = alice.of(Escalate)
    assert escalation.what == "Alice stopped on an error (context full): Prompt is too long."
    assert "relay attach Alice" in escalation.how


def test_an_unknown_error_is_left_to_the_idle_action(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, prompt="Do it.")
    alice.publish(Incident("error", "other"))
    assert not alice.of(Escalate)
    alice.publish(IDLE)
    assert "has been idle" in alice.of(Escalate)[0].what


def test_a_held_agent_is_left_alone(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("nudge", text="on"))
    alice.publish(Incident("error", "network"), Hold("started 100 turns without your input"))
    alice.publish(IDLE, Incident("error", "network"), AccountFreed())
    alice.clock.passes(1e5)
    assert alice.typed() == []
    assert alice.phases() == [Phase.WAITING]  # the hold sets its own phase
    alice.publish(HoldOver(), IDLE)
    assert alice.typed() == ["on"]


def test_prompts_are_escalated_by_another_feature(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_prompt=Action("escalate"))
    alice.publish(Prompting("permission", "Proceed?"))
    assert not alice.of(Escalate)


def test_a_prompt_triggers_the_action_of_its_policy(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_prompt=Action("fail"))
    alice.publish(Prompting("permission", "Proceed?"))
    assert alice.of(EndAgent) == [EndAgent(Phase.FAILED, "asked for a decision")]


def test_the_next_session_waits_for_the_remaining_time(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(Incident("error", "network"))
    alice.clock.passes(20)
    alice = alice.next_session("s1")
    assert alice.phases() == [Phase.WAITING]
    alice.clock.passes(9)
    assert alice.typed() == []
    alice.clock.passes(1)
    assert len(alice.typed()) == 1


def test_the_next_session_continues_once_the_account_is_free(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(Incident("error", "unauthorized"))
    alice = alice.next_session("s1")
    assert alice.phases() == [Phase.HELD] and not alice.of(HoldAccount)
    alice.publish(AccountFreed())
    assert len(alice.typed()) == 1
    assert alice.phases() == [Phase.HELD, Phase.UP]


def test_a_successful_turn_ends_the_hold_on_the_agent(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(Incident("error", "unauthorized"), TurnOver(well=True), AccountFreed())
    assert alice.phases() == [Phase.HELD, Phase.UP]
    assert alice.typed() == []


def test_the_next_life_inherits_the_counts_but_not_the_wait(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("restart"))
    alice.publish(Incident("error", "network"))
    alice = alice.next_session("s2")
    alice.clock.passes(1e5)
    assert alice.typed() == [] and alice.phases() == []
    alice.publish(IDLE)
    alice = alice.next_session("s3")
    alice.publish(IDLE)
    assert alice.of(RestartAgent) == []


def test_the_notes_of_an_ended_agent_are_removed(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(Incident("error", "network"))
    assert alice.notes().read()
    asyncio.run(alice.bus.ask(SessionClosed()))  # another session follows
    assert alice.notes().read()
    asyncio.run(alice.bus.ask(SessionClosed(ended=True)))
    assert not alice.notes().read()


def test_incidents_of_an_ended_agent_are_ignored(tmp_path: Path) -> None:
    alice = Supervised(tmp_path, on_idle=Action("nudge", text="on"))
    alice.publish(Incident("error", "network"), AgentExited(0), IDLE)
    alice.clock.passes(1e5)
    assert alice.typed() == []
    assert alice.phases() == [Phase.WAITING]


def test_the_failure_that_ended_an_agent_can_hold_its_account(tmp_path: Path) -> None:
    """The supervisor does the rest (relay.supervision.restart)."""
    alice = Supervised(tmp_path)
    alice.publish(AgentExited(1))
    for cls in ("network", "context_full", "billing"):
        alice.publish(AgentFailed(Failure(cls, "No.", None, "exit")))  # type: ignore[arg-type]
    alice.publish(AgentFailed(Failure("rate_limited", "No.", None, "exit")))
    until = alice.clock.now() + 60
    alice.publish(AgentFailed(Failure("rate_limited", "No.", until, "exit")))
    assert alice.of(HoldAccount) == [HoldAccount("billing", "No."), HoldAccount("rate_limited", "No.", until)]
    assert not alice.phases() and not alice.typed() and not alice.of(Escalate)


def test_a_reported_failure_is_an_incident(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.publish(AgentFailed(Failure("overloaded", "API Error: 529", None, "hook")))
    assert alice.of(Incident) == [Incident("error", "overloaded", None, "API Error: 529")]
    assert alice.phases() == [Phase.WAITING]


def test_all_phase_changes_are_allowed_transitions(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    for event in (
        Incident("error", "network"),
        PromptSubmitted(by_user=True),
        Incident("error", "unauthorized"),
        AccountFreed(),
        Incident("error", "billing"),
        PromptSubmitted(by_user=True),
    ):
        alice.publish(event)
    phase = Phase.UP
    for after in alice.phases():
        phase = check(phase, after)
    assert alice.phases() == [Phase.WAITING, Phase.UP, Phase.HELD, Phase.UP, Phase.HELD, Phase.UP]
    assert TRANSITIONS


def test_an_agent_that_continues_by_itself_is_not_nudged(tmp_path: Path) -> None:
    alice = Supervised(tmp_path)
    alice.bus.publish(Incident("error", "rate_limited", alice.clock.now() + 3600))
    alice.bus.publish(TurnBegan())
    alice.clock.passes(7200)
    assert not alice.of(Inject)
    assert alice.of(PhaseEntered)[-1].phase is Phase.UP


def test_a_restart_that_does_not_help_is_escalated(tmp_path: Path) -> None:
    own = Action("restart", match="context_full")
    alice = Supervised(tmp_path, on_error=(own,))
    full = Incident("error", "context_full")
    alice.bus.publish(full)
    assert alice.new(RestartAgent) and not alice.of(Escalate)
    alice = alice.next_session("s2")
    for _ in range(2):
        alice.bus.publish(full)
    assert not alice.of(RestartAgent) and len(alice.of(Escalate)) == 1
