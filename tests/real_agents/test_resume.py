"""The next agent continues a killed agent's conversation, by the id from its hooks or its record."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped
from relay.agents import catalog
from relay.agents.conversation import Conversation
from relay.agents.resume import resume_command
from relay.home import Home

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "gemini", "opencode", "pi")

SCRIPT = (Rule("^first thing", "The bird is a heron."), Rule("^second thing", "It still is."))


def conversation(alice: Wrapped) -> str:
    """Return the id by which relay knows its conversation; "" while unknown."""
    return alice.info().get("session_id") or ""


def kill(alice: Wrapped) -> None:
    os.kill(alice.info()["agent_pid"], signal.SIGKILL)
    alice.rig.wait(alice.terminal.ended, "the session ends with its agent")


def resumed(alice: Wrapped, id: str, *, ready: bool = True) -> Wrapped:
    """Wrap the command that resumes the conversation `id` of Alice, who has ended."""
    home = Home.from_env(alice.rig.relay.environment)
    profile = catalog.for_command(alice.command, home)
    command = resume_command(profile, alice.command, Conversation(profile.name, id, alice.work))
    assert command is not None
    return alice.rig.wrap(alice.agent, alice.name, *SCRIPT, command=command, ready=ready)


def test_a_killed_agent_resumes_its_conversation(rig: Rig, agent: Agent) -> None:
    """The model gets the old conversation, and the command line's first prompt only once."""
    alice = rig.wrap(agent, "Alice", *SCRIPT, arguments=(*agent.prompts, "first thing"), ready=False)
    alice.sees("a heron")
    alice.becomes("ready")
    id = rig.wait(lambda: conversation(alice), "the id is known")
    assert alice.explain()["conversation"] == f"{id} (can be resumed)"
    kill(alice)
    again = resumed(alice, id)
    again.becomes("ready")
    again.say("second thing")
    again.sees("It still is")
    again.becomes("ready")
    said = [each.text for each in again.model.requests[-1].turn.said]
    assert len([text for text in said if "first thing" in text]) == 1, said
    assert len([text for text in said if "a heron" in text]) == 1, said
    assert "second thing" in said[-1]
    assert conversation(again) == id


@pytest.mark.agents("claude", "qwen", "pi")
def test_without_a_prompt_there_is_nothing_to_resume(rig: Rig, agent: Agent) -> None:
    """These agents report an id at once, but save nothing before the first prompt, and reject the id."""
    alice = rig.wrap(agent, "Alice")
    id = rig.wait(lambda: conversation(alice), "the id is known")
    assert alice.explain()["conversation"] == f"{id} (nothing to resume yet)"
    kill(alice)
    again = resumed(alice, id, ready=False)
    rig.wait(again.terminal.ended, "it does not start")
    assert again.terminal.code not in {0, None}


@pytest.mark.agents("claude", "codex", "qwen")
def test_a_child_of_the_agent_does_not_take_its_place(rig: Rig, agent: Agent) -> None:
    """The child runs in the agent's shell and folder, with its hooks, and starts its own conversation."""
    alice = rig.wrap(agent, "Alice", arguments=agent.free)
    arguments = Path(f"/proc/{alice.info()['agent_pid']}/cmdline").read_text().split("\0")
    hooks = arguments[arguments.index("--settings") :][:2] if agent.name == "claude" else []
    once = {"codex": ["exec", *agent.free]}.get(agent.name, [*agent.free, "-p"])
    child = shlex.join([str(agent.package.command), *hooks, *once, "a child asks"])
    alice.model.script = [
        Rule("^first thing", Step(calls=(Shell(f"{child} < /dev/null"),)), "It is done."),
        *SCRIPT,
    ]
    alice.say("first thing")
    alice.receives("a child asks")
    alice.sees("It is done")
    alice.becomes("ready")
    if hooks:
        starts = [each for each in alice.events("hook") if each["hook"] == "session_start"]
        assert len(starts) == 2, "the child has told of its own, too"
    (id,) = {each["conversation"] for each in alice.events("conversation")}
    assert conversation(alice) == id
    kill(alice)
    again = resumed(alice, id)
    again.say("second thing")
    again.receives("second thing")
    assert again.model.count("first thing")
    assert "a child asks" not in again.model.received("user")


def test_a_new_conversation_is_the_one_that_is_resumed(rig: Rig, agent: Agent) -> None:
    """/clear starts one with another id; Gemini without hooks does not report which."""
    alice = rig.wrap(agent, "Alice", *SCRIPT)
    alice.say("first thing")
    alice.sees("a heron")
    alice.becomes("ready")
    first = rig.wait(lambda: conversation(alice), "the id is known")
    alice.say(agent.clear)
    rig.wait(lambda: not alice.shows("a heron"), "the conversation is gone from the screen")
    alice.becomes("ready")
    alice.say("second thing")
    alice.sees("It still is")
    if agent.name == "gemini":
        rig.wait(lambda: not conversation(alice), "the id is not known any more")
        return
    second = rig.wait(lambda: {conversation(alice)} - {first}, "another id is known").pop()
    alice.becomes("ready")
    kill(alice)
    again = resumed(alice, second)
    again.say("second thing, again")
    again.receives("second thing, again")
    assert not again.model.count("first thing")
    assert again.model.count("second thing") == 2
