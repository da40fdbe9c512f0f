"""Directives and messages arrive once, even if agents are killed, restarted or refused by their API."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig

HOLDS = 3.0
"""Seconds for which a message must stay waiting."""

BODY = (
    "the first of several sentences that are together wider than any terminal of this test, so that the "
    "agent has to wrap them, perhaps more than once, and relay has to put them together again, word by word"
)


@pytest.mark.parametrize("columns", [60, 200])
def test_a_directive_is_received_once_at_any_width(rig: Rig, agent: Agent, columns: int) -> None:
    """A body wider than the terminal is complete if the agent has hooks."""
    alice = rig.wrap(agent, "Alice", Rule("^begin", f"Now then.\n\n@relay:you {BODY}\n"), columns=columns)
    alice.say("begin now")
    rig.wait(lambda: rig.messages("you"), "the directive arrives")
    alice.becomes("ready")
    bodies = [row["body"] for row in rig.messages("you")]
    assert len(bodies) == 1
    if agent.native:
        assert bodies == [BODY]
    assert bodies[0].split()[:4] == BODY.split()[:4]


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "opencode", "copilot")
def test_a_killed_agents_message_goes_to_its_successor(rig: Rig, agent: Agent) -> None:
    """The message was waiting for a dialog to close."""
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step(calls=(Shell("touch approved", escalate=True),))))
    alice.say("begin now")
    alice.sees(agent.permission)
    alice.becomes("prompting")
    assert alice.send("for the next agent", wait=HOLDS) == "stored"
    os.kill(alice.info()["agent_pid"], signal.SIGKILL)
    rig.wait(alice.terminal.ended, "the session ends with its agent")
    assert alice.terminal.code == 128 + signal.SIGKILL
    second = rig.wrap(agent, "Alice")
    second.receives("for the next agent")
    second.becomes("ready")
    assert (alice.model.count("for the next agent"), second.model.count("for the next agent")) == (0, 1)
    assert not (alice.work / "approved").exists()


@pytest.mark.agents("claude", "codex", "gemini", "qwen", "copilot")
def test_an_agent_outlives_its_window(rig: Rig, agent: Agent) -> None:
    """The window is closed in a turn; the turn goes on, and a terminal that attaches shows it."""
    hold = threading.Event()
    script = Rule("^begin", Step("The bird is a heron.", hold=hold, after=1)), Rule("^go on", "It flew away.")
    alice = rig.wrap(agent, "Alice", *script)
    pid = alice.info()["agent_pid"]
    alice.say("begin now")
    rig.wait(lambda: alice.model.requests, "the model gets a request")
    alice.terminal.hang_up()
    rig.wait(alice.terminal.ended, "the client ends")
    hold.set()
    again = rig.attach(agent, "Alice", alice.placed, alice.command)
    again.sees("a heron")
    again.becomes("ready")
    again.say("go on")
    again.sees("It flew away")
    assert again.info()["agent_pid"] == pid


def test_a_failing_api_loses_no_message(rig: Rig, agent: Agent) -> None:
    """The API returns 529, which most agents retry, then 401, on which they give up."""
    alice = rig.wrap(agent, "Alice", Rule("", Step(status=529)))
    alice.say("begin now")
    rig.wait(lambda: alice.model.requests, "the model gets a request")
    alice.send("are you well?")
    alice.model.script = [Rule("", Step(status=401))]

    def given_up() -> bool:
        return alice.model.requests[-1].step.status == 401

    rig.wait(
        lambda: given_up() or alice.state == "failed",
        "the model gets another request, or the agent has failed",
    )
    if not given_up():  # pi 0.87.1
        alice.say("once more")
        rig.wait(given_up, "the model gets another request")
    alice.becomes("ready", "failed")
    alice.model.script = []
    alice.say("try it again")
    alice.receives("try it again")
    alice.receives("are you well?")
    alice.becomes("ready")
    assert alice.model.count("are you well?") == 1


@pytest.mark.agents("claude", "codex", "qwen", "pi", "gemini", "opencode", "copilot")
def test_a_new_conversation_repeats_no_directive(rig: Rig, agent: Agent) -> None:
    """R99: after /clear, old directives do not count again, and messages arrive."""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^first", "Now then.\n\n@relay:you before it"),
        Rule("^second", "Now then.\n\n@relay:you after it"),
    )
    alice.say("first thing")
    rig.wait(lambda: rig.messages("you"), "the directive arrives")
    alice.becomes("ready")
    alice.say(agent.clear)
    rig.wait(lambda: not alice.shows("before it"), "the screen is cleared")
    alice.becomes("ready")
    alice.send("news for you")
    alice.receives("news for you")
    alice.becomes("ready")
    alice.say("second thing")
    rig.wait(lambda: len(rig.messages("you")) > 1, "the second directive arrives")
    assert [row["body"] for row in rig.messages("you")] == ["before it", "after it"]
    assert alice.model.count("news for you") == 1


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_a_resumed_conversation_repeats_no_directive(rig: Rig, agent: Agent) -> None:
    """Even though the old conversation is redrawn."""
    script = (Rule("^first", "Now then.\n\n@relay:you before it"), Rule("^second", "@relay:you after it"))
    alice = rig.wrap(agent, "Alice", *script)
    alice.say("first thing")
    rig.wait(lambda: rig.messages("you"), "the directive arrives")
    alice.becomes("ready")
    rig.relay("stop", "--now", "Alice")
    rig.wait(alice.terminal.ended, "the session ends")
    again = rig.wrap(agent, "Alice", *script, arguments=agent.resume)
    again.sees("before it")
    again.becomes("ready")
    again.say("second thing")
    rig.wait(lambda: len(rig.messages("you")) > 1, "the second directive arrives")
    again.becomes("ready")
    assert [row["body"] for row in rig.messages("you")] == ["before it", "after it"]


def test_an_agent_outlives_killed_sessions(rig: Rig, agent: Agent) -> None:
    """S7: the agent keeps its process and conversation; each directive and each message counts once."""
    rules = [Rule(f"^say {n}", f"@relay:you number {n}") for n in ("one", "two", "three")]
    alice = rig.wrap(agent, "Alice", *rules)
    before = alice.info()
    for count, word in enumerate(("one", "two", "three"), start=1):
        alice.say(f"say {word}")
        rig.wait(lambda count=count: len(rig.messages("you")) >= count, "the directive arrives")
        alice.becomes("ready")
        session = alice.info()["session_pid"]
        os.kill(session, signal.SIGKILL)
        rig.wait(
            lambda session=session: alice.info().get("session_pid") not in {None, session},
            "another session is running",
        )
    alice.becomes("ready")
    alice.send("are you still there?")
    alice.receives("are you still there?")
    assert [row["body"] for row in rig.messages("you")] == ["number one", "number two", "number three"]
    assert alice.model.count("are you still there?") == 1
    after = alice.info()
    assert (after["agent_pid"], after["terminal_pid"]) == (before["agent_pid"], before["terminal_pid"])
