"""When the API of a real agent fails, the session reports the reason once, and when a limit ends."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from real_agents.model import Rule, Step
from real_agents.recipes import Agent, Place, Start
from real_agents.rig import Rig, Wrapped

HOURS = 3
LIMIT = "You've hit your session limit · resets 8pm (America/New_York)"
NO_RETRY = {"x-should-retry": "false"}


def subscriber(agent: Agent, settings: dict[str, Any] | None = None) -> Agent:
    """Return claude with a login instead of a key, so that it reports limits. settings: the user's."""

    def start(place: Place) -> Start:
        start_of_agent = agent.start(place)
        if settings is not None:
            place.put(".claude/settings.json", settings)
        environment = {
            name: value for name, value in start_of_agent.environment.items() if name != "ANTHROPIC_API_KEY"
        }
        environment |= {
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy-000000000000",
            "TZ": "America/New_York",
        }
        return replace(start_of_agent, environment=environment)

    return replace(agent, start=start)


def limited(agent: Agent, reset: int) -> Step:
    """Return the API's answer for a limit that is reached until `reset`, in seconds since the epoch."""
    if agent.name == "codex":
        return Step(status=429, error={"type": "usage_limit_reached", "plan_type": "pro", "resets_at": reset})
    unified = {"status": "rejected", "reset": str(reset), "representative-claim": "five_hour"}
    headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in unified.items()}
    error = {"type": "rate_limit_error", "message": "This would exceed your account's rate limit."}
    return Step(status=429, error=error, headers={**headers, **NO_RETRY})


def failures(alice: Wrapped) -> list[dict[str, Any]]:
    return alice.events("agent_failed")


def ends_at(failed: dict[str, Any], reset: int) -> bool:
    """Return whether the limit ends at `reset`; agents omit the seconds."""
    return failed["reset_at"] is not None and abs(failed["reset_at"] - reset) < 60


@pytest.mark.agents("claude", "codex")
def test_a_usage_limit_is_reported_with_its_reset_time(rig: Rig, agent: Agent) -> None:
    """Once, even if the session is killed, until a turn succeeds."""
    reset = int(time.time()) + HOURS * 3600
    wrapped = subscriber(agent) if agent.name == "claude" else agent
    alice = rig.wrap(wrapped, "Alice", Rule("^begin", limited(agent, reset)))
    alice.say("begin now")
    (failed,) = rig.wait(lambda: failures(alice), "the failure is reported")
    assert failed["class"] == "rate_limited" and "limit" in failed["text"]
    assert failed["source"] == ("hook" if agent.name == "claude" else "transcript")
    assert ends_at(failed, reset)
    rig.wait(lambda: alice.state.split(" ")[0] in {"failed", "prompting"}, "its state shows that")
    session = alice.info()["session_pid"]
    os.kill(session, signal.SIGKILL)
    rig.wait(lambda: alice.info().get("session_pid") not in {None, session}, "another session is running")
    rig.wait(lambda: alice.explain().get("failure"), "it knows of the failure")
    if agent.name == "claude":
        rig.wait(
            lambda: (
                alice.shows("Stop and wait for limit to reset") or alice.shows("Continuing automatically")
            ),
            "it draws its limit",
        )
        alice.type("\x1b")
        rig.wait(lambda: not alice.shows("Esc to cancel"), "it waits for a prompt")
    alice.sees(agent.ready)
    alice.say("try it again")
    rig.wait(lambda: alice.explain().get("failure", 0) is None, "the failure is forgotten")
    assert len(failures(alice)) == 1


CLASSES = {
    "claude": {
        "unauthorized": Step(status=401),
        "rate_limited": Step(status=429, headers=NO_RETRY),
        "billing": Step(
            status=400,
            error={
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access this.",
            },
        ),
        "overloaded": Step(status=529, headers=NO_RETRY),
        "context_full": Step(
            status=400,
            error={
                "type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum",
            },
        ),
    },
    "codex": {
        "unauthorized": Step(status=401),
        "billing": Step(
            status=429, error={"code": "insufficient_quota", "message": "You exceeded your quota"}
        ),
        "context_full": Step(
            status=400,
            error={"code": "context_length_exceeded", "message": "Your input exceeds the context window."},
        ),
    },
}


@pytest.mark.agents("claude", "codex")
def test_each_failure_is_classified(rig: Rig, agent: Agent) -> None:
    """Each turn of the conversation fails for another reason."""
    steps = CLASSES[agent.name]
    alice = rig.wrap(agent, "Alice", *(Rule(f"^try {cls}", *[step] * 12) for cls, step in steps.items()))
    for number, cls in enumerate(steps, start=1):
        alice.say(f"try {cls} now")
        rig.wait(lambda number=number: len(failures(alice)) >= number, f"{cls} is reported")
        alice.becomes("failed", "ready")
    assert [failed["class"] for failed in failures(alice)] == list(steps)


@pytest.mark.agents("claude", "codex")
def test_quoting_a_limit_is_not_a_failure(rig: Rig, agent: Agent) -> None:
    quotation = (
        f"{LIMIT}\n\nAPI Error: 529 Overloaded\n\n- ■ You've hit your usage limit. Try again at 8:00 PM."
    )
    alice = rig.wrap(agent, "Alice", Rule("^quote", quotation), Rule("^fail", Step(status=401)))
    alice.say("quote it for me")
    alice.sees("529 Overloaded")
    alice.becomes("ready")
    assert alice.explain()["failure"] is None
    alice.say("fail for me")  # by then, any effect of a quotation would show
    rig.wait(lambda: failures(alice), "the failure is reported")
    assert [failed["class"] for failed in failures(alice)] == ["unauthorized"]


@pytest.mark.agents("claude")
def test_without_hooks_the_limit_is_read_from_the_screen(rig: Rig, agent: Agent) -> None:
    reset = int(time.time()) + HOURS * 3600
    without_hooks = subscriber(agent, {"disableAllHooks": True})
    alice = rig.wrap(without_hooks, "Alice", Rule("^begin", limited(agent, reset)))
    alice.say("begin now")
    (failed,) = rig.wait(lambda: failures(alice), "the failure is reported")
    assert (failed["class"], failed["source"]) == ("rate_limited", "screen")
    zone = failed["text"].rpartition("(")[2]
    assert zone == "America/New_York)" and ends_at(failed, reset)


@pytest.mark.agents("claude")
def test_a_run_without_a_terminal_reports_its_failure(rig: Rig, agent: Agent) -> None:
    """claude -p prints its limit, and exits with 1."""
    reset = int(time.time()) + HOURS * 3600
    rule = Rule("^begin", limited(agent, reset))
    alice = rig.wrap(subscriber(agent), "Alice", rule, arguments=("-p", "begin now"), ready=False)
    rig.wait(alice.terminal.ended, "it ends")
    assert alice.terminal.code == 1
    (failed,) = rig.wait(lambda: failures(alice), "the failure is reported")
    assert failed["class"] == "rate_limited" and failed["source"] in {"hook", "transcript", "exit"}
    assert ends_at(failed, reset)
