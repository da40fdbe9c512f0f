"""docs/HOOKS.md and docs/CONFIG.md have every field and option, and their examples run."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from docsite import events
from hooks.rig import Rig, texts
from relay.builtin.memory import ACTIONS
from relay.hooks.config_file import ConfigFile, load
from relay.hooks.context import Context, MemoryService, RelayService
from relay.hooks.events import Idle
from relay.hooks.registry import Registry
from relay.hooks.result import HookResult
from relay.memory.config import MemoryConfig

DOCS = Path(__file__).parents[2] / "docs"
HOOKS = (DOCS / "HOOKS.md").read_text()
CONFIG = (DOCS / "CONFIG.md").read_text()


def test_every_event_has_a_meaning_for_the_manual() -> None:
    assert [name for name, _, meaning in events.rows() if not meaning.endswith(".")] == []


def test_every_attribute_of_the_context_and_of_a_result_is_documented(rig: Rig):
    contexts = []

    async def scene(runner, ctx, services):
        contexts.append(ctx)

    rig.run(scene)
    (context,) = contexts
    public = {name for name in dir(context) if not name.startswith("_")} - {"for_call"}
    public |= {name for kind in (MemoryService, RelayService) for name in vars(kind) if name[0] != "_"}
    assert {name for name in public if not re.search(rf"\b{name}\b", HOOKS)} == set()
    assert {f.name for f in fields(HookResult) if f"`{f.name}`" not in HOOKS} == {"source", "place"}
    assert isinstance(context, Context)


def test_every_memory_action_and_setting_is_documented():
    assert [action for action in ACTIONS if f"`@memory:{action}" not in HOOKS] == []
    assert [f.name for f in fields(MemoryConfig) if f.compare and f"| `{f.name}` |" not in CONFIG] == []


def examples(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "source", [each for each in examples(HOOKS) + examples(CONFIG) if "def test_" not in each]
)
def test_every_example_loads(rig: Rig, tmp_path: Path, source):
    loaded = load(ConfigFile(tmp_path / "relay.config.py", source.encode()), rig.registry)
    assert loaded.registry.handlers() or "Relay(name=" in source


def test_the_first_example_works(rig: Rig, tmp_path: Path):
    """R49, R50"""
    source = examples(HOOKS)[0]
    rig.registry.include(load(ConfigFile(tmp_path / "c.py", source.encode()), Registry()).registry)
    assert texts(rig.say("@deploy:staging v1.2.3")[0].results) == ["Deployed v1.2.3 to staging"]


def test_the_nudge_example_works(rig: Rig, tmp_path: Path):
    """R56"""
    (source,) = [example for example in examples(HOOKS) if "def nudge" in example]
    rig.registry.include(load(ConfigFile(tmp_path / "c.py", source.encode()), Registry()).registry)
    results, _ = rig.fire(Idle(30.4))
    assert texts(results) == ["Nothing has happened for 30 s. What is the state?"]
    assert results[0].user_message == "The agent was nudged."
