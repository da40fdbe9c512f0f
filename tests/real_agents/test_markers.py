"""What a real agent sets for the programs that it runs is known, and kept from the agents that they start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig
from relay.agents import kinds
from relay.agents.markers import without_markers

pytestmark = pytest.mark.agents("claude", "codex", "gemini", "qwen", "copilot")

LEFT = re.compile(r"_|LC_\w+|PATH|PWD|SHELL|SHLVL|TERM|GIT_CONFIG_(KEY|VALUE)_\d")
"""Variables that may stay: a shell's own, the locale, and what means nothing without GIT_CONFIG_COUNT."""


def variables(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in text.split("\0") if each)


def test_what_an_agent_sets_for_its_programs_is_removed(rig: Rig, agent: Agent) -> None:
    inner = rig.relay.home / "inner"
    shell = Shell(f"env -0 > {inner}")
    script = Rule("^look", Step("Looking.", calls=(shell,)), "Seen.")
    alice = rig.wrap(agent, "Alice", script, arguments=agent.free)
    before = variables(Path(f"/proc/{alice.info()['agent_pid']}/environ").read_text())
    alice.say("look")
    alice.sees("Seen")
    after = variables(inner.read_text())
    marks = kinds.find(agent.name).markers
    assert marks is not None and marks.variable in after
    left = without_markers(after)
    assert [name for name in left if left[name] != before.get(name) and not LEFT.fullmatch(name)] == []
