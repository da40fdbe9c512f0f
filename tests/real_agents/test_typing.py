"""Texts typed into real agents arrive exactly, once, and never at a harmful moment."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import PATIENCE, Rig, Wrapped, has_door

HOLDS = 3.0
"""Seconds for which a message must stay waiting: longer than relay takes to type one."""

WORDS = " ".join(f"word{number:04}" for number in range(1334))
ESSAY = "\n\n".join(f"Point {number} takes its time." for number in range(1, 61))

LENGTHS = {
    **{f"{size} characters": f"{size} of {WORDS}"[:size] for size in (40, 500, 5000, 12000)},
    "500 characters without a blank": WORDS.replace(" ", "")[:500],
    "200 lines": "\n".join(f"line {number} of two hundred" for number in range(1, 201)),
}
BODIES = {
    "several lines": "first line\n\n    fourth column\n- a point\nlast line",
    "a trailing word with @": "please ask @someone",
    "a leading !": "!touch typed-bang",
    "a leading /": "/clear is what one types for that",
    "a trailing backslash": "a path is C:\\",
}


def test_texts_arrive_once_and_exactly(rig: Rig, agent: Agent) -> None:
    """Each text of BODIES, typed in turn."""
    alice = rig.wrap(agent, "Alice")
    check_arrival(alice, BODIES)
    assert not (alice.work / "typed-bang").exists()


def test_texts_of_any_length_arrive_once_and_exactly(rig: Rig, agent: Agent) -> None:
    check_arrival(rig.wrap(agent, "Alice"), LENGTHS)


def check_arrival(alice: Wrapped, bodies: Mapping[str, str]) -> None:
    """Send the texts to an idle agent one after another; the model gets each once, complete."""
    for body in bodies.values():
        assert alice.send(body, PATIENCE) == "injected", f"{body[:40]!r}\n{alice.describe()}"
        alice.receives(body)
        alice.becomes("ready")
    assert {name: alice.model.count(body) for name, body in bodies.items()} == dict.fromkeys(bodies, 1)


def test_control_characters_are_not_typed(rig: Rig, agent: Agent) -> None:
    """ESC, the end of a paste and Ctrl-C are removed from a message."""
    alice = rig.wrap(agent, "Alice")
    alice.send("one \x1b[31mred\x1b[0m two\x1b[201~ three\x03 four\x1b five")
    alice.receives("five")
    (text,) = [text for text in alice.model.received() if "five" in text]
    assert re.search(r"one \S*red\S* two\S* three four\s?five", text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    assert alice.model.count("four") == 1


def test_a_message_waits_for_a_draft_and_leaves_it_intact(rig: Rig, agent: Agent) -> None:
    """The user's half-typed line is neither lost nor merged with a message; its inbox takes one."""
    alice = rig.wrap(agent, "Alice")
    alice.type("half a thou")
    alice.sees("half a thou")
    assert alice.send("for later", wait=HOLDS) == ("injected" if has_door(agent) else "stored")
    alice.type("ght")
    alice.sees("half a thought")
    alice.type("\r")
    alice.receives("half a thought")
    alice.receives("for later")
    drafts = [text for text in alice.model.received("user") if "half a" in text]
    # qwen appends context, 0.24.4 in a tag.
    assert [re.split(r"\[relay|<qwen:", text)[0].strip() for text in drafts] == ["half a thought"]
    assert alice.model.count("for later") == 1


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "copilot")
def test_a_message_waits_for_a_recalled_prompt(rig: Rig, agent: Agent) -> None:
    """Also with the cursor before it, as before a suggestion; once it is erased, the message comes."""
    alice = rig.wrap(agent, "Alice")
    alice.type("remember the milk")
    alice.sees("remember the milk")
    alice.type("\r")
    alice.receives("remember the milk")
    alice.becomes("ready")
    alice.type("\x1b[A")
    rig.wait(lambda: "unsent text" in alice.explain()["reason"], "the prompt is recalled")
    alice.type("\x01")  # Ctrl-A
    assert alice.send("for later", wait=HOLDS) == ("injected" if has_door(agent) else "stored")
    alice.type("\x0b")  # Ctrl-K
    alice.receives("for later")
    assert [alice.model.count(text) for text in ("remember the milk", "for later")] == [1, 1]
    assert not [text for text in alice.model.received("user") if "for later" in text and "milk" in text]


