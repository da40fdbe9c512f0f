"""Token usage of real agents is read from their files or a plugin; an answer of the model has 110 tokens."""

from __future__ import annotations

import json
import time

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

pytestmark = pytest.mark.agents("claude", "codex", "gemini", "opencode", "pi", "qwen", "copilot")

INPUT, OUTPUT = 100, 10


def tokens(agent: Wrapped) -> int:
    return int(agent.info().get("tokens") or 0)


def test_each_answer_of_the_model_is_counted_once(rig: Rig, agent: Agent) -> None:
    """Even the answer before a tool call; another session shows the same count."""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", Step("Before.", calls=(Shell("echo hi"),)), "After."),
        Rule("^again", "Again."),
        arguments=agent.free,
    )
    alice.say("begin now")
    rig.wait(lambda: tokens(alice) >= 2 * (INPUT + OUTPUT), f"two answers count: {alice.explain()}")
    alice.becomes("ready")
    first = tokens(alice)
    assert first % (INPUT + OUTPUT) == 0
    alice.say("again please")
    rig.wait(lambda: tokens(alice) >= first + INPUT + OUTPUT, "the next one, too")
    alice.becomes("ready")
    usage = alice.explain()["usage"]
    answers = usage["tokens"]["total"] // (INPUT + OUTPUT)
    assert usage["tokens"]["input"] == answers * INPUT
    assert usage["tokens"]["output"] == answers * OUTPUT
    assert answers <= alice.model.answered
    assert usage["turns"] == 2
    assert usage["models"] and "" not in usage["models"]
    before = alice.explain()["usage"]
    rig.relay("reload", "Alice")
    rig.wait(lambda: tokens(alice) == before["tokens"]["total"], "another session shows the same")
    assert alice.explain()["usage"] == before


@pytest.mark.agents("codex")
def test_codexs_rate_limits_are_shown(rig: Rig, agent: Agent) -> None:
    resets = int(time.time()) + 3000
    headers = {
        "x-codex-primary-used-percent": "42.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(resets),
        "x-codex-secondary-used-percent": "7",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": str(resets + 86400),
    }
    alice = rig.wrap(agent, "Alice", Rule("^begin", Step("Hello.", headers=headers)), arguments=agent.free)
    alice.say("begin now")
    rig.wait(lambda: json.loads(rig.relay("usage", "--json").stdout)["limits"], "codex's limits are logged")
    (limits,) = json.loads(rig.relay("usage", "--json").stdout)["limits"]
    assert (limits["account"], limits["agent"]) == ("default", "codex")
    assert limits["windows"] == [
        {"used_percent": 42.5, "window_minutes": 300, "resets_at": resets},
        {"used_percent": 7, "window_minutes": 10080, "resets_at": resets + 86400},
    ]
