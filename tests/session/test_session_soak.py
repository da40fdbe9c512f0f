"""A short soak of sessions, and tests that its account detects errors."""

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
def test_random_kills_of_sessions_leave_nothing_unexplained() -> None:
    """R88: said = received + uncertain + expired, and no agent is lost."""
    assert " 0  wrong" in run_soak("--seconds", "60", "--seed", "4")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_attacker_causes_no_lost_repeated_or_reordered_messages() -> None:
    """S10: there are two teams, and a member of one runs every attack of hostile.py."""
    long = os.environ.get("RELAY_LONG")
    said = run_soak(
        "--hostile", "--seed", "4", "--seconds", *(["60"] if long else ["2", "--share", "0.1", "--spare"])
    )
    assert " 0  wrong" in said
    for attack in hostile.ATTACKS:
        assert f"x attack: {attack}" in said


def run_soak(*arguments: str) -> str:
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
        (said(1), [1, 99], [1]),  # 99 may or may not have been said
    ],
)
def test_allowed_outcomes_are_not_reported(
    messages: list[Message], spoken: list[int], given: list[int]
) -> None:
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
def test_unexplained_outcomes_are_reported(
    messages: Sequence[Message], spoken: list[int], given: list[int], why: str
) -> None:
    stream = ("Ada", "Bo")
    assert why in "\n".join(soak.account(messages, {stream: spoken}, {stream: given}).wrong)


def test_messages_given_to_an_agent_are_recognised_by_their_envelope() -> None:
    received = "[relay k3f9 from Ada] 7 [/relay k3f9]\n[relay m2xq the user, 14:03:07] 8 [/relay m2xq]\n"
    assert soak.given_to("Bo", received) == {("Ada", "Bo"): [7], ("you", "Bo"): [8]}
