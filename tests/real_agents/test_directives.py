"""Directives between real agents."""

from __future__ import annotations

from real_agents.house import House
from real_agents.model import Rule
from real_agents.recipes import Agent


def test_one_real_agent_answers_anothers_directive(house: House, agent: Agent) -> None:
    """R99: Alice's words reach Bob's model once, and his answer hers; the user only starts it."""
    alice = house.wrap(
        agent,
        "Alice",
        Rule("^begin", "I shall ask Bob.\n\n@relay:Bob ping-1, are you there?\n\nThat is sent."),
        Rule("pong-1", "Bob answered."),
    )
    bob = house.wrap(agent, "Bob", Rule("ping-1", "Gladly:\n\n@relay:Alice pong-1, I am here."))
    alice.say("begin now")
    bob.hears("ping-1, are you there?")
    alice.hears("pong-1, I am here.")
    alice.sees("Bob answered")
    alice.becomes("ready")
    assert bob.model.count("ping-1") == 1
    assert alice.model.count("pong-1") == 1
