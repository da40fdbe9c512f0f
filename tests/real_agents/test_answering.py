"""The user is notified of real agents' dialogs, and answers them with `relay answer`."""

from __future__ import annotations

import json

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

ASKING_TITLE = b"\x1b]2;Alice asks: permission\x1b\\"


def agent_asking_permission(rig: Rig, agent: Agent) -> Wrapped:
    """Return an agent that asks whether a command may run."""
    offer = "Let me see.\n\n```bash\ntouch approved\n```\n"  # aider has no tools and uses these
    step = Step(offer) if agent.name == "aider" else Step(calls=(Shell("touch approved", escalate=True),))
    alice = rig.wrap(agent, "Alice", Rule("^begin", step, "As you like."))
    alice.say("begin now")
    alice.sees(agent.permission)
    alice.becomes("prompting")
    return alice


def answer(alice: Wrapped, *arguments: str) -> str:
    """Run `relay answer Alice ...` and return its output."""
    done = alice.rig.relay("answer", "Alice", *arguments, "--json", check=False)
    assert done.returncode == 0, f"{done.stderr}\n{alice.describe()}"
    return str(json.loads(done.stdout).get("result"))


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "aider", "copilot", "opencode")
def test_the_user_is_notified_of_a_dialog_and_allows_the_command(rig: Rig, agent: Agent) -> None:
    """R96: the title and `relay ps` show the kind of question; the answer runs the command."""
    alice = agent_asking_permission(rig, agent)
    alice.rig.wait(lambda: ASKING_TITLE in alice.terminal.output, "the title")
    assert alice.state == "prompting (permission)"
    assert answer(alice, "1") == "answered"
    alice.rig.wait((alice.work / "approved").exists, "the command has run")
    alice.becomes("ready")
    shown = alice.terminal.output
    alice.rig.wait(
        lambda: shown.rfind(b"\x1b]2;Alice") > shown.rfind(ASKING_TITLE), "the agent's title again"
    )


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "aider", "copilot", "opencode")
def test_the_user_refuses_a_command(rig: Rig, agent: Agent) -> None:
    """Here, the selection has to move."""
    alice = agent_asking_permission(rig, agent)
    refusals = {"copilot": ("--text", "Leave it."), "opencode": ("reject",)}  # copilot's "No" wants a text
    assert answer(alice, *refusals.get(agent.name, ("no",))) == "answered"
    alice.rig.wait(lambda: not alice.state.startswith("prompting"), "the dialog is over")
    assert not (alice.work / "approved").exists()


@pytest.mark.agents("claude", "qwen", "copilot", "opencode")
def test_the_user_chooses_an_answer(rig: Rig, agent: Agent) -> None:
    """Even in a low terminal, where qwen 0.24.4 shows a scroll bar for some seconds."""
    assert_answered(rig, agent, ("blue",), "Blue")


@pytest.mark.agents("claude", "qwen", "copilot")
def test_the_user_answers_with_a_text(rig: Rig, agent: Agent) -> None:
    """opencode takes one only after another Enter, so relay types none there."""
    assert_answered(rig, agent, ("--text", "Dark green"), "Dark green")


def assert_answered(rig: Rig, agent: Agent, arguments: tuple[str, ...], expected: str) -> None:
    """Assert that `relay answer` with these arguments tells the model what is `expected`."""
    assert agent.question_call is not None
    asks = Rule("^begin", Step("Let me ask.", calls=(agent.question_call,)))
    alice = rig.wrap(agent, "Alice", asks, rows=30)
    alice.say("begin now")
    alice.sees(agent.question)
    alice.becomes("prompting")
    assert answer(alice, *arguments) == "answered"
    alice.rig.wait(
        lambda: any(expected in text for text in alice.model.received("result")),
        f"the model receives {expected}",
    )
