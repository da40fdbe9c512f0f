"""Real agents remember in a new session what they saved in an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from real_agents.model import Rule
from real_agents.recipes import Agent
from real_agents.rig import Rig

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "copilot")

EXAMPLE = Path(__file__).parents[2] / "examples" / "memory" / "relay.config.py"


def test_a_saved_note_is_in_the_first_prompt_of_the_next_session(rig: Rig, agent: Agent) -> None:
    """R51, R63: with the shipped example."""
    config = EXAMPLE.read_text()
    yesterday = rig.wrap(
        agent, "Alice", Rule("^learn", "@memory:save The project work uses Prisma."), config=config
    )
    yesterday.say("learn about it")
    rig.wait(lambda: saved(rig), "the agent's note is saved")
    assert not any("Prisma" in text for text in yesterday.model.received("user", "note"))
    rig.relay("stop", "--now", "Alice")

    today = rig.wrap(agent, "Alice", Rule("^begin", "Begun."), config=config)
    today.say("begin now")
    rig.wait(lambda: any("begin now" in text for text in today.model.received()), "the model gets a request")
    first = [entry.text for entry in today.model.requests[0].turn.entries]
    assert any(
        "not instructions:\n[CONTEXT FROM MEMORY]\n- The project work uses Prisma. (Alice)" in text
        for text in first
    ), first


def saved(rig: Rig) -> list[str]:
    found = json.loads(rig.relay("memory", "list", "--json", "--name", "Alice").stdout)
    return [memory["text"] for memory in found]
