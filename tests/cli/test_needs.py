"""Which agent needs the user most, and how `relay ps --watch` shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.cli.agent_state import COLOURS
from relay.cli.ps import _row
from relay.cli.watch import frame
from relay.columns import width
from relay.control.needs import Need, by_urgency, need
from relay.control.sessions import SessionInfo
from support import many

NOW = 1_760_000_000.0


def session(
    name: str,
    state: str,
    age: float | None = 0.0,
    *,
    team: str = "default",
    prompt: str | None = None,
    held: int | None = None,
    tokens: int | None = None,
    cost: float | None = None,
    last_line: str = "",
    question: str = "",
) -> SessionInfo:
    since = None if age is None else NOW - age
    return SessionInfo(
        name, team, "claude", 1, 2, state, prompt, since, "/", "id", Path("/s"),
        bus="connected", held=held, tokens=tokens, cost=cost, last_line=last_line,
        question=question,
    )  # fmt: skip


NEEDS = [
    ("prompting", None, Need.PROMPTING),
    ("prompting", 3, Need.PROMPTING),
    ("failed", 1, Need.FAILED),
    ("held", None, Need.FAILED),
    ("backoff", None, Need.NONE),
    ("unresponsive", None, Need.UNRESPONSIVE),
    ("working", 1, Need.HELD),
    ("ready", 1, Need.HELD),
    ("ready", 0, Need.READY),
    ("working", None, Need.NONE),
    ("starting", None, Need.NONE),
    ("unsafe", 0, Need.NONE),
    ("stopped", None, Need.NONE),
    ("a state of a later version", None, Need.NONE),
]


def test_the_need_follows_from_state_and_held_messages(subtests: pytest.Subtests) -> None:
    for state, held, expected in NEEDS:
        with subtests.test(f"{state}, {held} held"):
            assert need(session("A", state, held=held)) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("A", "ready", 9), ("B", "prompting", 1), ("C", "failed", 99)], "BCA"),
        ([("A", "prompting", 1), ("B", "prompting", 60), ("C", "prompting", None)], "BAC"),
        ([("B", "working", 5), ("A", "working", 5), ("c", "working", 5)], "ABc"),
        ([("A", "unresponsive", None), ("B", "failed", 1), ("C", "ready", 100)], "BAC"),
    ],
    ids=["need first", "the oldest first", "then by name", "a hung session"],
)
def test_agents_are_sorted_by_urgency(given: list[tuple[str, str, float | None]], expected: str) -> None:
    assert "".join(each.name for each in by_urgency(session(*each) for each in given)) == expected


def texts(*sessions: SessionInfo, columns: int = 80, rows: int = 24, coloured: bool = False) -> list[str]:
    return frame(sessions, NOW, columns, rows, coloured=coloured)


def test_the_list_fits_80_columns() -> None:
    asking = session(
        *("Alice", "prompting", 65),
        prompt="permission",
        last_line="First I build.",
        question="May I run make?",
    )
    working = session("Bob", "working", 3700, last_line="Reading " + "x" * 100)
    assert texts(working, asking)[:3] == [
        "2 agents, 1 needs you: `relay next`   q quits",
        "NAME   STATE                   FOR  LAST LINE",
        "Alice  prompting (permission)  1m   May I run make?",
    ]
    assert len(texts(working, asking)[3]) == 80 and texts(working, asking)[3].startswith("Bob    working ")
    assert len(texts(working, asking)) == 4


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([("ready", 0), ("working", 0)], "none needs you "),
        ([("ready", 1), ("working", 0)], "1 needs you: `relay inbox`"),
        ([("ready", 1), ("prompting", 0)], "2 need you: `relay next`"),
        ([("unresponsive", 0), ("ready", 0)], "1 needs you: `relay inbox`"),
    ],
)
def test_the_first_row_counts_all_that_need_the_user(states: list[tuple[str, int]], expected: str) -> None:
    """C17: an agent with held messages is sorted first, so it is counted too."""
    agents = [session(f"A{at}", state, held=held) for at, (state, held) in enumerate(states)]
    assert f"2 agents, {expected}" in texts(*agents)[0]


def test_the_first_row_counts_what_is_unread() -> None:
    agents = [session("A", "ready")]
    shown = frame(agents, NOW, 80, 24, coloured=False, unread=3)[0]
    assert shown == "1 agent, none needs you, 3 unread: `relay inbox`   q quits"


def test_team_and_agent_are_shown_if_they_are_useful_and_fit() -> None:
    ours, theirs = session("A", "ready"), session("B", "ready", team="other")
    assert texts(ours, theirs)[1].split() == ["NAME", "TEAM", "STATE", "FOR", "LAST", "LINE"]
    assert texts(ours, theirs, columns=50)[1].split() == ["NAME", "STATE", "FOR", "LAST", "LINE"]
    assert texts(ours, columns=120)[1].split() == ["NAME", "AGENT", "STATE", "FOR", "LAST", "LINE"]


def test_agents_that_do_not_fit_are_counted() -> None:
    shown = texts(*(session(f"A{number}", "ready") for number in range(9)), rows=6)
    assert len(shown) == 6
    assert shown[-1] == "… and 6 others"
    assert len(texts(*(session(f"A{number}", "ready") for number in range(4)), rows=6)) == 6


def test_colours_follow_the_need_and_are_optional() -> None:
    coloured = texts(session("Alice", "failed"), coloured=True)[2]
    assert coloured.startswith(f"{COLOURS[Need.FAILED]}Alice\x1b[0m")
    assert "\x1b" not in "".join(texts(session("Alice", "failed")))


def test_the_home_folder_is_abbreviated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    agent = session("A", "ready")
    shown = [_row(replace(agent, cwd=cwd))[-1] for cwd in ("/home/you", "/home/you/src", "/home/your", "/")]
    assert shown == ["~", "~/src", "/home/your", "/"]


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(999, "999"), (999_949, "999.9k"), (999_950, "1.0M"), (999_949_999, "999.9M"), (999_950_000, "1.0G")],
)
def test_tokens_take_at_most_six_columns(tokens: int, shown: str) -> None:
    assert texts(session("A", "ready", tokens=tokens, cost=1.0), columns=120)[2].split()[4:] == [
        shown,
        "$1.00",
    ]


def test_tokens_and_cost_are_shown_if_they_fit() -> None:
    known = session("A", "ready", tokens=1_234_567, cost=12.5)
    unpriced = session("B", "ready", tokens=950)
    silent = session("C", "ready")
    wide = texts(known, unpriced, silent, columns=120)
    assert [line.split()[4:] for line in wide[1:]] == [
        ["TOKENS", "COST", "LAST", "LINE"],
        ["1.2M", "$12.50"],
        ["950", "?"],
        ["?", "?"],
    ]
    assert [name for name in ("TOKENS", "COST") if name in texts(known, columns=95)[1]] == ["COST"]
    assert "COST" not in texts(known)[1]
    assert "COST" not in texts(silent, columns=200)[1]


def test_without_agents_the_list_says_how_to_start_one() -> None:
    assert texts() == ["No agent is running. Start one with `relay wrap COMMAND`.   q quits"]
    assert frame(None, NOW, 80, 24, coloured=True) == ["looking ...   q quits"]


SESSIONS = st.builds(
    session,
    st.text("abAB", min_size=1, max_size=70),
    st.sampled_from(["ready", "prompting", "failed", "working"]),
    st.none() | st.floats(0, 1e7),
    team=st.text("ab", min_size=1, max_size=20),
    held=st.none() | st.integers(0, 5),
    tokens=st.none() | st.integers(0, 1 << 50),
    cost=st.none() | st.floats(0, 1e9),
    last_line=st.text(max_size=300),
)


@settings(max_examples=many(100))
@given(st.lists(SESSIONS, max_size=12), st.integers(1, 130), st.integers(1, 15))
def test_the_list_always_fits_and_has_no_control_characters(
    found: list[SessionInfo], columns: int, rows: int
) -> None:
    shown = texts(*found, columns=columns, rows=rows)
    assert len(shown) <= rows
    for line in shown:
        assert sum(map(width, line)) <= columns
        assert not [character for character in line if ord(character) < 32 or 127 <= ord(character) < 160]
