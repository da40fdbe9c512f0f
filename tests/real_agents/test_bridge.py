"""Handlers in a relay.config.py act on real agents through the agents' own hooks, within the turn."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from real_agents.dialects import Call
from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig

RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"

RECORD_ENDS = """
import json
from relay import on

@on("agent_end")
def note(last_assistant_message, success, ctx):
    with open(ctx.working_dir / "ends", "a") as out:
        out.write(json.dumps([last_assistant_message, success]) + "\\n")
"""

RECORD_PROMPTS = """
from relay import on

@on("prompting")
def note(kind, ctx):
    with open(ctx.working_dir / "asked", "a") as out:
        out.write(kind + "\\n")
"""


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_a_denied_tool_call_does_not_happen(rig: Rig, agent: Agent) -> None:
    """R36: the model reads the reason; another command runs."""
    config = """
from relay import on

@on("tool_pre")
def policy(tool_name, tool_input):
    if "forbidden" in str(tool_input):
        return {"deny": "POLICY-7 forbids that."}
"""
    calls = Step(calls=(Shell("touch forbidden"),)), Step(calls=(Shell("touch allowed"),)), "Understood."
    alice = rig.wrap(agent, "Alice", Rule("^begin", *calls), config=config, arguments=agent.free)
    alice.say("begin now")
    alice.sees("Understood")
    assert "POLICY-7 forbids that." in "\n".join(alice.model.received("result"))
    assert (alice.work / "allowed").exists()
    assert not (alice.work / "forbidden").exists()


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_a_linters_findings_reach_the_model_before_its_next_step(rig: Rig, agent: Agent) -> None:
    """R73: here, the real ruff's."""
    config = f"""
import subprocess
from relay import on

@on("tool_post")
def lint(ctx):
    found = subprocess.run(
        [{RUFF!r}, "check", "--isolated", "--output-format=concise", "bad.py"],
        cwd=ctx.working_dir, capture_output=True, text=True,
    )
    if found.returncode:
        return {{"inject": found.stdout}}
"""
    write: Call | Shell = Shell("echo 'import os' > bad.py")
    if agent.name == "claude":
        path = str(rig.relay.home / "Alice" / "work" / "bad.py")
        write = Call("Write", {"file_path": path, "content": "import os\n"})
    alice = rig.wrap(
        agent, "Alice", Rule("^begin", Step(calls=(write,)), "I see."), config=config, arguments=agent.free
    )
    alice.say("begin now")
    alice.sees("I see")
    rounds = [
        number
        for number, request in enumerate(alice.model.requests)
        if any("F401" in entry.text for entry in request.turn.entries)
    ]
    assert rounds[:1] == [1]
    alice.becomes("ready")
    assert len(alice.model.requests) == 2


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_a_handler_continues_the_turn_until_it_is_satisfied(rig: Rig, agent: Agent) -> None:
    """R1, R2, R7, R8, R10: an injection by agent_end continues the turn; None ends it."""
    config = RECORD_ENDS + (
        """
@on("agent_end")
def more(last_assistant_message):
    if "half" in last_assistant_message:
        return {"inject": "The other half is missing."}
"""
    )
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", "Here is half of it."),
        Rule("other half", "And here is all."),
        config=config,
    )
    alice.say("begin now")
    alice.sees("here is all")
    alice.becomes("ready")
    ends = rig.wait((alice.work / "ends").read_text, "agent_end fired").splitlines()
    assert [json.loads(line) for line in ends] == [["Here is half of it.", True], ["And here is all.", True]]
    assert alice.model.count("The other half is missing.") == 1
    assert len(alice.model.requests) == 2


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_continuations_are_capped(rig: Rig, agent: Agent) -> None:
    """R10: a handler that always continues gets three in a row, and three more after the next prompt."""
    config = """
from relay import on

@on("agent_end")
def more():
    return {"inject": "Go on, go on."}
"""
    alice = rig.wrap(agent, "Alice", config=config)
    for turn in (1, 2):
        alice.say(f"turn number {turn}")
        rig.wait(lambda turn=turn: len(alice.model.requests) == 4 * turn, "three continuations")
        alice.becomes("ready")
    assert len(alice.model.requests) == 8
    assert len([text for text in alice.model.received("user") if "Go on, go on." in text]) == 6


