"""Which events a matcher selects: strings, objects, names of tools, and undecidable cases (R19-R21)."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.event import EVENTS, RuleEvent
from relay.rules.matcher import EVERYTHING, LONGEST, BadMatcher, Undecided, matcher
from relay.rules.tools import aliases, claude_name

CATASTROPHE = "(a|aa)+$"
"""A regular expression whose time doubles with each `a` in a text that does not end with one."""


def fits(value: object, event: str = "PreToolUse", **data: Any) -> bool:
    return matcher(value, EVENTS[event]).matches(RuleEvent(event, data))


EMPTY = EVENTS


def test_null_and_empty_matchers_match_everything(subtests: pytest.Subtests) -> None:
    """R19: regardless of the event's fields."""
    for value, event in itertools.product([None, "", "*", {}], EMPTY):
        with subtests.test(f"{event} {value!r}"):
            assert matcher(value, EVENTS[event]) is EVERYTHING
            assert fits(value, event)
            assert fits(value, event, tool_name="Bash", trigger="auto")


STRINGS = [
    ("Bash", "Bash", True),
    ("Bash", "BashOutput", False),  # letters are names, not a regular expression
    ("bash", "Bash", False),
    ("Edit|Write", "Write", True),
    ("Edit, Write", "Write", True),
    ("Edit|Write", "Read", False),
    ("mcp__memory__save", "mcp__memory__save", True),
    ("mcp__memory", "mcp__memory__save", False),
    ("my-tool", "my-tool", True),
    ("mcp__.*", "mcp__memory__save", True),
    ("mcp__.*", "Bash", False),
    ("ook.*d", "NotebookEdit", True),  # unanchored
    ("^Book", "NotebookEdit", False),
    ("^(Bash|Read)$", "Read", True),
    ("b.sh", "Bash", False),  # case counts
    ("Bash.", "Bash", False),
]


def test_a_string_is_exact_names_or_an_unanchored_regex(subtests: pytest.Subtests) -> None:
    """R20"""
    for value, tool, expected in STRINGS:
        with subtests.test(f"{value} {tool}"):
            assert fits(value, tool_name=tool) is expected


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("SessionStart", {"source": "resume"}),
        ("SessionEnd", {"reason": "resume"}),
        ("PreCompact", {"trigger": "resume"}),
        ("Notification", {"notification_type": "resume"}),
        ("PostToolUse", {"tool_name": "resume"}),
        ("PostToolUseFailure", {"tool_name": "resume"}),
    ],
)
def test_a_string_is_compared_with_the_matched_field_of_the_event(event: str, data: dict[str, str]) -> None:
    """R19, R37: as Claude Code documents it; if the event lacks the field, nothing matches."""
    assert fits("startup|resume", event, **data)
    assert fits("res.me", event, **data)
    assert not fits("startup", event, **data)
    assert not fits("startup|resume", event)
    assert not fits("startup|resume", event, other="resume")


