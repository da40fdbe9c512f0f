"""`relay next` in a user's terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

RELAY = (sys.executable, "-m", "relay")


def asking_agent(relay: Relay, name: str) -> FakeAgent:
    """Return an agent that asks a question."""
    agent = FakeAgent(relay, name).wrap()
    agent.say("Install it? [Y/n] ", end="")
    wait_until(lambda: agent.state() == "prompting", message=agent.log)
    return agent


def test_next_is_the_agent_that_has_waited_longest_for_the_user(relay: Relay, terminal: Open) -> None:
    run = relay("next", "--print", check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "No agent needs you.\n")
    idle = FakeAgent(relay, "Idle").wrap()
    wait_until(lambda: idle.state() == "ready", message=idle.log)
    assert relay("next", "--print", check=False).returncode == 1
    later = FakeAgent(relay, "Ann").wrap()
    wait_until(lambda: later.state() == "ready", message=later.log)
    assert relay("next", "--print", "--ready").stdout == "Idle\n"
    zoe = asking_agent(relay, "Zoe")
    wait_until(lambda: relay("next", "--print", check=False).stdout == "Zoe\n")
    asking_agent(relay, "Bob")
    wait_until(lambda: relay("inbox").stdout.count(" question ") == 2)
    assert relay("next", "--print").stdout == "Zoe\n"
    attached = terminal(*RELAY, "next")
    attached.wait_for("Install it? [Y/n]")
    zoe.say("\nit is Zoe")
    attached.wait_for("it is Zoe")
    attached.type(b"\x1dd")
    assert attached.end() == 0
    assert "Zoe keeps running" in "\n".join(attached.lines())
    wait_until(lambda: zoe.state() != "prompting", message=zoe.log)
    wait_until(lambda: relay("next", "--print").stdout == "Bob\n")
    assert {row["name"] for row in ps(relay)} == {"Idle", "Ann", "Zoe", "Bob"}
