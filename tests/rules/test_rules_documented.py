"""The table of events and agents in docs/RULES.md matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.agents import hook_setup, kinds
from relay.agents.hook_event import NativeEvent
from relay.features.derived_rules import DERIVED
from relay.rules.event import EVENTS, from_native

PAGE = (Path(__file__).parents[2] / "docs" / "RULES.md").read_text(encoding="utf-8")
AGENTS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "copilot": "Copilot CLI",
    "qwen": "Qwen Code",
    "gemini": "Gemini CLI",
    "pi": "pi",
    "opencode": "opencode",
}
OTHER = "any other program"


def table() -> dict[str, dict[str, str]]:
    """Return the documented table: event → column → kind of support, without footnote numbers."""
    section = PAGE.partition("## Which agent reports which event")[2]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("|")]
    heads, _, *rest = [[_plain(cell) for cell in row] for row in rows]
    return {
        name: dict(zip(heads[1:], cells, strict=True))
        for name, *cells in rest
        if len(cells) == len(heads) - 1
    }


def _plain(cell: str) -> str:
    return re.sub(r"[`¹²³⁴-⁹]", "", cell).strip()


def support(agent: str, event: str) -> str:
    """Return how the code supports `event` for `agent`; "" means a program without a bridge."""
    requested = hook_setup.entries(kinds.find(agent), "/socket") if agent else {}
    native_events = (from_native(NativeEvent(kinds.find(agent).events[own], agent, own)) for own in requested)
    if event in {each.name for each in native_events if each is not None}:
        return "native"
    return "derived" if event in DERIVED else "–"


@pytest.mark.parametrize("event", EVENTS)
def test_the_table_has_the_support_for_each_event_by_each_agent(event: str) -> None:
    """R11: native, derived, or not available."""
    assert table()[event] == {
        **{title: support(agent, event) for agent, title in AGENTS.items()},
        OTHER: support("", event),
    }


def test_the_table_has_every_event_and_every_agent_with_a_bridge() -> None:
    """R11."""
    assert (
        sorted([*AGENTS, "relay"]) == kinds.hooked()
    )  # a program with relay's own dialect may report any event
    assert list(table())[: len(EVENTS)] == list(EVENTS)


def test_the_page_on_agents_lists_each_with_a_bridge() -> None:
    page = (Path(__file__).parents[2] / "docs" / "AGENTS.md").read_text(encoding="utf-8")
    section = page.partition("## Agent by agent")[2].partition("\n\n")[2].partition("\n\n")[0]
    agents = [line.strip("| ").partition("|")[0].strip() for line in section.splitlines()[2:]]
    assert sorted(re.sub(r"( [\d.]+,?)+$", "", agent) for agent in agents) == sorted(AGENTS.values())


def test_every_footnote_exists() -> None:
    section = PAGE.partition("## Which agent reports which event")[2]
    signs = "¹²³⁴⁵⁶⁷⁸⁹"
    used = {sign for line in section.splitlines() if line.startswith("|") for sign in line if sign in signs}
    assert {signs.index(sign) + 1 for sign in used} == {
        int(n) for n in re.findall(r"^(\d)\. ", section, re.MULTILINE)
    }