OBJECTS = [
    ({"tool_name": "Bash"}, {"tool_name": "Bash"}, True),
    ({"tool_name": "Bash"}, {"tool_name": "BashOutput"}, False),
    ({"tool_name": "Bash"}, {}, False),
    ({"tool_name": "*"}, {}, False),  # a missing key does not match
    ({"tool_name": "*"}, {"tool_name": None}, False),
    ({"tool_name": "mcp__*__save"}, {"tool_name": "mcp__memory__save"}, True),
    ({"tool_name": "mcp__*__save"}, {"tool_name": "mcp__memory__saved"}, False),
    ({"tool_name": "B?sh"}, {"tool_name": "Bash"}, True),
    ({"tool_name": "B?sh"}, {"tool_name": "Bsh"}, False),
    ({"tool_name": "[B]ash"}, {"tool_name": "Bash"}, False),  # only * and ? are globs
    ({"tool_name": "[B]*"}, {"tool_name": "[B]ash"}, True),
    ({"tool_name": "a.b*"}, {"tool_name": "axb"}, False),
    ({"tool_name": "^(Bash|Read)$"}, {"tool_name": "Read"}, True),
    ({"tool_name": "^a|b$"}, {"tool_name": "xb"}, False),  # matches the whole text
    ({"tool_name": "Bash", "cwd": "/src/*"}, {"tool_name": "Bash", "cwd": "/src/a/b"}, True),
    ({"tool_name": "Bash", "cwd": "/src/*"}, {"tool_name": "Bash", "cwd": "/tmp"}, False),
    ({"tool_input.command": "*rm -rf*"}, {"tool_input": {"command": "ls\nrm -rf /\n"}}, True),
    ({"tool_input.command": "^.*rm -rf.*$"}, {"tool_input": {"command": "ls\nrm -rf /\n"}}, True),
    ({"tool_input.command": "*"}, {"tool_input": {"path": "x"}}, False),
    ({"tool_input.command": "*"}, {"tool_input": "x"}, False),
    ({"tool_input": "*rm -rf*"}, {"tool_input": {"command": "rm -rf /"}}, True),
    ({"is_interrupt": True}, {"is_interrupt": True}, True),
    ({"is_interrupt": True}, {"is_interrupt": False}, False),
    ({"n": 3}, {"n": 3}, True),
    ({"tool_name": "Bäsh*"}, {"tool_name": "Bäsh 1"}, True),
    ({"tool_name": "*\n"}, {"tool_name": "a\n"}, True),
    ({"tool_name": ""}, {"tool_name": ""}, True),
]


def test_an_object_matches_if_every_key_does(subtests: pytest.Subtests) -> None:
    """R19, R20"""
    for value, data, expected in OBJECTS:
        with subtests.test(f"{value} {data}"):
            assert fits(value, **data) is expected


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit"])
def test_an_object_works_for_events_without_a_matched_field(event: str) -> None:
    """R19: for these events a string has no effect, as in Claude Code."""
    assert fits("Bash", event, prompt="x")
    assert fits({"prompt": "*deploy*"}, event, prompt="please deploy it")
    assert not fits({"prompt": "*deploy*"}, event, prompt="please test it")


INVALID = [
    "(",
    "*.py",
    "[z-a]",
    {"tool_name": "^($"},
    {"tool_name": "^Bash"},
    {"tool_name": None},
    {"tool_name": []},
    {"tool_name": "Edit|Write"},
    *({"tool_name": {"a": 1}}, {"": "x"}, {"a..b": "x"}, [], ["Bash"], 3, True, "|", ", ,"),
]


def test_an_invalid_matcher_is_refused(subtests: pytest.Subtests) -> None:
    """R20"""
    for value in INVALID:
        with subtests.test(repr(value)), pytest.raises(BadMatcher):
            matcher(value, EVENTS["PreToolUse"])


TOOL_NAMES = [
    *(("Bash", "run_shell_command"), ("Bash", "exec_command"), ("Bash", "shell"), ("Read", "read_file")),
    *(("Write", "write_file"), ("Edit", "replace"), ("Edit", "edit"), ("Grep", "search_file_content")),
    *(("Grep", "grep_search"), ("Glob", "glob"), ("LS", "list_directory"), ("WebFetch", "web_fetch")),
    *(
        ("WebSearch", "google_web_search"),
        ("TodoWrite", "todo_write"),
        ("Agent", "task"),
        ("Task", "Agent"),
    ),
    *(("Edit", "apply_patch"), ("Write", "apply_patch"), ("ExitPlanMode", "exit_plan_mode")),
]


def test_each_name_of_a_tool_matches_the_other(subtests: pytest.Subtests) -> None:
    """R21: in strings and objects, as a name, a glob and a regular expression."""
    for one, other in TOOL_NAMES:
        with subtests.test(f"{one} {other}"):
            for name, tool in ((one, other), (other, one), (one, one), (other, other)):
                for value in (name, f"^{name}$", {"tool_name": name}, {"tool_name": f"^{name}$"}):
                    assert fits(value, tool_name=tool), (value, tool)
                assert fits({"tool_name": f"{name[:-1]}?"}, tool_name=tool)


