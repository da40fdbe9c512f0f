"""What the user has allowed in advance, and what that does not cover."""

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
    ],
)
def test_it_allows(rule: str, tool: str, tool_input: dict[str, object]) -> None:
    assert Policy(["Nothing", rule]).allows(tool, tool_input) == rule


@pytest.mark.parametrize(
    ("rule", "tool", "tool_input"),
    [
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
    ],
)
def test_it_does_not_cover(rule: str, tool: str, tool_input: dict[str, object]) -> None:
    assert Policy([rule]).allows(tool, tool_input) is None


def test_without_rules_everything_is_asked() -> None:
    assert Policy().allows("Read", {"file_path": "x"}) is None


@pytest.mark.parametrize("rule", ["", "(x)", "Bash(git", "two words", "*"])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="is not a rule: write a tool"):
        Policy([rule])
