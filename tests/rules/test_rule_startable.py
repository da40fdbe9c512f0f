"""Rules whose command cannot start are reported before any of them runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.rules.rule_file import parse
from relay.rules.startable import unstartable


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a guard, a file that is not executable, and a subfolder where the agent is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, mode in (("guard.py", 0o755), ("a b.py", 0o755), ("text", 0o644), ("sub/here", 0o755)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode)
    return tmp_path


def reported(project: Path, command: str, *args: str, event: str = "PreToolUse") -> list[str]:
    fields = {"type": "command", "command": command} | ({"args": args} if args else {})
    content = json.dumps({"hooks": {event: [fields]}}).encode()
    rules, _ = parse(project / "hooks.json", content, "project")
    return [warning.text for warning in unstartable(rules, project / "sub")]


@pytest.mark.parametrize(
    "command",
    [
        *("sh guard.sh", "nonesuch", "nonesuch | cat", "FOO=1 nonesuch", "nice -n 10 nonesuch", "./guard.py"),
        *('"$CLAUDE_PROJECT_DIR"/nowhere.py', '"${CLAUDE_PROJECT_DIR}/nowhere.py" -x', "~/nowhere.py"),
        *("$HOME/nowhere", "/nowhere/guard", "/etc", '"$CLAUDE_PROJECT_DIR"/text', "python3 -u nowhere.py"),
        *(
            'python3 "$CLAUDE_PROJECT_DIR"/nowhere.py --flag',
            "bash '../a c.py'",
            "$CLAUDE_PROJECT_DIR/guard.py/x",
        ),
    ],
)
def test_a_command_that_cannot_start_is_reported(project: Path, command: str) -> None:
    (text,) = reported(project, command)
    assert text.startswith("its command cannot start: ")
    assert text.endswith(" Until it can, relay denies the calls that it is for.")


@pytest.mark.parametrize(
    "command",
    [
        *("cat", "true", "exit 2", "[ -e x ]", "cd x && ./guard", "./here", "../guard.py", "FOO=1 ./here"),
        *(
            '"$CLAUDE_PROJECT_DIR"/guard.py',
            '"$CLAUDE_PROJECT_DIR/a b.py" -x',
            "~/guard.py",
            "$SOMEWHERE/guard",
        ),
        *("sh -c 'nonesuch'", "python3 -m json.tool", "python3 -c 'x'", "python3 -W ignore x.py", "sh"),
        *(
            'python3 "$CLAUDE_PROJECT_DIR"/guard.py',
            'sh "$X"',
            "npx prettier",
            "`which x`",
            "(nonesuch)",
            "x() { y; }",
        ),
        *("# a comment\ntrue", "if nonesuch; then exit 2; fi", "command -v jq", "f=1"),
    ],
)
def test_any_other_command_is_not(project: Path, command: str) -> None:
    assert reported(project, command) == []


def test_arguments_are_not_a_shells(project: Path) -> None:
    assert reported(project, "${CLAUDE_PROJECT_DIR}/a b.py", "x") == []
    assert reported(project, "python3", "${CLAUDE_PROJECT_DIR}/guard.py") == []
    assert reported(project, "$CLAUDE_PROJECT_DIR/guard.py", "x")
    assert reported(project, "python3", "${CLAUDE_PROJECT_DIR}/nowhere.py")


def test_it_says_why_and_what_follows(project: Path) -> None:
    assert reported(project, "../text", event="Stop") == [
        f"its command cannot start: {project}/sub/../text is not executable; use `chmod +x`."
    ]