@pytest.mark.agents("claude", "qwen", "pi", "opencode", "copilot")
def test_a_message_is_delivered_in_the_reply_to_a_tools_hook(rig: Rig, agent: Agent) -> None:
    """R73: a message sent while a command runs reaches the model within the turn; not Codex', which would
    rank it above the user's words (AgentKind.ranks_context_above_user).
    """
    command = Shell("touch started; until test -e go; do sleep 0.05; done")
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step(calls=(command,)), "It ran."), arguments=agent.free)
    alice.say("begin now")
    rig.wait((alice.work / "started").exists, "the command runs")
    alice.send("while it runs")
    (alice.work / "go").touch()
    alice.sees("It ran")
    alice.becomes("ready")
    assert any("while it runs" in entry.text for entry in alice.model.requests[1].turn.entries)
    assert alice.model.count("while it runs") == 1
    assert alice.messages() == ["injected"]


@pytest.mark.agents("claude", "pi")
def test_a_failed_tool_is_reported_with_its_error(rig: Rig, agent: Agent) -> None:
    """R37"""
    config = """
from relay import on

@on("tool_post")
def note(tool_name, error, ctx):
    (ctx.working_dir / "failure").write_text(f"{tool_name}: {error}")
"""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", Step(calls=(Shell("echo no''body; exit 3"),)), "It failed."),
        config=config,
        arguments=agent.free,
    )
    alice.say("begin now")
    alice.sees("It failed")
    report = rig.wait((alice.work / "failure").read_text, "tool_post fired")
    assert report.lower().startswith("bash: ")
    assert "3" in report


@pytest.mark.agents("claude", "qwen", "copilot")
def test_a_plan_waits_for_approval(rig: Rig, agent: Agent) -> None:
    """R88, R96, R99: a proposed plan is recognized, and its handlers run."""
    assert agent.plan_call is not None
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", Step("My plan.", calls=(agent.plan_call,))),
        config=RECORD_PROMPTS,
        arguments=agent.planning,
    )
    alice.say("begin now")
    alice.sees(agent.plan)
    rig.wait(lambda: alice.state == "prompting (plan_approval)", "the plan is recognized")
    rig.wait((alice.work / "asked").exists, "prompting fires")
    assert alice.send("no hurry", wait=3) == "stored"
    alice.type("\x1b")
    alice.receives("no hurry")
    assert (alice.work / "asked").read_text().splitlines() == ["plan_approval"]


@pytest.mark.agents("claude", "qwen", "copilot")
def test_a_question_is_recognized(rig: Rig, agent: Agent) -> None:
    """R89, R96, R99: until the user has answered it."""
    assert agent.question_call is not None
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", Step("Let me ask.", calls=(agent.question_call,)), "A good choice."),
        config=RECORD_PROMPTS,
    )
    alice.say("begin now")
    alice.sees(agent.question)
    rig.wait(lambda: alice.state == "prompting (question)", "the question is recognized")
    rig.wait((alice.work / "asked").exists, "prompting fires")
    alice.type("\r")
    alice.sees("A good choice")
    alice.becomes("ready")
    assert (alice.work / "asked").read_text().splitlines() == ["question"]


@pytest.mark.agents("claude", "codex", "qwen", "pi", "opencode", "copilot")
def test_directives_are_read_from_the_exact_text(rig: Rig, agent: Agent) -> None:
    """Text before a tool call counts; text in a fence or a quote or after a backslash does not."""
    before = "\n".join(
        [
            "First this.",
            "",
            "@relay:you said before the tool",
            "",
            "```",
            "@relay:you said in a fence",
            "```",
            "",
            "> @relay:you said in a quote",
            "",
            "\\@relay:you said behind a backslash",
        ]
    )
    alice = rig.wrap(
        agent,
        "Alice",
        Rule(
            "^begin", Step(before, calls=(Shell("echo @relay:you said by a tool"),)), "@relay:you said last"
        ),
        arguments=agent.free,
    )
    alice.say("begin now")
    rig.wait(lambda: any(row["body"] == "said last" for row in rig.messages("you")), "all directives arrive")
    alice.becomes("ready")
    assert [row["body"] for row in rig.messages("you")] == ["said before the tool", "said last"]


def test_an_agent_is_instructed_once(rig: Rig, agent: Agent) -> None:
    """The first conversation gets its name and how to write directives; the examples are not acted on."""
    rig.settings(teach="auto")
    alice = rig.wrap(agent, "Alice", Rule("^begin", "@relay:you I know my name"))
    if not agent.native:  # the instructions are typed
        alice.receives("@relay:")
        alice.becomes("ready")
    alice.say("begin now")
    rig.wait(lambda: rig.messages("you"), "the directive arrives")
    alice.becomes("ready")
    instructions = [text for text in alice.model.received() if "@relay:" in text]
    assert len(instructions) == 1
    assert "Alice" in instructions[0]
    assert [row["body"] for row in rig.messages("you")] == ["I know my name"]
