"""Real agents call relay's tools with their own MCP clients, without asking for permission."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_agents.model import RelayCall, Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped
from relay.agents import kinds
from relay.agents.version import numbers
from support import Relay, processes_of

pytestmark = pytest.mark.agents("claude", "codex", "copilot", "qwen", "pi", "opencode", "gemini")


@pytest.fixture
def rig(relay: Relay, agent: Agent) -> Iterator[Rig]:
    """Yield a rig whose agents can have the tools: Gemini takes them only from a folder of root's."""
    since = kinds.find(agent.name).mcp_since
    if numbers(agent.package.version) < numbers(since):
        pytest.skip(f"{agent.name} has relay's tools from {since} on")
    if agent.name != "gemini":
        with Rig(relay) as rig:
            yield rig
        return
    if os.geteuid():
        pytest.skip("only root's Gemini has relay's tools")
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/run"))
    try:
        with Rig(Relay(folder)) as rig:
            yield rig
        rig.relay("broker", "stop", check=False)
    finally:
        shutil.rmtree(folder)


def tool(name: str, **arguments: str) -> Step:
    return Step(f"I call {name}.", calls=(RelayCall(name, arguments),))


def connected(rig: Rig, agent: Agent, *script: Rule) -> Wrapped:
    """Wrap Alice, and wait until her server has listed its tools: some first prompts do not wait for that."""
    alice = rig.wrap(agent, "Alice", *script)
    if agent.name != "opencode":  # it starts its servers with the first prompt
        rig.wait(lambda: any(map(_has_listed, processes_of(rig.relay.home).items())), "the tools are listed")
    return alice


def _has_listed(process: tuple[int, str]) -> bool:
    pid, command = process
    try:
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return False
    return command.endswith("relay mcp") and int(io["wchar"]) > 2000


def test_an_agent_with_tools_talks_to_one_that_prints_directives(rig: Rig, agent: Agent) -> None:
    """The message reaches the other's model once, and so does the answer."""
    alice = connected(
        rig,
        agent,
        Rule(
            "^begin",
            tool("send_message", to="Bob", text="ping-1?"),
            "That is sent.",
        ),
        Rule("pong-1", "Bob answered."),
    )
    assert alice.explain()["mcp"]
    bob = rig.wrap(agent, "Bob", Rule("ping-1", "Gladly:\n\n@relay:Alice pong-1, I am here."))
    alice.say("begin now")
    alice.sees("That is sent")
    bob.receives("ping-1?")
    alice.receives("pong-1, I am here.")
    alice.becomes("ready")
    assert bob.model.count("ping-1?") == 1
    assert alice.model.count("pong-1") == 1
    (row,) = rig.messages("Bob")
    assert (row["from"], row["state"]) == ("Alice", "injected")


def test_an_agent_still_has_the_tools_after_a_restart(rig: Rig, agent: Agent) -> None:
    notes = (tool("send_message", to="you", text=f"note-{number}") for number in (1, 2))
    alice = connected(rig, agent, *(Rule(f"^begin {n}", note, "Noted.") for n, note in enumerate(notes, 1)))
    alice.say("begin 1 of 2")
    rig.wait(lambda: len(rig.messages("you")) == 1, "the first note arrives")
    alice.becomes("ready")
    rig.relay("restart", "Alice")
    rig.wait(lambda: alice.info().get("restarts") == 1, "Alice is restarted")
    alice.becomes("ready")
    alice.say("begin 2 of 2")
    rig.wait(lambda: len(rig.messages("you")) == 2, "the second note arrives")
    assert [row["body"] for row in rig.messages("you")] == ["note-1", "note-2"]


@pytest.mark.agents("claude", "codex", "copilot", "qwen", "gemini")
def test_an_agent_still_asks_before_a_tool_that_deletes_something(rig: Rig, agent: Agent) -> None:
    alice = connected(rig, agent, Rule("^begin", tool("forget", id="abc"), "Forgotten."))
    alice.say("begin now")
    alice.becomes("prompting")
    assert not alice.model.received("result")
