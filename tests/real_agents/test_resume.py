"""A new agent resumes a killed agent's conversation by the id from its hooks or its record."""

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

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "gemini", "opencode", "pi", "copilot")

SCRIPT = (Rule("^first thing", "The bird is a heron."), Rule("^second thing", "It still is."))


def conversation(alice: Wrapped) -> str:
    """Return the conversation's id as relay knows it, or "" while unknown."""
    return alice.info().get("session_id") or ""


def kill(alice: Wrapped) -> None:
    os.kill(alice.info()["agent_pid"], signal.SIGKILL)
    alice.rig.wait(alice.terminal.ended, "the session ends with its agent")


def resume(alice: Wrapped, id: str, *, ready: bool = True) -> Wrapped:
    """Resume the conversation `id` of Alice, which has ended."""
    home = Home.from_env(alice.rig.relay.environment)
    profile = catalog.for_command(alice.command, home)
    command = resume_command(profile, alice.command, Conversation(profile.name, id, alice.work))
    assert command is not None
    return alice.rig.wrap(alice.agent, alice.name, *SCRIPT, command=command, ready=ready)


def test_a_killed_agent_resumes_its_conversation(rig: Rig, agent: Agent) -> None:
    """The model gets the old conversation, with the first prompt of the command line only once."""
    alice = rig.wrap(agent, "Alice", *SCRIPT, arguments=(*agent.prompts, "first thing"), ready=False)
    alice.sees("a heron")
    alice.becomes("ready")
    id = rig.wait(lambda: conversation(alice), "the id is known")
    assert alice.explain()["conversation"] == f"{id} (can be resumed)"
    kill(alice)
    again = resume(alice, id)
    again.becomes("ready")
    again.say("second thing")
    again.sees("It still is")
    again.becomes("ready")
    conversation_texts = [each.text for each in again.model.requests[-1].turn.entries]
    assert len([text for text in conversation_texts if "first thing" in text]) == 1, conversation_texts
    assert len([text for text in conversation_texts if "a heron" in text]) == 1, conversation_texts
    assert any("second thing" in text for text in conversation_texts[-2:])  # then, instructions of relay mcp
    assert conversation(again) == id


@pytest.mark.agents("claude", "qwen", "pi", "copilot")
def test_without_a_prompt_there_is_nothing_to_resume(rig: Rig, agent: Agent) -> None:
    """These agents report an id at once, but save nothing before the first prompt."""
    alice = rig.wrap(agent, "Alice")
    id = rig.wait(lambda: conversation(alice), "the id is known")
    assert alice.explain()["conversation"] == f"{id} (nothing to resume yet)"
    kill(alice)
    again = resume(alice, id, ready=False)
    rig.wait(again.terminal.ended, "it does not start")
    assert again.terminal.code not in {0, None}


@pytest.mark.agents("claude", "codex", "qwen")
def test_a_child_of_the_agent_is_not_taken_for_it(rig: Rig, agent: Agent) -> None:
    """A child in the agent's shell and folder, with its hooks, starts its own conversation."""
    alice = rig.wrap(agent, "Alice", arguments=agent.free)
    arguments = Path(f"/proc/{alice.info()['agent_pid']}/cmdline").read_text().split("\0")
    hooks = arguments[arguments.index("--settings") :][:2] if agent.name == "claude" else []
    headless = {"codex": ["exec", *agent.free]}.get(agent.name, [*agent.free, "-p"])
    child = shlex.join([str(agent.package.command), *hooks, *headless, "a child asks"])
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
        assert len(starts) == 2, "the child must have reported its own, too"
    (id,) = {each["conversation"] for each in alice.events("conversation")}
    assert conversation(alice) == id
    kill(alice)
    again = resume(alice, id)
    again.say("second thing")
    again.receives("second thing")
    assert again.model.count("first thing")
    assert "a child asks" not in again.model.received("user")


def test_the_newest_conversation_is_resumed(rig: Rig, agent: Agent) -> None:
    """/clear changes the id; Gemini, without hooks, does not report the new one."""
    alice = rig.wrap(agent, "Alice", *SCRIPT)
    alice.say("first thing")
    alice.sees("a heron")
    alice.becomes("ready")
    first = rig.wait(lambda: conversation(alice), "the id is known")
    alice.say(agent.clear)
    rig.wait(lambda: not alice.shows("a heron"), "the screen is cleared")
    alice.becomes("ready")
    alice.say("second thing")
    alice.sees("It still is")
    if agent.name == "gemini":
        rig.wait(lambda: not conversation(alice), "the id is unknown")
        return
    second = rig.wait(lambda: {conversation(alice)} - {first}, "another id is known").pop()
    alice.becomes("ready")
    kill(alice)
    again = resume(alice, second)
    again.say("second thing, again")
    again.receives("second thing, again")
    assert not again.model.count("first thing")
    assert again.model.count("second thing") == 2
