"""In which group an agent is shown, in which order, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from boards import agent, board, waits
from relay.control.board import Board, Group

GROUPS = [
    ("prompting", "", Group.NEEDS_YOU),
    ("working", "question", Group.NEEDS_YOU),
    ("failed", "failed", Group.NEEDS_YOU),
    ("held", "held", Group.NEEDS_YOU),
    ("working", "escalation", Group.NEEDS_YOU),
    ("unresponsive", "", Group.NEEDS_YOU),
    ("ready", "runaway", Group.NEEDS_YOU),
    ("working", "", Group.WORKING),
    ("starting", "", Group.WORKING),
    ("a state of a later version", "", Group.WORKING),
    ("working", "message", Group.WORKING),
    ("working", "notice", Group.WORKING),
    ("ready", "", Group.WAITING),
    ("unsafe", "", Group.WAITING),
    ("stopped", "", Group.WAITING),
    ("backoff", "", Group.WAITING),
    ("waiting", "", Group.WAITING),
    ("done", "", Group.DONE),
    ("off", "", Group.DONE),
    ("gone", "", Group.DONE),
    ("failed", "", Group.DONE),  # the user knows
]


def test_the_group_follows_from_the_state_and_the_inbox(subtests: pytest.Subtests) -> None:
    for state, kind, expected in GROUPS:
        with subtests.test(f"{state}, {kind}"):
            inbox = (waits(kind, "A"),) if kind else ()
            (entry,) = board(agent("A", state), inbox=inbox).entries
            assert entry.group is expected


def order(found: Board) -> str:
    return "".join(entry.agent.name for entry in found.entries)


def test_the_most_urgent_come_first_then_the_oldest_then_by_name() -> None:
    asks, failed = waits("question", "B"), waits("failed", "C")
    assert order(board(agent("A"), agent("B", age=1), agent("C", age=99), inbox=(asks, failed))) == "BCA"
    assert order(board(agent("A", "done"), agent("B"), agent("C", "working"))) == "CBA"
    assert order(board(agent("A", age=1), agent("B", age=60), agent("C", age=None))) == "BAC"
    assert order(board(agent("B", age=5), agent("c", age=5), agent("A", age=5))) == "ABc"


def test_a_question_is_shown_instead_of_the_last_line(subtests: pytest.Subtests) -> None:
    """C17."""
    said = {"last_line": "First I build."}
    cases = [
        (agent("A", "prompting", question="May I run make?", **said), "question", "May I run make?"),
        (agent("A", "held", **said), "held", "Why?"),
        (agent("A", "working", **said), "notice", "First I build."),
        (agent("A", "done", reason="exited with 0"), "notice", "exited with 0"),
    ]
    for known, kind, expected in cases:
        with subtests.test(expected):
            (entry,) = board(known, inbox=(waits(kind, "A"),)).entries
            assert entry.line == expected and entry.public()["line"] == expected


def test_unread_items_are_counted_for_the_agents_they_concern() -> None:
    inbox = (waits("message", "A"), waits("notice", "A", read=True), waits("configuration", "A, B"))
    found = board(agent("A"), agent("b"), agent("A", team="other"), inbox=inbox)
    counted = {(entry.agent.team, entry.agent.name): entry.unread for entry in found.entries}
    assert counted == {("default", "A"): 2, ("default", "b"): 1, ("other", "A"): 0}
    assert found.unread == 2


def test_the_branch_is_that_of_the_folder_or_its_worktree(tmp_path: Path) -> None:
    git, tree, bare = tmp_path / "repo" / ".git", tmp_path / "tree", tmp_path / "bare"
    for folder in (git / "worktrees" / "tree", tmp_path / "repo" / "src", tree, bare):
        folder.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (git / "worktrees" / "tree" / "HEAD").write_text("0123456789abcdef\n")
    (tree / ".git").write_text(f"gitdir: {git}/worktrees/tree\n")
    folders = [tmp_path / "repo" / "src", tree, bare]
    found = board(*(agent(str(at), cwd=str(folder)) for at, folder in enumerate(folders)))
    assert [entry.branch for entry in found.entries] == ["feature/x", "01234567", ""]


def test_what_has_ended_or_has_no_terminal_cannot_be_shown() -> None:
    program = agent("P", pid=5, terminal_pid=None)
    gone = agent("G", "gone", pid=None, terminal_pid=None)
    found = board(agent("A"), agent("U", "unresponsive"), program, gone)
    can = {entry.agent.name: (entry.runs, entry.has_screen) for entry in found.entries}
    assert can == {"A": (True, True), "U": (True, False), "P": (True, False), "G": (False, False)}
