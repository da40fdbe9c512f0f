"""The shipped profiles recognise the states of real agents, in recordings and on rendered screens."""

from __future__ import annotations

from functools import cache

import pytest
from confusion import BEGIN, END, PAGE, Case, cases, table

from relay.state.readiness import Readiness

found = cache(cases)

MISSES = 0.02
"""The fraction of all moments that may be taken for another state."""


def test_no_dialog_or_work_is_taken_for_ready() -> None:
    """R96: typed text would answer the dialog, or interrupt the work."""
    wrong = [case for case in found() if case.verdict.state is Readiness.READY and case.state != "ready"]
    assert [(case.agent, case.name) for case in wrong] == []


def test_nearly_every_state_is_recognised() -> None:
    wrong = [(case.agent, case.name, case.verdict.reason) for case in found() if not case.hit]
    assert len(wrong) <= MISSES * len(found()), wrong


def test_every_dialog_has_the_right_kind() -> None:
    wrong = [case for case in found() if case.hit and not case.kind_hit]
    assert [(case.agent, case.name, case.verdict.kind) for case in wrong] == []


def test_each_verdict_names_its_rule_and_lines() -> None:
    for case in found():
        if case.hit and case.state in ("prompting", "failed") and case.agent != "generic":
            assert case.verdict.rule, (case.agent, case.name)
            assert case.verdict.lines, (case.agent, case.name)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode", "pi", "aider"])
def test_every_agent_has_samples_of_the_important_states(agent: str) -> None:
    seen: list[Case] = [case for case in found() if case.agent == agent]
    states = {case.state for case in seen}
    assert states >= {"ready", "working"} | ({"prompting"} if agent != "pi" else set())


def test_the_table_in_the_docs_is_current() -> None:
    """`python tests/state/confusion.py --write` updates it."""
    text = PAGE.read_text("utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == table(found())
