"""A real agent in a pipeline: `relay wrap claude -p hi --output-format json | jq` works as without relay."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

import pytest

from real_agents.model import Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import PATIENCE, Rig

VOLATILE = re.compile(rb'"(session_id|uuid|\w+_ms)":(?:"[^"]*"|\d+)')
"""Values that differ between runs: ids and times."""

ANSWER = "“Hi”\n\n> é 日本語 \\n\ttab\n"


@pytest.mark.agents("claude")
@pytest.mark.parametrize(
    ("answer", "arguments", "code"),
    [
        (Step(ANSWER), ("-p", "hi", "--output-format", "json"), 0),
        (Step(ANSWER), ("-p", "hi"), 0),
        (Step(status=400), ("-p", "hi", "--output-format", "json"), 1),
        (Step(ANSWER), ("--no-such-option",), 1),
    ],
    ids=["json", "text", "refused", "misused"],
)
def test_a_pipeline_gets_the_agents_output_unchanged(
    rig: Rig, agent: Agent, answer: Step, arguments: tuple[str, ...], code: int
) -> None:
    """Standard output and error and the exit code are the same as without relay."""
    place = rig.place(agent, "Alice", Rule("^hi", answer))

    def run(*before: str) -> tuple[bytes, bytes, int]:
        command: Sequence[str] = [*before, str(agent.package.command), *place.arguments, *arguments]
        done = subprocess.run(
            command,
            env={**place.environment, "RELAY_HOME": str(rig.relay.home), "PYTHONSAFEPATH": "1"},
            cwd=place.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return VOLATILE.sub(rb'"\1":0', done.stdout), done.stderr, done.returncode

    alone, wrapped = run(), run(*rig.relay.command, "wrap", "-n", "Alice", "--")
    assert wrapped == alone
    assert alone[2] == code
    if "json" in arguments:
        assert json.loads(wrapped[0])["is_error"] == bool(code)
