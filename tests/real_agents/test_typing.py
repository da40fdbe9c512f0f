"""Texts typed into real agents arrive exactly, once, and never at a harmful moment."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import PATIENCE, Rig, Wrapped

HOLDS = 3.0
"""Seconds for which a message must stay waiting: longer than relay ever takes to type one."""

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


def test_texts_arrive_exactly_and_once(rig: Rig, agent: Agent) -> None:
    """Every row of the typing table is typed in turn; each message's outcome is known."""
    alice = rig.wrap(agent, "Alice")
    arrive(alice, BODIES)
    assert not (alice.work / "typed-bang").exists()


def test_texts_of_any_length_arrive_exactly_and_once(rig: Rig, agent: Agent) -> None:
    arrive(rig.wrap(agent, "Alice"), LENGTHS)


def arrive(alice: Wrapped, bodies: Mapping[str, str]) -> None:
    """Send them to an idle agent one after another; its model gets each complete, and once."""
    for body in bodies.values():
        assert alice.send(body, PATIENCE) == "injected", f"{body[:40]!r}\n{alice.describe()}"
        alice.receives(body)
        alice.becomes("ready")
    assert {name: alice.model.count(body) for name, body in bodies.items()} == dict.fromkeys(bodies, 1)


def test_control_characters_are_not_typed(rig: Rig, agent: Agent) -> None:
    """An ESC, the end of a paste or a Ctrl-C in a message has no effect and is removed."""
    alice = rig.wrap(agent, "Alice")
    alice.send("one \x1b[31mred\x1b[0m two\x1b[201~ three\x03 four\x1b five")
    alice.receives("five")
    (text,) = [text for text in alice.model.received() if "five" in text]
    assert re.search(r"one \S*red\S* two\S* three four\s?five", text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    assert alice.model.count("four") == 1


def test_a_message_waits_for_a_draft_and_leaves_it_whole(rig: Rig, agent: Agent) -> None:
    """The user's half-typed line is neither lost nor merged with a message."""
    alice = rig.wrap(agent, "Alice")
    alice.type("half a thou")
    alice.sees("half a thou")
    assert alice.send("for later", wait=HOLDS) == "stored"
    alice.type("ght")
    alice.sees("half a thought")
    alice.type("\r")
    alice.receives("half a thought")
    alice.receives("for later")
    drafts = [text for text in alice.model.received("user") if "half" in text]
    # qwen appends context, 0.24.4 in a tag.
    assert [re.split(r"\[relay|<qwen:", text)[0].strip() for text in drafts] == ["half a thought"]
    assert alice.model.count("for later") == 1


def test_a_message_while_an_answer_streams_neither_cuts_it_nor_is_lost(rig: Rig, agent: Agent) -> None:
    """Whether the agent queues input or relay waits, the answer is complete and the message arrives."""
    go_on = threading.Event()
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step(ESSAY, hold=go_on, after=60)))
    alice.say("begin now")
    alice.sees(r"Point \d+ takes")  # aider draws the rest of a row later
    alice.send("while you speak", wait=HOLDS)
    answered = alice.model.answered
    go_on.set()
    rig.wait(lambda: alice.model.answered > answered, "the answer was taken to its end")
    alice.receives("while you speak")
    alice.becomes("ready")
    assert alice.model.count("while you speak") == 1
    assert ESSAY in alice.model.received("assistant")


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "pi")
def test_a_message_while_a_tool_runs_is_heard_once(rig: Rig, agent: Agent) -> None:
    """The message may arrive with the tool's result or after the turn; the command runs to its end."""
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


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "opencode", "aider")
def test_a_permission_dialog_is_never_answered_by_a_message(rig: Rig, agent: Agent) -> None:
    """The message waits while the dialog is open, and arrives once the user has refused."""
    alice = _asked_permission(rig, agent)
    assert alice.send("2 of us say yes, y", wait=HOLDS) == "stored"
    assert alice.state.startswith("prompting")
    assert alice.shows(agent.permission)
    _refuse(alice)
    alice.receives("2 of us say yes, y")
    alice.becomes("ready")
    assert alice.model.count("2 of us say yes, y") == 1
    assert not (alice.work / "approved").exists()


@pytest.mark.agents("claude", "qwen")
def test_a_question_is_never_answered_by_a_message(rig: Rig, agent: Agent) -> None:
    """R89: the question is recognised; the message waits, and no choice is reported to the model."""
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
    assert not any("Blue" in text for text in alice.model.received("result"))


@pytest.mark.agents("claude", "codex", "qwen", "opencode")
def test_a_dialog_is_known_after_its_terminal_was_resized(rig: Rig, agent: Agent) -> None:
    """The dialog is redrawn with different line breaks, and still recognised."""
    alice = _asked_permission(rig, agent)
    for columns, rows in ((200, 50), (60, 24)):
        begin = len(alice.terminal.output)
        alice.terminal.resize(columns, rows)
        rig.wait(lambda at=begin: len(alice.terminal.output) > at, "it is drawn anew")
        alice.sees(agent.permission)
        alice.becomes("prompting")
    assert alice.send("2 of us say yes, y", wait=HOLDS) == "stored"
    _refuse(alice)
    alice.receives("2 of us say yes, y")
    assert alice.model.count("2 of us say yes, y") == 1
    assert not (alice.work / "approved").exists()


def _asked_permission(rig: Rig, agent: Agent) -> Wrapped:
    """Return an agent that asks whether a command may run."""
    offer = "Let me see.\n\n```bash\ntouch approved\n```\n"  # aider has no tools and uses these
    step = Step(offer) if agent.name == "aider" else Step(calls=(Shell("touch approved", escalate=True),))
    alice = rig.wrap(agent, "Alice", Rule("^begin", step, "As you like."))
    alice.say("begin now")
    alice.sees(agent.permission)
    alice.becomes("prompting")
    return alice


def _refuse(alice: Wrapped) -> None:
    """Refuse as the user does."""
    alice.type("n\r" if alice.agent.name == "aider" else "\x1b")
    alice.rig.wait(lambda: not alice.state.startswith("prompting"), "the dialog is over")
