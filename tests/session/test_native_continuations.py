"""When an agent with hooks continues, and what proves that it did."""

from __future__ import annotations

import pytest

from agents.hooked import Claude
from session.fake_agent import project
from session.test_session_native import CONTINUES, Transcript, context, start_turn
from support import Relay, wait_until


@pytest.fixture
def transcript(relay: Relay) -> Transcript:
    return Transcript(relay.home / "transcript.jsonl")


def test_a_continuation_too_large_for_a_reply_counts_towards_the_cap(relay: Relay) -> None:
    """R10: it is typed, as a separate prompt."""
    config = 'from relay import on\non("agent_end")(lambda ctx: "line\\n" * 1_900)\n'
    claude = start_turn(Claude(relay).wrap(cwd=project(relay, config)))
    for _ in range(4):
        (stopped,) = claude.fire("Stop", last_assistant_message="not yet")
        assert not stopped["stdout"]
        claude.fire("UserPromptSubmit", prompt="[relay k3f9 hook x]\n" + "line\n" * 1_900 + "[/relay k3f9]")
    assert len(claude.events("continuation_capped")) == 1


def test_an_agent_does_not_continue_for_text_that_can_wait(relay: Relay, transcript: Transcript) -> None:
    path = {"transcript_path": str(transcript.path)}
    claude = start_turn(Claude(relay).wrap(), **path)
    transcript.say("@memory:save it")
    claude.fire("PreCompact", trigger="auto", **path)  # its reply cannot hold context
    wait_until(lambda: "does not justify a turn" in relay("explain", claude.name).stdout)
    (stopped,) = claude.fire("Stop", last_assistant_message="@memory:save it", **path)
    assert not stopped["stdout"]
    (submitted,) = claude.fire("UserPromptSubmit", prompt="next", **path)
    assert "@memory:save" in context(submitted)


@pytest.mark.parametrize("event", ["SessionEnd", "SessionStart"])
def test_a_continuation_is_uncertain_if_the_agent_ends(relay: Relay, event: str) -> None:
    claude = start_turn(Claude(relay).wrap(cwd=project(relay, CONTINUES)))
    claude.fire("Stop", last_assistant_message="not yet")
    claude.fire(event, source="clear", reason="other")
    claude.exit()
    results = wait_until(lambda: claude.events("injection"))
    assert {e["result"] for e in results} == {"uncertain"}
