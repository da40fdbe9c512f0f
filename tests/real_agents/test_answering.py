"""Dialogs of real agents: the user is notified of them, and answers with `relay answer`."""

from __future__ import annotations

import json

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

ASKING = b"\x1b]2;Alice asks: permission\x1b\\"


def asked_permission(rig: Rig, agent: Agent) -> Wrapped:
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


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "aider")
def test_a_user_hears_of_a_dialog_and_allows_it(rig: Rig, agent: Agent) -> None:
    """R96: the title and `relay ps` show the kind of question; the answer runs the command."""
    alice = asked_permission(rig, agent)
    alice.rig.wait(lambda: ASKING in alice.terminal.output, "the title")
    assert alice.state == "prompting (permission)"
    assert answer(alice, "1") == "answered"
    alice.rig.wait((alice.work / "approved").exists, "the command has run")
    alice.becomes("ready")
    shown = alice.terminal.output
    alice.rig.wait(lambda: shown.rfind(b"\x1b]2;Alice") > shown.rfind(ASKING), "the agent's title again")


@pytest.mark.agents("claude", "codex", "qwen", "gemini", "aider")
def test_a_user_refuses_what_an_agent_wants(rig: Rig, agent: Agent) -> None:
    """The selection moves to an option further down."""
    alice = asked_permission(rig, agent)
    assert answer(alice, "no") == "answered"
    alice.rig.wait(lambda: not alice.state.startswith("prompting"), "the dialog is over")
    assert not (alice.work / "approved").exists()


@pytest.mark.agents("claude", "qwen")
@pytest.mark.parametrize(
    ("arguments", "told"), [(("blue",), "Blue"), (("--text", "Dark green"), "Dark green")]
)
def test_a_user_answers_a_question(rig: Rig, agent: Agent, arguments: tuple[str, ...], told: str) -> None:
    """The answer also works in a low terminal, where qwen 0.24.4 shows a scroll bar for some seconds."""
    assert agent.question_call is not None
    asks = Rule("^begin", Step("Let me ask.", calls=(agent.question_call,)))
    alice = rig.wrap(agent, "Alice", asks, rows=30)
    alice.say("begin now")
    alice.sees(agent.question)
    alice.becomes("prompting")
    assert answer(alice, *arguments) == "answered"
    alice.rig.wait(lambda: any(told in text for text in alice.model.received("result")), f"it is told {told}")
