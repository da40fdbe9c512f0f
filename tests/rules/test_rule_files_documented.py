"""docs/RULES.md describes events, fields and tools as the code defines them (R11, R13, R17, R21)."""

from __future__ import annotations

import re
from pathlib import Path

from relay.rules.engine import DEADLINE
from relay.rules.event import EVENTS
from relay.rules.matcher import LONGEST, MATCH_TIMEOUT
from relay.rules.rule import TIMEOUT
from relay.rules.rule_file import LONGEST_TIMEOUT, parse
from relay.rules.tools import aliases, claude_name

PAGE = (Path(__file__).parents[2] / "docs" / "RULES.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Return the rows of the table that begins with `head`, without code marks."""
    text = PAGE.partition(f"{head}\n")[2].partition("\n\n")[0]
    return [
        [cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in text.splitlines()[1:]
    ]


def test_events_types_and_matched_fields_are_documented() -> None:
    """R11, R17"""
    rows = table("| event | types | a string matcher is compared with |")
    assert rows == [
        [event.name, ", ".join(sorted(event.kinds)), event.matched or "–"] for event in EVENTS.values()
    ]


def test_names_of_tools_are_documented() -> None:
    """R21"""
    rows = {first: tuple(others.split(", ")) for first, others in table("| Claude Code | elsewhere |")}
    assert "Bash" in rows
    for first, others in rows.items():
        assert aliases(first) == (first, *others)
        for other in others:
            assert first in aliases(other)
    for event in ("Bash", *(name for others in rows.values() for name in others)):
        assert claude_name(event) in {*rows, "Task"}


def test_the_first_example_is_valid_and_works_in_subfolders() -> None:
    """R12, R13"""
    example = PAGE.partition("```json\n")[2].partition("```")[0]
    rules, warnings = parse(Path("/p/hooks.json"), example.encode(), "user")
    assert [rule.shape for rule in rules] == ["group", "flat", "flat"]
    assert warnings == []
    assert all(rule.command.startswith('"$CLAUDE_PROJECT_DIR"/') for rule in rules if rule.kind == "command")


def test_limits_are_documented() -> None:
    """R13, R20"""
    assert f"together have {DEADLINE:g}, so a larger value means {DEADLINE:g}" in PAGE
    assert f"up to {LONGEST_TIMEOUT:.0f} |" in PAGE
    assert f"| `timeout` | {TIMEOUT:g} |" in PAGE
    assert f"more than {LONGEST:,} characters" in PAGE
    assert re.search(rf"longer than {MATCH_TIMEOUT:g} seconds", PAGE)
