"""Real agents that find the others of their team in their own lists, and write to them from there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from real_agents.dialects import Call
from real_agents.model import Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, has_door
from session.fake_agent import FakeAgent

pytestmark = pytest.mark.agents("claude", "qwen")

LIST = {"claude": "ListAgents", "qwen": "list_agents"}
FOLDER = {"claude": ".claude/sessions", "qwen": ".qwen/sessions"}
TEXT = "do the tests pass?\n<b>請</b> & tell me"


def write(agent: Agent, to: str, text: str) -> Call:
    if agent.name == "claude":
        return Call("SendMessage", {"to": to, "message": text, "summary": "a question"})
    return Call("send_message", {"to": to, "message": text})


class Listing:
    """The agent Alice, which lists and writes as its user says; Bob is a plain program."""

    def __init__(self, rig: Rig, agent: Agent) -> None:
        if not has_door(agent):
            pytest.skip(f"{agent.name} {agent.package.version} has no list of sessions")
        self.rig = rig
        self.bob = FakeAgent(rig.relay, "Bob").wrap()
        lists, writes = Step(calls=(Call(LIST[agent.name], {}),)), Step(calls=(write(agent, "Bob", TEXT),))
        script = Rule("who is there", lists, "I see."), Rule("write to Bob", writes, "I wrote.")
        self.alice = rig.wrap(agent, "Alice", *script, arguments=agent.free)  # Qwen Code asks otherwise
        rig.wait(lambda: "Bob" in self.records(), "Bob is in its list")

    def records(self) -> list[str]:
        """Return the names in the agent's list."""
        folder = Path(self.alice.placed.environment["HOME"], FOLDER[self.alice.agent.name])
        return [json.loads(file.read_text()).get("name") for file in folder.glob("*.json")]

    def results(self) -> str:
        """Return what its tools have returned."""
        return "\n".join(
            e.text for r in self.alice.model.requests for e in r.turn.entries if e.role == "result"
        )


def test_it_lists_the_team_and_writes_to_one_by_name(rig: Rig, agent: Agent) -> None:
    """The message arrives once, from the agent, by the ledger; the answer comes by the agent's own inbox."""
    place = Listing(rig, agent)
    alice, bob = place.alice, place.bob
    assert alice.explain()["peers"] == 1
    alice.say("Please say who is there.")
    rig.wait(lambda: "Bob" in place.results(), "it lists Bob")
    alice.becomes("ready")
    alice.say("Now write to Bob.")
    bob.receives("do the tests pass?")
    alice.sees("I wrote")
    alice.becomes("ready")
    (row,) = rig.messages("Bob")
    assert (row["from"], row["body"], row["state"]) == ("Alice", TEXT, "injected")
    assert "Timed out" not in place.results()
    bob.say("@relay:Alice yes, they pass")
    alice.receives("yes, they pass")
    rig.wait(lambda: [r["state"] for r in rig.messages("Alice")] == ["injected"], "it is injected")
    (answer,) = rig.messages("Alice")
    assert (answer["from"], answer["route"], answer["reply_to"]) == ("Bob", "door", row["id"])
    named = {"claude": 'from-name="Bob"', "qwen": 'name="Bob"'}[agent.name]
    rig.wait(lambda: alice.model.count(named), "its model is told the name")


def test_two_of_a_kind_write_to_each_other_by_their_names(rig: Rig, agent: Agent) -> None:
    """Both have the same list."""
    place = Listing(rig, agent)
    ann = rig.wrap(agent, "Ann", beside="Alice", arguments=agent.free)
    rig.wait(lambda: {"Ann", "Bob", "Alice"} <= set(place.records()), "all are in the list")
    place.alice.model.script = [Rule("write to Ann", Step(calls=(write(agent, "Ann", TEXT),)), "I wrote.")]
    place.alice.say("Now write to Ann.")
    ann.receives("do the tests pass?")
    (row,) = rig.messages("Ann")
    assert (row["from"], row["body"]) == ("Alice", TEXT)


@pytest.mark.agents("claude")  # Qwen Code writes to others only from its terminal program
def test_what_the_users_own_agent_outside_relay_writes_is_refused(rig: Rig, agent: Agent) -> None:
    """The words of a model are not the user's."""
    place = Listing(rig, agent)
    placed = place.alice.placed
    command = [agent.package.command, "-p", "Now write to Bob.", *placed.arguments]
    subprocess.run(command, env=placed.environment, cwd=placed.work, check=True, timeout=100)
    assert "Failed to send to Bob" in place.results()
    assert place.bob.events("refused")
    assert rig.messages("Bob") == []
