"""The first prompt of a fleet's agent: typed once, and again only in a new conversation."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from relay.storage.locks import locked
from session.fake_agent import FakeAgent
from session.test_session_replaced import entry
from session.test_session_supervised import record, wait_for_restart
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

PROMPT = {"prompt": "Fix the tests.", "restart": "always", "backoff": 0.05}


def start(relay: Relay, **more: object) -> FakeAgent:
    alice = FakeAgent(relay, "Alice")
    return alice.wrap(options=("--supervision", json.dumps({**PROMPT, **more})))


def prompts(alice: FakeAgent) -> list[str]:
    return re.findall(r"\[relay \w+ task\] (.*) \[/relay \w+\]", alice.received)


def test_the_first_prompt_is_typed_once(relay: Relay) -> None:
    alice = start(relay)
    alice.receives("Fix the tests.")
    wait_until(lambda: record(relay)["task_given"])
    relay("reload", "Alice")
    relay("send", "--wait", "60", "Alice", "hello")
    alice.receives("hello")
    assert prompts(alice) == ["Fix the tests."]


def test_a_new_conversation_gets_the_first_prompt_again(relay: Relay) -> None:
    alice = start(relay)
    alice.receives("Fix the tests.")
    wait_until(lambda: record(relay)["task_given"])
    before = entry(relay)
    alice.exit(1)
    wait_for_restart(relay, before)
    wait_until(lambda: prompts(alice) == ["Fix the tests."] * 2)


def test_a_resumed_conversation_does_not_get_the_first_prompt_again(relay: Relay) -> None:
    """It is typed there only if it never was."""
    alice = start(relay, fresh=["true"])
    wait_until(lambda: prompts(alice) == ["Fix the tests."])
    wait_until(lambda: record(relay)["task_given"])
    relay("stop", "Alice")
    alice = start(relay, fresh=["true"])
    relay("send", "--wait", "60", "Alice", "hello")
    alice.receives("hello")
    assert prompts(alice) == ["Fix the tests."]


def test_the_first_prompt_is_typed_once_even_if_the_session_dies(relay: Relay) -> None:
    """The session was killed after it typed the prompt and before it recorded that on disk."""
    lock = relay.home / "state" / "agents" / f"{relay.team}" / "alice.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        alice = start(relay)
        alice.receives("Fix the tests.")
        os.kill(entry(relay)["session_pid"], signal.SIGKILL)
        relay("send", "--wait", "60", "Alice", "are you there?")  # the next session is ready
        alice.receives("are you there?")
    relay("send", "--wait", "60", "Alice", "hello")
    alice.receives("hello")
    assert prompts(alice) == ["Fix the tests."]
    assert wait_until(lambda: record(relay)["task_given"])
