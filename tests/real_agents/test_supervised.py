"""Real agents that crash restart in the same terminal, with their conversation."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from real_agents.model import Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "copilot")

KEYS = {"restart": "on-failure", "backoff": 0.1, "prompt": "first thing"}


def crash(alice: Wrapped, restarts: int) -> None:
    """Kill the agent, and wait until its successor is ready."""
    os.kill(alice.info()["agent_pid"], signal.SIGKILL)
    alice.rig.wait(lambda: alice.info().get("restarts") == restarts, "the agent restarts")
    alice.becomes("ready")


def test_an_agent_that_crashed_in_a_turn_continues_it(rig: Rig, agent: Agent) -> None:
    """It has the old conversation, also after `relay restart`, and does not get the first prompt again."""
    hold = threading.Event()
    script = (
        Rule("first thing", "The bird is a heron."),
        Rule("^second thing", Step("It stands in the reeds.", hold=hold, after=1)),
        Rule("^third thing", "It still is."),
        Rule("^fourth thing", "It flew away."),
    )
    alice = rig.wrap(agent, "Alice", *script, supervision=KEYS)
    alice.sees("a heron")
    alice.becomes("ready")
    alice.say("second thing")
    rig.wait(
        lambda: any("second thing" in each.turn.user for each in alice.model.requests), "the model gets it"
    )
    crash(alice, 1)
    alice.receives("You were interrupted")
    hold.set()
    alice.becomes("ready")
    alice.say("third thing")
    alice.sees("It still is")
    alice.becomes("ready")
    assert "with its conversation" in rig.relay("restart", "Alice").stdout
    alice.becomes("ready")
    alice.say("fourth thing")
    alice.sees("It flew away")
    alice.becomes("ready")
    texts = [each.text for each in alice.model.requests[-1].turn.entries]
    assert len([text for text in texts if "first thing" in text]) == 1, texts
    assert len([text for text in texts if "a heron" in text]) == 1, texts
    assert any("fourth thing" in text for text in texts[-2:])  # then, instructions of relay mcp
    alice.send("hello again", 60)
    alice.receives("hello again")
    phases = [event["phase"] for event in alice.events("phase")]
    assert phases == ["backoff", "starting", "starting"]


def test_an_agent_that_the_user_quits_is_not_restarted(rig: Rig, agent: Agent) -> None:
    """Even with a policy that restarts it after every exit."""
    alice = rig.wrap(agent, "Alice", Rule("first", "Yes."), supervision={"restart": "always"})
    alice.say("first")
    alice.sees("Yes")
    alice.becomes("ready")
    if agent.name == "qwen":
        alice.say("/quit")
    else:
        for key in "\x03\x03\x04":
            alice.type(key)
    rig.wait(alice.terminal.ended, "it ends")
    assert alice.events("phase")[-1]["phase"] == "done"