def test_different_tools_do_not_match_each_other() -> None:
    """R21: a tool that edits with a patch does not make Edit and Write one tool."""
    assert not fits("Edit", tool_name="Write")
    assert not fits("Write", tool_name="replace")
    assert not fits("Read", tool_name="Bash")
    assert not fits({"cwd": "Bash"}, cwd="run_shell_command")  # only tools have several names


def test_a_tool_has_claude_codes_name() -> None:
    """R21"""
    assert claude_name("run_shell_command") == "Bash"
    assert claude_name("apply_patch") == "Edit"
    assert claude_name("Task") == "Task"
    assert claude_name("task") == "Agent"
    assert claude_name("mcp__memory__save") == "mcp__memory__save"
    for name in ("Bash", "Edit", "Write", "Agent"):
        assert claude_name(name) == name
    assert aliases("unknown_tool") == ("unknown_tool",)
    assert aliases("replace")[0] == "replace"


@pytest.mark.parametrize(
    "value",
    [{"tool_input.command": f"^{CATASTROPHE}"}, {"tool_name": f"^{CATASTROPHE}"}, CATASTROPHE],
    ids=repr,
)
def test_a_regex_that_takes_too_long_is_undecided(value: object) -> None:
    """R20: neither a match nor a mismatch; the rule book decides (test_rule_book)."""
    text = "a" * 100 + "!"
    with pytest.raises(Undecided, match="takes too long"):
        fits(value, tool_name=text, tool_input={"command": text})


def test_a_slow_regex_lets_other_threads_run() -> None:
    """R20: such as the one of the user's terminal."""
    compiled = matcher(CATASTROPHE, EVENTS["PreToolUse"])
    event = RuleEvent("PreToolUse", {"tool_name": "a" * 100 + "!"})
    go, ran = threading.Event(), []
    thread = threading.Thread(target=lambda: go.wait() and ran.append(True))
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # the other thread runs only if the lock is released
    try:
        go.set()
        for _ in range(50):
            with pytest.raises(Undecided):
                compiled.matches(event)
            if ran:
                break
        assert ran
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.parametrize("pattern", ["*rm -rf*", "^.*rm -rf.*$"])
def test_a_text_that_is_too_long_is_undecided(pattern: str) -> None:
    """R20: a long command must not get around a guard."""
    value = {"tool_input.command": pattern}
    with pytest.raises(Undecided, match="the limit is"):
        fits(value, tool_input={"command": "x" * LONGEST + " rm -rf /"})
    assert fits(value, tool_input={"command": "x" * (LONGEST - 10) + " rm -rf /"})


def test_exact_texts_and_a_lone_star_have_no_length_limit() -> None:
    text = "x" * (LONGEST + 1)
    assert fits({"tool_input.content": "*"}, tool_input={"content": text})
    assert fits({"tool_input.content": text}, tool_input={"content": text})
    assert not fits({"tool_input.content": "y"}, tool_input={"content": text})


def test_a_matcher_is_shown_as_in_the_file() -> None:
    assert str(matcher("Edit|Write", EVENTS["PreToolUse"])) == "Edit|Write"
    assert str(matcher({"b": "x", "a": 1}, EVENTS["Stop"])) == '{"a": 1, "b": "x"}'
    assert str(EVERYTHING) == "*"


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_glob_matches_any_text_at_its_star(before: str, after: str) -> None:
    """R20: a glob may contain any characters, even surrogates and newlines."""
    pattern = f"x{before}*{after}x"
    assert fits({"cwd": pattern}, cwd=f"x{before}anything\n{after}x")
    assert fits({"cwd": pattern}, cwd=pattern)
