"""The states of an agent: their transitions, start times, and listeners."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from relay.agents.profile import PromptKind
from relay.eventbus import EventBus, handles
from relay.state.events import StateChanged
from relay.state.readiness import Readiness, Verdict
from relay.state.states import (
    EXITED,
    FAILED,
    PROMPTING,
    READY,
    STARTING,
    STOPPED,
    TRANSITIONS,
    UNSAFE,
    WORKING,
    AgentState,
    path,
)
from relay.state.view import AgentView


class View:
    """What the terminal shows, as set by the test."""

    def __init__(self) -> None:
        self.verdict = Verdict(Readiness.WORKING, "it prints")
        self.quiet = 0.0

    def output_quiet(self) -> float:
        return self.quiet


class Agent:
    """An agent whose verdict the test sets."""

    def __init__(self) -> None:
        self.view = View()
        self.now = 100.0
        self.changes: list[StateChanged] = []
        bus = EventBus(asyncio.new_event_loop())
        bus.loop.close()
        bus.add(self)
        self.state = AgentState(cast(AgentView, self.view), bus, clock=lambda: self.now)

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        self.changes.append(event)

    def observe(self, state: Readiness, kind: PromptKind | None = None) -> str:
        self.view.verdict = Verdict(state, "the test sets it", kind=kind)
        return self.state.look()


def test_each_transition_is_reported_once_with_its_verdict() -> None:
    """R96"""
    agent = Agent()
    assert agent.state.name == STARTING
    for state in (Readiness.WORKING, Readiness.PROMPTING, Readiness.PROMPTING, Readiness.READY):
        agent.observe(state)
    transitions = [(change.before, change.after) for change in agent.changes]
    assert transitions == [("starting", "working"), ("working", "prompting"), ("prompting", "ready")]
    assert agent.changes[-1].verdict is agent.view.verdict


def test_a_prompt_right_after_another_is_reported() -> None:
    """R88, R89, R96"""
    agent = Agent()
    agent.observe(Readiness.PROMPTING, PromptKind.PERMISSION)
    assert agent.state.prompt is PromptKind.PERMISSION
    agent.observe(Readiness.PROMPTING, PromptKind.QUESTION)
    assert [change.after for change in agent.changes] == ["prompting", "prompting"]
    assert agent.state.prompt is PromptKind.QUESTION
    agent.observe(Readiness.PROMPTING)
    assert agent.state.prompt is PromptKind.OTHER
    agent.observe(Readiness.WORKING)
    assert agent.state.prompt is None


def test_a_state_entered_by_silence_dates_from_its_start() -> None:
    agent = Agent()
    agent.observe(Readiness.WORKING)
    agent.now, agent.view.quiet = 110.0, 4.0
    agent.observe(Readiness.READY)
    assert agent.state.since == 106.0
    agent.now = 120.0
    agent.observe(Readiness.READY)
    assert agent.state.since == 106.0


def test_a_stopped_or_exited_process_outweighs_the_screen() -> None:
    agent = Agent()
    agent.observe(Readiness.READY)
    agent.state.suspend()
    assert agent.state.name == agent.state.look() == STOPPED
    assert "Ctrl-Z" in agent.state.reason
    agent.state.resume()
    assert agent.state.look() == "ready"
    agent.state.end()
    assert agent.state.name == agent.state.look() == EXITED
    assert agent.changes[-1] == StateChanged("ready", EXITED, None)


def test_a_failure_is_always_preceded_by_work() -> None:
    """Checks are samples: a turn may start and fail between two of them."""
    agent = Agent()
    agent.observe(Readiness.READY)
    agent.observe(Readiness.FAILED)
    assert [(change.before, change.after) for change in agent.changes[1:]] == [
        ("ready", "working"),
        ("working", "failed"),
    ]
    assert [change.verdict for change in agent.changes[1:]] == [None, agent.view.verdict]


@pytest.mark.parametrize("before", [READY, PROMPTING, UNSAFE, STOPPED])
def test_a_forbidden_transition_passes_through_working(before: str) -> None:
    assert FAILED not in TRANSITIONS[before]
    assert path(before, FAILED) == (WORKING, FAILED)


def test_an_exited_agent_stays_exited_and_none_starts_twice() -> None:
    for after in TRANSITIONS:
        with pytest.raises(AssertionError, match=f"exited cannot become {after}"):
            path(EXITED, after)
        if after != EXITED:
            with pytest.raises(AssertionError, match="cannot become starting"):
                path(after, STARTING)
    assert all(STARTING not in following for following in TRANSITIONS.values())
    assert set(TRANSITIONS) == {STARTING, STOPPED, EXITED, *map(str, Readiness)}
