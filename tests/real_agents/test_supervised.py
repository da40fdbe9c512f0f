"""Real agents that die: they restart by themselves, in the same terminal, with their conversation."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from real_agents.model import Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

pytestmark = pytest.mark.agents("claude", "codex", "qwen")

KEYS = {"restart": "on-failure", "backoff": 0.1, "prompt": "first thing"}


def die(alice: Wrapped, restarts: int) -> None:
    """Kill the agent, and wait until the next one is ready."""
    os.kill(alice.info()["agent_pid"], signal.SIGKILL)
    alice.rig.wait(lambda: alice.info().get("restarts") == restarts, "another agent follows")
    alice.becomes("ready")


def test_a_crash_in_mid_turn(rig: Rig, agent: Agent) -> None:
    """The first prompt is given once; the next agent has the old conversation, and is told to continue."""
    hold = threading.Event()
    script = (
        Rule("first thing", "The bird is a heron."),
        Rule("^second thing", Step("It stands in the reeds.", hold=hold, after=1)),
        Rule("^third thing", "It still is."),
    )
    alice = rig.wrap(agent, "Alice", *script, supervision=KEYS)
    alice.sees("a heron")
    alice.becomes("ready")
    alice.say("second thing")
    rig.wait(lambda: any("second thing" in each.turn.user for each in alice.model.requests), "it is asked")
    die(alice, 1)
    alice.receives("You were interrupted")
    hold.set()
    alice.becomes("ready")
    alice.say("third thing")
    alice.sees("It still is")
    alice.becomes("ready")
    said = [each.text for each in alice.model.requests[-1].turn.said]
    assert len([text for text in said if "first thing" in text]) == 1, said
    assert len([text for text in said if "a heron" in text]) == 1, said
    assert "third thing" in said[-1]
    alice.send("hello again", 60)
    alice.receives("hello again")
    phases = [event["phase"] for event in alice.events("phase")]
    assert phases == ["backoff", "starting"]


def test_the_agent_of_a_finished_conversation_is_done(rig: Rig, agent: Agent) -> None:
    """An agent that the user quits is not restarted, even if the policy restarts it after every exit."""
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
