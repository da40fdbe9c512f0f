"""relay's extension for pi, which reports state and text, works with forks, Esc and other extensions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

pytestmark = pytest.mark.agents("pi")

SCRIPT = (
    Rule("^first", "Now then.\n\n@relay:you before it"),
    Rule("^second", "Now then.\n\n@relay:you after it"),
    Rule("^third", "Now then.\n\n@relay:you at last"),
)

EXTENSION = """
import { writeFileSync } from "node:fs"
export default (pi) => {
  pi.on("tool_call", (event) => {
    writeFileSync("mine-" + event.toolCallId, "")
    if (event.input.command.includes("forbidden")) return { block: true, reason: "MINE-7 says so" }
  })
}
"""


def received(rig: Rig) -> list[str]:
    return [row["body"] for row in rig.messages("you")]


def say(alice: Wrapped, text: str, body: str) -> None:
    """Give Alice a prompt that she answers with a directive, and wait for its body."""
    alice.becomes("ready")
    alice.say(text)
    alice.rig.wait(lambda: body in received(alice.rig), f"{body!r} arrives")
    alice.becomes("ready")


def bridge(alice: Wrapped) -> str:
    return str(alice.explain().get("bridge", ""))


def sessions(alice: Wrapped) -> list[Path]:
    return sorted((alice.rig.relay.home / "Alice" / "home" / ".pi").rglob("*.jsonl"))


def test_a_fork_and_a_step_back_repeat_no_directive(rig: Rig, agent: Agent) -> None:
    """/fork and /tree redraw old text in another conversation or on another branch."""
    alice = rig.wrap(agent, "Alice", *SCRIPT)
    say(alice, "first thing", "before it")
    alice.say("/fork")
    alice.sees("Fork from Message|Fork from")
    alice.type("\r")
    alice.sees("Forked|Branched")
    alice.type("\x15")  # the prompt is back in the input
    say(alice, "second thing", "after it")
    alice.say("/tree")
    alice.sees("Session Tree")
    alice.type("\x1b[A\x1b[A\r")
    alice.rig.wait(lambda: not alice.shows("Session Tree"), "the choice is made")
    if alice.shows("(?i)summar"):
        alice.type("\r")
    alice.becomes("ready", "working")
    alice.type("\x15")
    say(alice, "third thing", "at last")
    assert received(rig) == ["before it", "after it", "at last"]
    assert "they report its state and its words" in bridge(alice)


@pytest.mark.parametrize("how", ["--session", "--fork"])
def test_a_named_conversation_repeats_no_directive(rig: Rig, agent: Agent, how: str) -> None:
    alice = rig.wrap(agent, "Alice", *SCRIPT)
    say(alice, "first thing", "before it")
    rig.relay("stop", "--now", "Alice")
    rig.wait(alice.terminal.ended, "the session ends")
    (session,) = sessions(alice)
    again = rig.wrap(agent, "Alice", *SCRIPT, arguments=(how, str(session)))
    again.sees("before it")
    say(again, "second thing", "after it")
    assert received(rig) == ["before it", "after it"]


def test_a_compaction_adds_no_directive(rig: Rig, agent: Agent) -> None:
    """Although the summary may quote directives."""
    quoted = Rule("conversation to summarize|structured context checkpoint", "@relay:you from a summary")
    alice = rig.wrap(agent, "Alice", quoted, *SCRIPT)
    say(alice, "first thing", "before it")
    alice.say("/compact")
    alice.sees("Compacted from")
    say(alice, "second thing", "after it")
    assert received(rig) == ["before it", "after it"]


def test_esc_during_a_tool_keeps_the_directive_before_it(rig: Rig, agent: Agent) -> None:
    """Nor is a message lost that was delivered with the tool's result."""
    run = Step("@relay:you before the tool", calls=(Shell("touch started; sleep 600"),))
    alice = rig.wrap(agent, "Alice", Rule("^begin", run, "Never said."), *SCRIPT)
    alice.say("begin now")
    rig.wait((alice.work / "started").exists, "the command runs")
    alice.send("while it runs")
    alice.type("\x1b")
    alice.receives("while it runs")
    say(alice, "second thing", "after it")
    assert received(rig) == ["before the tool", "after it"]
    assert alice.model.count("while it runs") == 1
    assert alice.messages() == ["injected"]


@pytest.mark.parametrize("flags", [(), ("--no-extensions",)], ids=["found", "named alone"])
def test_the_users_own_extensions_are_loaded_too(rig: Rig, agent: Agent, flags: tuple[str, ...]) -> None:
    """Those that pi finds by itself, and with --no-extensions, those that are named."""
    folder = rig.relay.home / "Alice"
    found, named = folder / "home/.pi/agent/extensions/mine.js", folder / "named.js"
    for path in (found, named):
        path.parent.mkdir(parents=True, exist_ok=True)
    (named if flags else found).write_text(EXTENSION)
    call = Step(calls=(Shell("touch forbidden"),))
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", call, "@relay:you done"),
        arguments=(*flags, "--extension", str(named)) if flags else (),
    )
    say(alice, "begin now", "done")
    assert list(alice.work.glob("mine-*"))
    assert "MINE-7 says so" in alice.model.received("result")
    assert not (alice.work / "forbidden").exists()
    assert "they report its state and its words" in bridge(alice)
    assert not alice.shows("Failed to load|Error")


def test_without_the_extension_the_screen_is_read_and_that_is_shown(rig: Rig, agent: Agent) -> None:
    """Here, a program between relay and pi drops the flag; an old version would ignore the extension."""
    script = rig.relay.home / "pi"
    script.write_text(f'#!/bin/sh\nshift 2\nexec {agent.package.command} "$@"\n')
    script.chmod(0o755)
    without_extension = replace(agent, package=replace(agent.package, program=str(script)))
    alice = rig.wrap(without_extension, "Alice", *SCRIPT)
    say(alice, "first thing", "before it")
    say(alice, "second thing", "after it")
    assert received(rig) == ["before it", "after it"]
    assert "relay reads the screen instead" in bridge(alice)
