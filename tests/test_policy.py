"""The tool calls that the user has allowed in advance, and those that such rules do not cover."""

from __future__ import annotations

import pytest

from relay.errors import ConfigError
from relay.policy import Policy


@pytest.mark.parametrize(
    ("rule", "tool", "tool_input"),
    [
        ("Bash(git status)", "Bash", {"command": "git status", "description": "see"}),
        ("Bash(git diff *)", "Bash", {"command": "git diff --stat HEAD~1"}),
        ("Bash(echo a; echo b)", "Bash", {"command": "echo a; echo b"}),
        ("Bash(git diff *)", "Bash", {"command": "git diff main..HEAD"}),
        ("Write(../src/*)", "Write", {"file_path": "../src/a"}),
        ("Bash(git log [a-z]*)", "Bash", {"command": "git log main"}),
        ("Read", "Read", {"file_path": "/etc/hosts"}),
        ("Write(/tmp/*)", "Write", {"file_path": "/tmp/x", "content": "y"}),
        ('Other({"a": 1})', "Other", {"a": 1}),
        ("mcp__files.read", "mcp__files.read", {}),
        ("Grep(/src/*)", "Grep", {"path": "/src/a", "file_path": "/src/b"}),
    ],
)
def test_a_rule_allows_a_call(rule: str, tool: str, tool_input: dict[str, object]) -> None:
    assert Policy(["Nothing", rule]).allows(tool, tool_input) == rule


NOT_COVERED = [
    ("Bash(git status)", "Bash", {"command": "git status; rm -rf ."}),
    ("Bash(git status)", "Bash", {"command": " git status"}),
    ("Bash(git *)", "Bash", {"command": "git status && rm x"}),
    ("Bash(git *)", "Bash", {"command": "git log | sh"}),
    ("Bash(git *)", "Bash", {"command": "git log\nrm x"}),
    ("Bash(git *)", "Bash", {"command": "git log `rm x`"}),
    ("Bash(git *)", "Bash", {"command": "git log $(rm x)"}),
    ("Bash(git * | wc)", "Bash", {"command": "git log; rm x | wc"}),
    ("Bash(git log [!-]*)", "Bash", {"command": "git log x; reboot"}),
    ("Bash(echo [;&]*)", "Bash", {"command": "echo ;reboot;"}),
    ("Write(/src/*)", "Write", {"file_path": "/src/../etc/passwd"}),
    ("Write(../src/*)", "Write", {"file_path": "../src/../a"}),
    ("Read(docs/*)", "Read", {"file_path": "docs/.."}),
    ("Bash(cat docs/*)", "Bash", {"command": "cat docs/../../secret"}),
    ("Bash(git status)", "Read", {"command": "git status"}),
    ("bash(git status)", "Bash", {"command": "git status"}),
    ("Bash(git status)", "Bash", {}),
    ("Bash()", "Bash", {"command": "ls"}),
    ("Write(/src/*)", "Write", {"command": "/src/x", "file_path": "/root/.bashrc"}),  # D13
    ("Write(/src/*)", "Write", {"file_path": "/src/x", "path": ["/root/.bashrc"]}),
]


def test_a_rule_does_not_cover_another_call(subtests: pytest.Subtests) -> None:
    for rule, tool, tool_input in NOT_COVERED:
        with subtests.test(f"{rule} {tool} {tool_input}"):
            assert Policy([rule]).allows(tool, tool_input) is None


def test_without_rules_no_call_is_allowed() -> None:
    assert Policy().allows("Read", {"file_path": "x"}) is None


@pytest.mark.parametrize("rule", ["", "(x)", "Bash(git", "two words", "*"])
def test_an_invalid_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="is not a rule: write a tool"):
        Policy([rule])
