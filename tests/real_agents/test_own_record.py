"""The directives of agents without hooks are read once and exactly from the agents' own records."""

from __future__ import annotations

import threading

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

pytestmark = pytest.mark.agents("gemini", "aider")

TEXT = "\n".join(
    [
        "First **this**:",
        "",
        "@relay:you said before the tool, **in bold**, with https://example.com/" + "a-long-path/" * 12,
        "",
        "```text",
        "@relay:you said in a fence",
        "```",
        "",
        "> @relay:you said in a quote",
        "",
        "- item",
        "",
        "\\@relay:you said behind a backslash",
        "",
        "@relay:you 请检查这个文件 🧑‍💻👍🏽 now",
    ]
)
EXPECTED = [
    "said before the tool, **in bold**, with https://example.com/" + "a-long-path/" * 12,
    "请检查这个文件 🧑‍💻👍🏽 now",
]


def received(rig: Rig) -> list[str]:
    return [row["body"] for row in rig.messages("you")]


def recorded(agent: Wrapped) -> str:
    return str(agent.explain().get("record", ""))


def test_directives_are_read_from_the_agents_own_record(rig: Rig, agent: Agent) -> None:
    """As the model wrote them; a tool's output, a fence and a quote do not count (F16)."""
    run = "echo @relay:you said by a tool"
    step, more = Step(TEXT, calls=(Shell(run),)), "@relay:you said last"
    if agent.name == "aider":  # it has shell commands in its text
        step, more = Step(f"{TEXT}\n\n```bash\n{run}\n```\n"), more
    alice = rig.wrap(
        agent, "Alice", Rule("^begin", step, more), Rule("by a tool|^again", more), arguments=agent.free
    )
    alice.say("begin now")
    if agent.name == "aider":
        alice.sees(agent.permission)
        alice.type("y\r")
        alice.sees("Add command output")
        alice.type("y\r")
        alice.becomes("ready")
        alice.say("again please")
    rig.wait(lambda: "said last" in received(rig), "all directives arrive")
    alice.becomes("ready")
    assert received(rig) == [*EXPECTED, "said last"]
    assert recorded(alice) == "it reports the agent's words"
    alice.say("again please")
    rig.wait(lambda: len(received(rig)) > len(EXPECTED) + 1, "the same directive arrives again")
    alice.becomes("ready")
    assert received(rig) == [*EXPECTED, "said last", "said last"]


@pytest.mark.agents("gemini")
def test_a_new_conversation_is_read_from_the_screen(rig: Rig, agent: Agent) -> None:
    """After /clear, which changes the session's id, nothing is lost or repeated."""
    hold = threading.Event()
    rules = (
        Rule("^begin", "Hello.\n\n@relay:you first"),
        Rule("^go on", Step("@relay:you second\n\nThat is all.", hold=hold)),
    )
    alice = rig.wrap(agent, "Alice", *rules, Rule("^more", "@relay:you third\n\nThat, too."))
    alice.say("begin now")
    rig.wait(lambda: received(rig) == ["first"], "the first arrives")
    alice.becomes("ready")
    alice.say(agent.clear)
    alice.becomes("ready")
    alice.say("go on now")
    # The turn must be long enough for the screen to show work, as with a real model.
    rig.wait(lambda: alice.explain()["rule"] not in {"", "text in the input"}, "relay sees that it works")
    hold.set()
    alice.sees("That is all")
    rig.wait(lambda: "second" in received(rig), "the directive of the new conversation arrives")
    assert "reads its screen" in recorded(alice)
    alice.becomes("ready")
    alice.say("more now")
    rig.wait(lambda: "third" in received(rig), "and the next")
    assert received(rig) == ["first", "second", "third"]


@pytest.mark.agents("gemini")
def test_a_resumed_conversation_repeats_no_directive(rig: Rig, agent: Agent) -> None:
    """Although the agent's record and screen contain the old text."""
    id = "0f5bd5cd-1c9d-4f02-9a0e-0123456789ab"
    rules = (Rule("^begin", "Hello.\n\n@relay:you first"), Rule("^go on", "@relay:you second"))
    alice = rig.wrap(agent, "Alice", *rules, arguments=("--session-id", id))
    alice.say("begin now")
    rig.wait(lambda: received(rig) == ["first"], "the first arrives")
    assert recorded(alice) == "it reports the agent's words"
    alice.becomes("ready")
    rig.relay("stop", "Alice")
    again = rig.wrap(agent, "Alice", *rules, arguments=("--resume", id))
    again.say("go on now")
    rig.wait(lambda: "second" in received(rig), "the new directive arrives")
    again.becomes("ready")
    assert received(rig) == ["first", "second"]
    assert recorded(again) == "it reports the agent's words"


def test_agents_in_one_folder_use_their_own_records(rig: Rig, agent: Agent) -> None:
    """Neither reads the other's record."""
    alice = rig.wrap(agent, "Alice", Rule("^begin", "@relay:you from Alice"))
    bob = rig.wrap(agent, "Bob", Rule("^begin", "@relay:you from Bob"), beside="Alice")
    alice.say("begin now")
    bob.say("begin now")
    rig.wait(lambda: len(received(rig)) > 1, "both arrive")
    for each in (alice, bob):
        each.becomes("ready")
    assert sorted((row["from"], row["body"]) for row in rig.messages("you")) == [
        ("Alice", "from Alice"),
        ("Bob", "from Bob"),
    ]


def test_a_directive_in_an_interrupted_answer_is_ignored(rig: Rig, agent: Agent) -> None:
    """The directive may be incomplete; the next turn counts."""
    hold = threading.Event()
    cut = Step("@relay:you cut off\n\n" + "and so on\n" * 40, hold=hold, after=20)
    alice = rig.wrap(agent, "Alice", Rule("^begin", cut), Rule("^next", "@relay:you whole"))
    alice.say("begin now")
    alice.sees("relay:you cut")
    alice.type("\x03" if agent.name == "aider" else "\x1b")
    alice.becomes("ready")
    hold.set()
    alice.say("next now")
    rig.wait(lambda: "whole" in received(rig), "the directive of the next turn arrives")
    alice.becomes("ready")
    assert received(rig) == ["whole"]
