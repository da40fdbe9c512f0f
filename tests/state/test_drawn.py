"""Screens in many forms: dialogs and work are never taken for *ready*, and nearly all are recognised."""

from __future__ import annotations

from functools import cache

import pytest
from drawn import FOOTERS, FORMS, GLYPHS, Drawn, drawn, entry, judged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.state.signs import ROWS

MISSES = 0.02


@cache
def verdicts() -> list[tuple[Drawn, str]]:
    return [(one, judged(one)) for one in drawn()]


def test_no_dialog_or_work_is_taken_for_ready() -> None:
    wrong = [
        f"{one.profile} {one.name}" for one, verdict in verdicts() if verdict == "ready" not in one.states
    ]
    assert not wrong


@pytest.mark.parametrize("apart", [False, True])
def test_nearly_all_screens_are_recognised(apart: bool) -> None:
    found = [(one, verdict) for one, verdict in verdicts() if one.apart is apart]
    wrong = [f"{one.profile} {one.name}: {verdict}" for one, verdict in found if verdict not in one.states]
    assert len(wrong) <= MISSES * len(found), wrong


SIGNS = [
    "❯ 1. Yes",
    "  Install? [Y/n]",
    " Esc to cancel · Tab to amend",
    " Press enter to confirm",
    "△ Permission required",
    "  esc to interrupt",
    " ⠙ Thinking... (esc to cancel, 3s)",
]
PROSE = st.text(st.sampled_from("abc de,. "), max_size=50).map("  ".__add__)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    form=st.sampled_from([(profile, form) for profile, forms in FORMS.items() for form in forms]),
    width=st.integers(60, 200),
    above=st.lists(PROSE, max_size=20),
    sign=st.sampled_from(SIGNS),
    below=st.lists(PROSE, max_size=ROWS - 1),
)
def test_a_sign_above_an_empty_input_keeps_it_from_being_ready(
    form: tuple[str, str], width: int, above: list[str], sign: str, below: list[str]
) -> None:
    profile, shape = form
    rows = [*above, sign, *below, "", *entry(shape, GLYPHS[profile][0], "", width), FOOTERS[profile]]
    assert judged(Drawn(profile, "", (), "\n".join(["# title: ", *rows]))) != "ready"
