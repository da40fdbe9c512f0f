"""A soak of a few seconds finds no errors, and its account would detect them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import soak
from soak import Injected, Sent

from relay.message import Message, Priority, State

ONE = Message("id1", "Ada", "Bo", "1", 0.0, State.INJECTED)
TWO = Message("id2", "Ada", "Bo", "2", 0.0, State.INJECTED)
SENT = [Sent("Ada", "Bo", 1, "id1"), Sent("Ada", "Bo", 2, "id2")]
GOT = [Injected("Bo", "Ada", 1, "id1"), Injected("Bo", "Ada", 2, "id2")]


@pytest.mark.slow
def test_random_kills_leave_no_message_unexplained() -> None:
    """R88: sent = injected + uncertain + waiting + dead letters, with everything killed at random."""
    run = subprocess.run(
        [sys.executable, str(Path(soak.__file__)), "--seconds", "5", "--seed", "4"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0  unexplained" in run.stdout


@pytest.mark.parametrize(
    ("messages", "sent", "injected"),
    [
        ([ONE, TWO], SENT, GOT),
        ([ONE, TWO], [SENT[0], replace(SENT[1], id=None)], GOT),  # it died before it could record the id
        ([replace(ONE, state=State.UNCERTAIN), TWO], SENT, GOT),
        ([replace(ONE, state=State.UNCERTAIN), TWO], SENT, GOT[1:]),
        ([replace(ONE, state=State.REJECTED), TWO], SENT, GOT[1:]),
        ([replace(ONE, to="Eve", state=State.SENT)], [replace(SENT[0], to="Eve")], []),
        ([ONE], [Sent("Ada", "*", 1, None)], GOT[:1]),
        ([ONE, replace(TWO, priority=Priority.URGENT)], SENT, GOT[::-1]),
        ([], [replace(SENT[0], id=None)], []),
        ([], [replace(SENT[0], id=None, refused=True)], []),
    ],
)
def test_an_explainable_history_leaves_nothing_unexplained(
    messages: Sequence[Message], sent: Sequence[Sent], injected: Sequence[Injected]
) -> None:
    assert soak.account(messages, sent, injected, {"Eve"}).unexplained == []


@pytest.mark.parametrize(
    ("messages", "sent", "injected", "why"),
    [
        ([ONE], SENT, GOT[:1], "id2 was accepted and is gone"),
        ([ONE, TWO], SENT, [*GOT, GOT[1]], "id2 was injected 2 times"),
        ([ONE, TWO], SENT, GOT[::-1], "came after"),
        ([ONE, TWO], SENT, GOT[:1], "id2 is injected and was injected 0 times"),
        ([ONE, replace(TWO, state=State.STORED)], SENT, GOT[:1], "its receiver Bo is running"),
        ([ONE, replace(TWO, state=State.REJECTED)], SENT, GOT, "id2 is rejected and was injected 1 times"),
        ([ONE], SENT[:1], GOT, "id2 was injected but is not in the ledger"),
        ([ONE, TWO], SENT[:1], GOT, "id2 is in the ledger but was not sent"),
        ([ONE], [replace(SENT[0], id=None, refused=True)], GOT[:1], "was not sent"),
        ([ONE, replace(ONE, id="id3")], SENT[:1], GOT[:1], "is listed 2 times"),
    ],
)
def test_every_kind_of_error_is_reported(
    messages: Sequence[Message], sent: Sequence[Sent], injected: Sequence[Injected], why: str
) -> None:
    assert why in "\n".join(soak.account(messages, sent, injected, set()).unexplained)
