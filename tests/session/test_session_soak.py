"""The soak of sessions, for a minute; its account detects errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from relay.message import Message, State
from session import soak
from session.soak import hostile


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.environ.get("RELAY_LONG"), reason="a soak of sessions: set RELAY_LONG=1 (minutes)")
def test_random_kills_around_sessions_leave_nothing_unexplained() -> None:
    """R88: said = received + uncertain + expired, and no agent is lost."""
    assert " 0  wrong" in soaked("--seconds", "60", "--seed", "4")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_attacks_leaves_nothing_of_the_others_lost_twice_or_out_of_order() -> None:
    """S10: there are two teams, and a member of one runs every attack of test_hostile.py."""
    long = os.environ.get("RELAY_LONG")
    said = soaked("--hostile", "--seed", "4", "--seconds", *(["60"] if long else ["15", "--spare"]))
    assert " 0  wrong" in said
    for attack in hostile.ATTACKS:
        assert f"x attack: {attack}" in said


def soaked(*arguments: str) -> str:
    """Return the output of a soak that found no errors."""
    run = subprocess.run(
        [sys.executable, str(Path(soak.__file__)), *arguments],
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def said(*numbers: int, state: State = State.INJECTED) -> list[Message]:
    return [Message(f"id{n}", "Ada", "Bo", str(n), 0.0, state) for n in numbers]


@pytest.mark.parametrize(
    ("messages", "spoken", "given"),
    [
        (said(1, 2), [1, 2], [1, 2]),
        (said(1, state=State.UNCERTAIN), [1], []),
        (said(1, state=State.UNCERTAIN), [1], [1]),
        (said(1, state=State.EXPIRED), [1], []),
        (said(1), [1, 99], [1]),  # nobody knows of that
    ],
)
def test_what_can_be_explained(messages: list[Message], spoken: list[int], given: list[int]) -> None:
    stream = ("Ada", "Bo")
    assert soak.account(messages, {stream: spoken}, {stream: given}, {99}).wrong == []


@pytest.mark.parametrize(
    ("messages", "spoken", "given", "why"),
    [
        (said(1), [1, 2], [1], "2 was lost"),
        (said(1, 2), [1], [1, 2], "2 was never said"),
        (said(1, 1), [1], [1], "1 was sent 2 times"),
        (said(2, 1), [1, 2], [1, 2], "2 was sent before 1"),
        (said(1), [1], [1, 1], "1 was given 2 times"),
        (said(1, 2), [1, 2], [2, 1], "2 was given before 1"),
        (said(1), [1], [1, 5], "5 was given, and never sent"),
        (said(1), [1], [], "1 is injected, and was given 0 times"),
        (said(1, state=State.STORED), [1], [], "1 is stored"),
        (said(1, state=State.REJECTED), [1], [], "1 is rejected"),
    ],
)
def test_what_cannot_be_explained_is_named(
    messages: Sequence[Message], spoken: list[int], given: list[int], why: str
) -> None:
    stream = ("Ada", "Bo")
    assert why in "\n".join(soak.account(messages, {stream: spoken}, {stream: given}).wrong)


def test_what_an_agent_was_given_is_read_by_its_marks() -> None:
    heard = "[relay k3f9 from Ada] 7 [/relay k3f9]\n[relay m2xq the user, 14:03:07] 8 [/relay m2xq]\n"
    assert soak.given_to("Bo", heard) == {("Ada", "Bo"): [7], ("you", "Bo"): [8]}
