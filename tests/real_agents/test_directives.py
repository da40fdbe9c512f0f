"""Real agents exchange messages by directives."""

from __future__ import annotations

from real_agents.model import Rule
from real_agents.recipes import Agent
from real_agents.rig import Rig


def test_an_agent_answers_the_directive_of_another(rig: Rig, agent: Agent) -> None:
    """R99: each message reaches the other's model once."""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", "I shall ask Bob.\n\n@relay:Bob ping-1, are you there?\n\nThat is sent."),
        Rule("pong-1", "Bob answered."),
    )
    bob = rig.wrap(agent, "Bob", Rule("ping-1", "Gladly:\n\n@relay:Alice pong-1, I am here."))
    alice.say("begin now")
    bob.receives("ping-1, are you there?")
    alice.receives("pong-1, I am here.")
    alice.sees("Bob answered")
    alice.becomes("ready")
    assert bob.model.count("ping-1") == 1
    assert alice.model.count("pong-1") == 1
