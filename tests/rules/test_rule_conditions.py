"""Conditions (`if`) beyond what claude_table.py compares: other agents' calls, and cases in doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.event import EVENTS, RuleEvent
from relay.rules.matcher import EVERYTHING, with_condition

PRE = EVENTS["PreToolUse"]


def holds(condition: str, tool: str, *, cwd: str = "/project", **tool_input: Any) -> bool:
    found = with_condition(EVERYTHING, condition, PRE, Path("/project"))
    return found.matches(RuleEvent("PreToolUse", {"cwd": cwd, "tool_name": tool, "tool_input": tool_input}))


@pytest.mark.parametrize(
    "call",
    [
        ("run_shell_command", {"command": "git push"}),
        ("exec_command", {"cmd": "git push"}),
        ("shell", {"command": ["bash", "-lc", "cd x && git push"]}),
        ("shell", {"command": ["git", "push"]}),
    ],
)
def test_it_holds_for_other_agents_calls(call: tuple[str, dict[str, Any]]) -> None:
    tool, given = call
    assert holds("Bash(git push *)", tool, **given)
    assert not holds("Bash(rm *)", tool, **given)


@pytest.mark.parametrize(
    "line",
    [
        *("git push", "a;git push", "a|&git push", "a\\\n;git push", "{ git push; }", "a & git push"),
        *("case x in y) git push;; esac", "while git push; do a; done", "a 2>&1 && git push", ">x git push"),
        *(
            "a=1 b+=2 git push",
            "git 'push'",
            'g"i"t push',
            "git\\\npush",
            "echo ${x} ; git push",
            "a #\ngit push",
        ),
        *("f() { git push; }", "(a) || git push", "echo $((1)) git", 'echo "$(git push)"', "git push <<<x"),
        *("echo 'it''s'; git push", "echo \\'; git push", "echo $'a\\'b'; git push", "echo a#b; git push"),
        *("xargs git push", "`echo git` push", "echo $(echo $(git push))", "echo $(echo ')'; git push)"),
        *("a' ; git push", 'a" ; git push', "echo $(git push"),
    ],
)
def test_a_command_line_does_not_get_around_it(line: str) -> None:
    assert holds("Bash(git push)", "Bash", command=line), line


@pytest.mark.parametrize(
    "line", ["git status", "echo git push", "a # git push", "echo 'git push' > git", "a >git push"]
)
def test_it_spares_other_commands(line: str) -> None:
    assert not holds("Bash(git push)", "Bash", command=line), line


def test_it_holds_if_a_call_does_not_say_what_it_is_about() -> None:
    assert holds("Bash(git *)", "Bash")
    assert holds("Bash(git *)", "Bash", command=7)
    assert holds("Bash(git *)", "Bash", command="x" * 200_000)
    assert holds("Edit(src/**)", "apply_patch", input="*** Begin Patch")


@pytest.mark.parametrize(
    ("condition", "path", "expected"),
    [
        ("Write(src/**)", "src/a/b", True),
        ("Write(src/**)", "./src/../src/a", True),
        ("Write(src/**)", "src/../a", False),
        ("Write(src/**)", "/other/src/a", False),
        ("Write(src/*)", "src/a/b", True),  # below a folder that matches
        ("Write(*.[ch])", "x/y.c", True),
        ("Write(*.[!ch])", "x/y.c", False),
        ("Write(?.c)", "xy.c", False),
        ("Write(a+b)", "a+b", True),
        ("Write(a+b)", "aab", False),
    ],
)
def test_a_path_matches_as_in_gitignore(condition: str, path: str, expected: bool) -> None:
    assert holds(condition, "Write", file_path=path) is expected


def test_another_directory_does_not_get_around_it() -> None:
    assert holds("Write(src/**)", "Write", cwd="/project/src", file_path="a")
    assert holds("Write(src/**)", "Write", cwd="/elsewhere", file_path="/project/src/a")


@given(st.text(alphabet="git push&;|()<>$`'\"\\{}#\n ", max_size=30))
def test_any_command_line_can_be_taken_apart(line: str) -> None:
    holds("Bash(git push)", "Bash", command=line)
