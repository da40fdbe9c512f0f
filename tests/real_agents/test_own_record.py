"""Directives of agents without hooks, from the records they write: each one once, and exactly."""

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
SAID = [
    "said before the tool, **in bold**, with https://example.com/" + "a-long-path/" * 12,
    "请检查这个文件 🧑‍💻👍🏽 now",
]


def said(rig: Rig) -> list[str]:
    return [row["body"] for row in rig.messages("you")]


def recorded(agent: Wrapped) -> str:
    return str(agent.explain().get("record", ""))


def test_directives_are_taken_from_its_own_record(rig: Rig, agent: Agent) -> None:
    """Bodies are exact, as the model wrote them; a tool's output, a fence and a quote do not count (F16)."""
    run = "echo @relay:you said by a tool"
    step, more = Step(TEXT, calls=(Shell(run),)), "@relay:you said last"
    if agent.name == "aider":  # its shell commands are in its text
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
    rig.wait(lambda: "said last" in said(rig), "all is heard")
    alice.becomes("ready")
    exact = [
        body.replace("\u200d", "") if agent.name == "gemini" else body for body in SAID
    ]  # it drops joiners
    assert said(rig) == [*exact, "said last"]
    assert recorded(alice) == "it reports the agent's words"
    alice.say("again please")
    rig.wait(lambda: len(said(rig)) > len(SAID) + 1, "the same is heard again")
    alice.becomes("ready")
    assert said(rig) == [*exact, "said last", "said last"]


@pytest.mark.agents("gemini")
def test_a_new_conversation_is_heard_from_the_screen(rig: Rig, agent: Agent) -> None:
    """/clear starts a session with another id: its first turn is not lost, and nothing is repeated."""
    hold = threading.Event()
    rules = (
        Rule("^begin", "Hello.\n\n@relay:you first"),
        Rule("^go on", Step("@relay:you second\n\nThat is all.", hold=hold)),
    )
    alice = rig.wrap(agent, "Alice", *rules, Rule("^more", "@relay:you third\n\nThat, too."))
    alice.say("begin now")
    rig.wait(lambda: said(rig) == ["first"], "the first is heard")
    alice.becomes("ready")
    alice.say(agent.clear)
    alice.becomes("ready")
    alice.say("go on now")
    # A turn in which the screen shows no work proves nothing; a real model takes long enough for that.
    rig.wait(lambda: alice.explain()["rule"] not in {"", "text in the input"}, "relay sees that it works")
    hold.set()
    alice.sees("That is all")
    rig.wait(lambda: "second" in said(rig), "what is said in the new conversation is heard")
    assert "reads its screen" in recorded(alice)
    alice.becomes("ready")
    alice.say("more now")
    rig.wait(lambda: "third" in said(rig), "and the next")
    assert said(rig) == ["first", "second", "third"]


@pytest.mark.agents("gemini")
def test_a_resumed_conversation_says_nothing_again(rig: Rig, agent: Agent) -> None:
    """The agent's record and screen contain the old words; only new ones count."""
    id = "0f5bd5cd-1c9d-4f02-9a0e-0123456789ab"
    rules = (Rule("^begin", "Hello.\n\n@relay:you first"), Rule("^go on", "@relay:you second"))
    alice = rig.wrap(agent, "Alice", *rules, arguments=("--session-id", id))
    alice.say("begin now")
    rig.wait(lambda: said(rig) == ["first"], "the first is heard")
    assert recorded(alice) == "it reports the agent's words"
    alice.becomes("ready")
    rig.relay("stop", "Alice")
    again = rig.wrap(agent, "Alice", *rules, arguments=("--resume", id))
    again.say("go on now")
    rig.wait(lambda: "second" in said(rig), "what it says now is heard")
    again.becomes("ready")
    assert said(rig) == ["first", "second"]
    assert recorded(again) == "it reports the agent's words"


def test_two_agents_in_one_folder_act_on_their_own_words(rig: Rig, agent: Agent) -> None:
    """Neither agent's words are taken for the other's."""
    alice = rig.wrap(agent, "Alice", Rule("^begin", "@relay:you from Alice"))
    bob = rig.wrap(agent, "Bob", Rule("^begin", "@relay:you from Bob"), beside="Alice")
    alice.say("begin now")
    bob.say("begin now")
    rig.wait(lambda: len(said(rig)) > 1, "both are heard")
    for each in (alice, bob):
        each.becomes("ready")
    assert sorted((row["from"], row["body"]) for row in rig.messages("you")) == [
        ("Alice", "from Alice"),
        ("Bob", "from Bob"),
    ]


def test_what_the_user_cuts_off_is_not_acted_on(rig: Rig, agent: Agent) -> None:
    """Nothing shows whether the directive was finished; the next turn is read."""
    hold = threading.Event()
    cut = Step("@relay:you cut off\n\n" + "and so on\n" * 40, hold=hold, after=20)
    alice = rig.wrap(agent, "Alice", Rule("^begin", cut), Rule("^next", "@relay:you whole"))
    alice.say("begin now")
    alice.sees("relay:you cut")
    alice.type("\x03" if agent.name == "aider" else "\x1b")
    alice.becomes("ready")
    hold.set()
    alice.say("next now")
    rig.wait(lambda: "whole" in said(rig), "the next turn is heard")
    alice.becomes("ready")
    assert said(rig) == ["whole"]
