"""Relay knows every field of an event that agents report (R18, R19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.agents import kinds
from relay.rules.event import EVENTS, from_native

RECORDED = Path(__file__).parents[1] / "agents" / "payloads"


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "pi", "qwen"])
def test_each_field_that_agents_report_is_known(agent: str) -> None:
    """R18: otherwise relay would warn that a matcher for the field fits nothing."""
    found = set()
    for path in sorted((RECORDED / agent).glob("*.json")):
        native = kinds.find(agent).parse("", path.read_text())
        event = from_native(native) if native else None
        if event is not None:
            found.add(event.name)
            assert set(event.data) <= set(EVENTS[event.name].fields), path
    assert len(found) > 4


def test_each_event_has_the_field_that_its_string_matchers_use() -> None:
    """R19"""
    for event in EVENTS.values():
        assert event.matched in (*event.fields, "")
