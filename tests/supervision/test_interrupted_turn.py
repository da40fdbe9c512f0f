"""The nudge after an interrupted turn, across lives and sessions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.eventbus import answers
from relay.features.interrupted_turn import InterruptedTurn
from relay.injection.events import Inject, InjectionEnded, Withdraw
from relay.injection.injection import Outcome, Result
from relay.lifecycle import Identity, SessionBegan, SessionClosed, SessionReady
from relay.messaging.events import InHand
from relay.state.events import PromptSubmitted, TurnBegan, TurnOver
from relay.supervision.records import Records
from supervision.world import World


class Life(World):
    """A session of an agent that resumes its conversation, unless `more` says otherwise."""

    def __init__(self, folder: Path, id: str = "s1", **more: Any) -> None:
        super().__init__(folder)
        self.typed: frozenset[str] = frozenset()
        self.bus.add(self)
        keys = {"resumes": True, "task": False, **more}
        session = Identity(id, "Alice", "default", folder)
        self.bus.add(InterruptedTurn(self.bus, self.tasks, session, Records(self.home), self.notes(), **keys))
        self.bus.publish(SessionBegan())

    @answers(InHand)
    async def in_hand(self, _: InHand, __: object) -> frozenset[str]:
        return self.typed

    def publish(self, *events: Any) -> Life:
        for event in events:
            self.bus.publish(event)
        return self

    def nudges(self) -> list[Inject]:
        self.bus.publish(SessionReady())
        return self.of(Inject)


@pytest.mark.parametrize(
    ("events", "nudged"),
    [
        ((TurnBegan(),), True),
        ((TurnBegan(), TurnOver(well=True)), False),
        ((TurnBegan(), TurnOver(well=False)), True),
        ((TurnBegan(), TurnOver(well=True), TurnBegan()), True),
        ((), False),
    ],
)
def test_an_unfinished_turn_is_continued(tmp_path: Path, events: Any, nudged: bool) -> None:
    Life(tmp_path, resumes=False).publish(*events)
    found = Life(tmp_path, "s2").nudges()
    assert [(each.injection.kind, "Continue" in each.injection.text) for each in found] == [
        ("nudge", True)
    ] * nudged


def test_a_new_conversation_has_nothing_to_continue(tmp_path: Path) -> None:
    Life(tmp_path).publish(TurnBegan())
    assert not Life(tmp_path, "s2", resumes=False).nudges()
    assert not Life(tmp_path, "s3").nudges(), "nor has the session that continues the new conversation"


def test_the_nudge_is_given_once_per_life(tmp_path: Path) -> None:
    Life(tmp_path).publish(TurnBegan())
    life = Life(tmp_path, "s2")
    (first,) = life.nudges()
    again = Life(tmp_path, "s2")
    again.typed = frozenset({"s2-go-on"})  # by a session that was then killed
    assert not again.nudges()
    again.publish(InjectionEnded(first.injection, Outcome(Result.INJECTED)), TurnBegan())
    assert not Life(tmp_path, "s2").nudges()
    assert Life(tmp_path, "s3").nudges(), "this life was interrupted, too"


def test_an_untyped_nudge_is_given_by_the_next_session(tmp_path: Path) -> None:
    Life(tmp_path).publish(TurnBegan())
    life = Life(tmp_path, "s2")
    (first,) = life.nudges()
    life.publish(InjectionEnded(first.injection, Outcome(Result.UNTYPED)))
    assert Life(tmp_path, "s2").nudges()


def test_the_users_prompt_withdraws_the_nudge(tmp_path: Path) -> None:
    Life(tmp_path).publish(TurnBegan())
    life = Life(tmp_path, "s2")
    life.publish(PromptSubmitted(by_user=False))
    assert not life.of(Withdraw)
    life.publish(PromptSubmitted(by_user=True))
    assert life.of(Withdraw) == [Withdraw("s2-go-on")]
    assert not life.nudges()


@pytest.mark.parametrize("given", [False, True])
def test_a_task_that_never_arrived_replaces_the_nudge(tmp_path: Path, given: bool) -> None:
    Life(tmp_path).publish(TurnBegan())
    life = Life(tmp_path, "s2", task=True)
    Records(life.home).change("default", "Alice", lambda record: replace(record, task_given=given))
    assert bool(life.nudges()) == given


@pytest.mark.parametrize("ended", [False, True])
def test_an_agent_that_has_ended_for_good_leaves_no_nudge(tmp_path: Path, ended: bool) -> None:
    life = Life(tmp_path).publish(TurnBegan())
    asyncio.run(life.bus.ask_all(SessionClosed(ended=ended)))  # type: ignore[arg-type]
    assert bool(Life(tmp_path, "s2").nudges()) != ended
