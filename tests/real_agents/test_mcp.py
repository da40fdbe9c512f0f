"""Real agents call relay's tools with their own MCP clients, without being asked for permission."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_agents.model import Rule, RelayCall, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig
from relay.agents import kinds
from relay.agents.version import numbers
from support import Relay

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "gemini")


@pytest.fixture
def rig(relay: Relay, agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Yield a rig whose agents can have the tools: Gemini takes them only from a folder of root's."""
    if numbers(agent.package.version) < numbers(kinds.find(agent.name).mcp_since):
        pytest.skip(f"{agent.name} {agent.package.version} takes no MCP server for a run")
    with Rig(relay) as rig:
        yield rig


def test_an_agent_with_tools_talks_to_one_that_prints_directives(rig: Rig, agent: Agent) -> None:
    """The message reaches the other's model once, and so does the answer."""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule(
            "^begin",
            Step("I shall ask Bob.", calls=(RelayCall("send_message", {"to": "Bob", "text": "ping-1?"}),)),
            "That is sent.",
        ),
        Rule("pong-1", "Bob answered."),
    )
    assert alice.explain()["mcp"]
    bob = rig.wrap(agent, "Bob", Rule("ping-1", "Gladly:\n\n@relay:Alice pong-1, I am here."))
    alice.say("begin now")
    alice.sees("That is sent")
    bob.receives("ping-1?")
    alice.receives("pong-1, I am here.")
    alice.becomes("ready")
    assert bob.model.count("ping-1?") == 1
    assert alice.model.count("pong-1") == 1
    (row,) = rig.messages("Bob")
    assert (row["from"], row["state"]) == ("Alice", "injected")
