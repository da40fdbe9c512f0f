"""docs/FLEET.md documents every event and action, and its examples are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docsite import fleet_keys
from relay.errors import ConfigMistakes
from relay.supervision import agent_tables, fleet_file
from relay.supervision.policy import ActionName

PAGE = (Path(__file__).parents[2] / "docs" / "FLEET.md").read_text()


@pytest.mark.parametrize("title", fleet_keys.TABLES)
def test_each_key_has_a_kind_and_a_meaning(title: str) -> None:
    found = list(fleet_keys.rows(title))
    assert found and all(value and help for _, value, _, help in found)


def test_every_event_and_action_is_documented() -> None:
    for event, actions in agent_tables.ACTIONS.items():
        assert f"| `{event}` | {', '.join(f'`{action}`' for action in actions)} |" in PAGE
    meanings = {
        name
        for line in PAGE[PAGE.index("| action | |") :].splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if line.startswith("|") else "")
    }
    assert set(ActionName.__args__) <= meanings


def example(folder: Path) -> str:
    (folder / "tasks").mkdir()
    (folder / "tasks" / "lead.md").write_text("Lead them.\n")
    return re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_example_is_a_valid_fleet_file(tmp_path: Path) -> None:
    fleet = fleet_file.parse(tmp_path / "relay.toml", example(tmp_path).encode())
    assert list(fleet.agents) == ["db", "Lead", "Ann"]
    assert fleet.agents["Lead"].task == "Lead them."
    assert fleet.agents["Ann"].supervision.max_cost == 20


def test_the_documented_mistakes_are_the_reported_ones(tmp_path: Path) -> None:
    text = example(tmp_path).replace("max_cost", "max_costs").replace('["db"]', '["dbs"]')
    with pytest.raises(ConfigMistakes) as raised:
        fleet_file.parse(tmp_path / "relay.toml", text.encode())
    (shown,) = re.findall(r"```\n(relay: .*?)```", PAGE, re.DOTALL)
    assert f"relay: {raised.value}\n".replace(str(tmp_path), "/src/web") == shown