def test_a_message_during_a_streamed_answer_arrives_without_cutting_it(rig: Rig, agent: Agent) -> None:
    """Whether the agent queues the input or relay waits."""
    release = threading.Event()
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step(ESSAY, hold=release, after=60)))
    alice.say("begin now")
    alice.sees(r"Point \d+ takes")  # aider draws the rest of a row later
    alice.send("while you speak", wait=HOLDS)
    answered = alice.model.answered
    release.set()
    rig.wait(lambda: alice.model.answered > answered, "the agent has read the whole answer")
    alice.receives("while you speak")
    alice.becomes("ready")
    assert alice.model.count("while you speak") == 1
    assert ESSAY in alice.model.received("assistant")


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "pi", "copilot")
def test_a_message_during_a_tool_call_arrives_once(rig: Rig, agent: Agent) -> None:
    """With the tool's result or after the turn; the command finishes."""
    command = Shell("touch started; until test -e go; do sleep 0.05; done; echo fini''shed")
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step(calls=(command,)), "It ran."), arguments=agent.free)
    alice.say("begin now")
    rig.wait((alice.work / "started").exists, "the command runs")
    alice.send("while it runs", wait=HOLDS)
    (alice.work / "go").touch()
    alice.receives("finished")
    alice.receives("while it runs")
    alice.becomes("ready")
    assert alice.model.count("while it runs") == 1


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "opencode", "aider", "copilot")
def test_a_permission_dialog_is_never_answered_by_a_message(rig: Rig, agent: Agent) -> None:
    """The message waits until the user has answered the dialog."""
    alice = _agent_asking_permission(rig, agent)
    assert alice.send("2 of us say yes, y", wait=HOLDS) == "stored"
    assert alice.state.startswith("prompting")
    assert alice.shows(agent.permission)
    _refuse(alice)
    alice.receives("2 of us say yes, y")
    alice.becomes("ready")
    assert alice.model.count("2 of us say yes, y") == 1
    assert not (alice.work / "approved").exists()


@pytest.mark.agents("claude", "qwen", "copilot")
def test_a_question_is_never_answered_by_a_message(rig: Rig, agent: Agent) -> None:
    """R89: the message waits, and the model gets no choice."""
    assert agent.question_call is not None
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step("Let me ask.", calls=(agent.question_call,))))
    alice.say("begin now")
    alice.sees(agent.question)
    alice.becomes("prompting")
    assert alice.send("Blue, I think", wait=HOLDS) == "stored"
    assert alice.state == "prompting (question)"
    assert len(alice.model.requests) == 1
    alice.type("\x1b")
    alice.receives("Blue, I think")
    assert alice.model.count("Blue, I think") == 1
    # copilot adds a hook's context to the tool's result.
    assert not any("Blue" in text.partition("[relay ")[0] for text in alice.model.received("result"))


@pytest.mark.agents("claude", "codex", "qwen", "opencode", "copilot")
def test_a_dialog_is_recognized_after_a_resize(rig: Rig, agent: Agent) -> None:
    """Although it is redrawn with other line breaks."""
    alice = _agent_asking_permission(rig, agent)
    for columns, rows in ((200, 50), (60, 24)):
        begin = len(alice.terminal.output)
        alice.terminal.resize(columns, rows)
        rig.wait(lambda at=begin: len(alice.terminal.output) > at, "it is redrawn")
        alice.sees(agent.permission)
        alice.becomes("prompting")
    assert alice.send("2 of us say yes, y", wait=HOLDS) == "stored"
    _refuse(alice)
    alice.receives("2 of us say yes, y")
    assert alice.model.count("2 of us say yes, y") == 1
    assert not (alice.work / "approved").exists()


def _agent_asking_permission(rig: Rig, agent: Agent) -> Wrapped:
    """Return an agent that asks whether a command may run."""
    offer = "Let me see.\n\n```bash\ntouch approved\n```\n"  # aider has no tools and uses these
    step = Step(offer) if agent.name == "aider" else Step(calls=(Shell("touch approved", escalate=True),))
    alice = rig.wrap(agent, "Alice", Rule("^begin", step, "As you like."))
    alice.say("begin now")
    alice.sees(agent.permission)
    alice.becomes("prompting")
    return alice


def _refuse(alice: Wrapped) -> None:
    """Refuse the command, as the user would."""
    alice.type("n\r" if alice.agent.name == "aider" else "\x1b")
    alice.rig.wait(lambda: not alice.state.startswith("prompting"), "the dialog is over")
