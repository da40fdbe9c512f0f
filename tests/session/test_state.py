"""The states of an agent: what follows what, since when, and who is told."""

from __future__ import annotations

import pytest

from relay.agents.profile import PromptKind
from relay.state.readiness import Readiness, Verdict
from relay.state.states import EXITED, STARTING, STOPPED, TRANSITIONS, AgentState, Change


class Agent:
    """An agent whose verdict the test says."""

    def __init__(self) -> None:
        self.verdict = Verdict(Readiness.WORKING, "it prints")
        self.quiet = 0.0
        self.now = 100.0
        self.changes: list[Change] = []
        self.state = AgentState(
            lambda: self.verdict, lambda: self.quiet, on_change=self.changes.append, clock=lambda: self.now
        )

    def says(self, state: Readiness, kind: PromptKind | None = None) -> str:
        self.verdict = Verdict(state, "so the test says", kind=kind)
        return self.state.look()


def test_each_transition_is_told_once_with_what_decided() -> None:
    """R96"""
    agent = Agent()
    assert agent.state.name == STARTING
    for state in (Readiness.WORKING, Readiness.PROMPTING, Readiness.PROMPTING, Readiness.READY):
        agent.says(state)
    told = [(change.before, change.after) for change in agent.changes]
    assert told == [("starting", "working"), ("working", "prompting"), ("prompting", "ready")]
    assert agent.changes[-1].verdict is agent.verdict


def test_another_prompt_right_after_the_first_is_told() -> None:
    """R88, R89, R96"""
    agent = Agent()
    agent.says(Readiness.PROMPTING, PromptKind.PERMISSION)
    assert agent.state.prompt is PromptKind.PERMISSION
    agent.says(Readiness.PROMPTING, PromptKind.QUESTION)
    assert [change.after for change in agent.changes] == ["prompting", "prompting"]
    assert agent.state.prompt is PromptKind.QUESTION
    agent.says(Readiness.PROMPTING)
    assert agent.state.prompt is PromptKind.OTHER
    agent.says(Readiness.WORKING)
    assert agent.state.prompt is None


def test_a_state_entered_by_silence_began_with_it() -> None:
    agent = Agent()
    agent.says(Readiness.WORKING)
    agent.now, agent.quiet = 110.0, 4.0
    agent.says(Readiness.READY)
    assert agent.state.since == 106.0
    agent.now = 120.0
    agent.says(Readiness.READY)
    assert agent.state.since == 106.0


def test_what_the_system_says_comes_first() -> None:
    agent = Agent()
    agent.says(Readiness.READY)
    agent.state.suspended = True
    assert agent.state.look() == STOPPED
    assert "Ctrl-Z" in agent.state.reason
    agent.state.suspended = False
    assert agent.state.look() == "ready"
    agent.state.ended = True
    assert agent.state.look() == EXITED
    assert agent.changes[-1] == Change("ready", EXITED, None)


def test_what_has_ended_stays_so_and_nothing_starts_twice() -> None:
    agent = Agent()
    agent.state.ended = True
    agent.state.look()
    agent.state.ended = False
    with pytest.raises(AssertionError, match="exited cannot become working"):
        agent.state.look()
    assert all(STARTING not in following for following in TRANSITIONS.values())
    assert set(TRANSITIONS) == {STARTING, STOPPED, EXITED, *map(str, Readiness)}
