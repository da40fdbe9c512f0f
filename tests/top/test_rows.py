"""The list of `relay top` as rows of text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards import NOW, agent, board, waits
from relay.control.board import Board
from relay.control.sessions import SessionInfo
from relay.top.choice_list import strip
from relay.top.rows import Fold, brief, summary, table
from support import many

SGR = re.compile(r"\x1b\[[0-9;]*m")


def texts(found: Board, columns: int = 80, words: str = "", folded: tuple[str, ...] = ()) -> list[str]:
    """Return the header and the rows without colours and trailing blanks."""
    header, rows = table(found, columns, NOW, words, folded)
    return [SGR.sub("", each).rstrip() for each in (header, *(row.text for row in rows))]


ASKS = agent("Ben", "prompting", 65, prompt="permission", question="May I run make?", last_line="I build.")
BUSY = agent("Ann", "working", 3700, last_line="Reading " + "x" * 100)
WEB = (agent("Cy", "ready", 5, team="web"), agent("Di", "ready", 4, team="web"))
QUESTION = (waits("question", "Ben", "May I run make?"),)


def test_the_list_fits_80_columns_with_the_question_of_the_agent_that_asks() -> None:
    """C17."""
    assert texts(board(BUSY, ASKS, inbox=QUESTION)) == [
        "  NAME  STATE                   FOR  NEW  LINE",
        "needs you (1)",
        "  Ben   prompting (permission)  1m   1    May I run make?",
        "working (1)",
        f"  Ann   working                 1h        Reading {'x' * 29}…",
    ]


def test_columns_are_shown_if_they_are_useful_and_fit(subtests: pytest.Subtests) -> None:
    known = agent("A", tokens=1_234_567, last_line="hi")
    cases = [
        (board(agent("A")), 200, "NAME STATE FOR LINE"),
        (board(agent("A"), *WEB), 80, "NAME TEAM STATE FOR LINE"),
        (board(agent("A"), *WEB), 50, "NAME STATE FOR LINE"),
        (board(known), 120, "NAME STATE FOR TOKENS LINE"),
        (board(known), 80, "NAME STATE FOR LINE"),
        (board(agent("A"), inbox=(waits("message", "A"),)), 80, "NAME STATE FOR NEW LINE"),
    ]
    for found, columns, expected in cases:
        with subtests.test(expected):
            assert texts(found, columns)[0].split() == expected.split()
    assert texts(board(known), 120)[2].split() == ["A", "ready", "1m", "1.2M", "hi"]


def test_only_agents_with_all_words_are_listed() -> None:
    found = board(BUSY, ASKS, *WEB, inbox=QUESTION)
    listed = {words: [row.split()[0] for row in texts(found, words=words) if row.startswith("  ")][1:]
              for words in ("web", "WEB di", "make", "working", "nobody", "")}  # fmt: skip
    assert listed == {
        "web": ["Cy", "Di"], "WEB di": ["Di"], "make": ["Ben"], "working": ["Ann"], "nobody": [],
        "": ["Ben", "Ann", "Cy", "Di"],
    }  # fmt: skip


def test_a_folded_team_has_one_row_in_each_group_but_never_hides_who_needs_you() -> None:
    asks = agent("Ed", "prompting", team="web", question="Which port?")
    found = board(asks, BUSY, *WEB)
    assert texts(found, folded=("web",))[1:] == [
        "needs you (1)",
        "  Ed    web      prompting  1m   Which port?",
        "working (1)",
        f"  Ann   default  working    1h   Reading {'x' * 38}…",
        "waiting (2)",
        "  ▸ team web: 2 agents",
    ]
    _, rows = table(found, 80, NOW, "", ("web",))
    assert isinstance(rows[-1].id, Fold) and rows[-1].entry is None


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(999, "999"), (999_949, "999.9k"), (999_950, "1.0M"), (999_949_999, "999.9M"), (999_950_000, "1.0G")],
)
def test_tokens_take_at_most_six_columns(tokens: int, shown: str) -> None:
    assert brief(tokens) == shown


def test_the_first_row_counts_who_needs_you_and_what_is_unread(subtests: pytest.Subtests) -> None:
    cases = [
        (None, "looking ..."),
        (board(), "No agent is running. Start one with `relay wrap COMMAND`."),
        (board(agent("A", "gone")), "No agent is running. Start one with `relay wrap COMMAND`."),
        (board(agent("A"), agent("B", "working")), "2 agents, none needs you"),
        (board(agent("A"), ASKS, inbox=QUESTION), "2 agents, 1 needs you, 1 unread"),
        (board(agent("A", "unresponsive"), ASKS), "2 agents, 2 need you"),
    ]
    for found, expected in cases:
        with subtests.test(expected):
            assert summary(found) == expected


def _agent(name: str, state: str, age: float | None, **more: Any) -> SessionInfo:
    return agent(name, state, age, **more)


AGENTS = st.builds(
    _agent,
    st.text("abAB", min_size=1, max_size=70),
    st.sampled_from(["ready", "prompting", "failed", "working", "done"]),
    st.none() | st.floats(0, 1e7),
    team=st.text("ab", min_size=1, max_size=20),
    held=st.none() | st.integers(0, 5),
    tokens=st.none() | st.integers(0, 1 << 50),
    reason=st.text(max_size=50),
    last_line=st.text(max_size=300),
)


@settings(max_examples=many(100))
@given(st.lists(AGENTS, max_size=12), st.integers(40, 250), st.booleans())
def test_the_list_always_fits_and_has_no_control_characters(
    agents: list[SessionInfo], columns: int, fold: bool
) -> None:
    header, rows = table(board(*agents), columns, NOW, folded=("ab",) if fold else ())
    for row in (header, *(each.text for each in rows)):
        drawn = strip(row, columns)
        assert drawn.cell_length == columns  # as Rich counts; lines never wrap
        assert not [each for each in drawn.text if ord(each) < 32 or 127 <= ord(each) < 160]
