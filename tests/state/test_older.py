"""Screens of older versions: dialogs and work are never taken for *ready*, and nearly all are recognised."""

from __future__ import annotations

from functools import cache

import pytest
from older import BEGIN, END, PAGE, apart, dangerous, older, table

found = cache(older)

MISSES = 0.25
"""The fraction that may be missed: mostly quoted dialogs without hooks, which only delay messages."""


def test_no_dialog_or_work_is_taken_for_ready() -> None:
    assert [(case.agent, case.name) for case in found() if dangerous(case)] == []


@pytest.mark.parametrize("part", [False, True])
def test_only_a_few_states_are_missed(part: bool) -> None:
    these = [case for case in found() if apart(case) is part]
    wrong = [(case.agent, case.name, case.verdict.reason) for case in these if not case.hit]
    assert len(wrong) <= MISSES * len(these), wrong


def test_every_dialog_is_recognised() -> None:
    dialogs = [case for case in found() if case.state == "prompting"]
    assert [(case.agent, case.name) for case in dialogs if not case.hit] == []


def test_the_table_in_the_docs_is_current() -> None:
    """`python tests/state/older.py --write` updates it."""
    assert PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip() == table(found())
