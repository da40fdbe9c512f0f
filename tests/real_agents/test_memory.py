"""Memory with real agents: what was saved yesterday is known today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from real_agents.model import Rule
from real_agents.recipes import Agent
from real_agents.rig import Rig

pytestmark = pytest.mark.agents("claude", "codex", "qwen")

EXAMPLE = Path(__file__).parents[2] / "examples" / "memory" / "relay.config.py"


def test_a_note_of_yesterday_is_in_the_first_prompt_of_today(rig: Rig, agent: Agent) -> None:
    """R51, R63: the shipped example does this with what the agent itself saved."""
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
    rig.wait(lambda: any("begin now" in text for text in today.model.received()), "the model is asked")
    first = [said.text for said in today.model.requests[0].turn.said]
    assert any(
        "not instructions:\n[CONTEXT FROM MEMORY]\n- The project work uses Prisma. (Alice)" in text
        for text in first
    ), first


def saved(rig: Rig) -> list[str]:
    found = json.loads(rig.relay("memory", "list", "--json", "--name", "Alice").stdout)
    return [memory["text"] for memory in found]
