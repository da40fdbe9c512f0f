"""`relay ps --watch` and `relay next` in a user's terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from relay.terminal.canvas import ENTER, LEAVE
from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

Open = Callable[..., Emulator]

RELAY = (sys.executable, "-m", "relay")


def asking_agent(relay: Relay, name: str) -> FakeAgent:
    """Return an agent that asks a question."""
    agent = FakeAgent(relay, name).wrap()
    agent.say("Install it? [Y/n] ", end="")
    wait_until(lambda: agent.state() == "prompting", message=agent.log)
    return agent


def test_the_list_is_drawn_in_place_and_leaves_no_trace(relay: Relay, terminal: Open) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    watching = terminal(*RELAY, "ps", "--watch", "--interval", "0.1", columns=80, rows=24)
    watching.wait_for("1 agent, none needs you")
    assert watching.screen.alternate and watching.raw()
    alice.say("I am done with it")
    watching.wait_for("I am done with it")
    bob = asking_agent(relay, "Bob")
    watching.wait_for("2 agents, 1 needs you")
    watching.wait(lambda: watching.lines()[2].startswith("Bob "), "the agent that needs the user comes first")
    assert watching.lines()[3].startswith("Alice ")
    bob.exit()
    watching.wait_for("1 agent, none needs you")
    for columns, rows in ((40, 5), (132, 43)):
        watching.resize(columns, rows)
        watching.wait_for("I am done with it"[: max(columns - 26, 0)])
    written = bytes(watching.output)
    assert written.startswith(ENTER)
    assert written.count(b"\x1b[2J") <= 4, "the screen is cleared only at the start and for a new size"
    watching.type("q")
    assert watching.end() == 0
    assert watching.restored() and bytes(watching.output).endswith(LEAVE)
    assert watching.lines() == []


@pytest.mark.parametrize(
    ("leave", "code"), [(lambda pid: b"\x03", 130), (lambda pid: os.kill(pid, signal.SIGTERM) or b"", 143)],
    ids=["Ctrl-C", "SIGTERM"],
)  # fmt: skip
def test_a_signal_restores_the_terminal(terminal: Open, leave: Callable[[int], bytes], code: int) -> None:
    watching = terminal(*RELAY, "ps", "-w")
    watching.wait_for("No agent is running")
    watching.type(leave(watching.pid))
    assert watching.end() == code
    assert watching.restored()


def test_no_color_is_respected(relay: Relay, terminal: Open) -> None:
    FakeAgent(relay, "Alice").wrap()
    plain, coloured = (
        terminal(*RELAY, "ps", "--watch", env={"NO_COLOR": value} if value else {}) for value in ("1", "")
    )
    sgr = re.compile(rb"\x1b\[[0-9;]*[1-9][0-9;]*m")
    for each in (plain, coloured):
        each.wait_for("Alice")
    assert not sgr.search(bytes(plain.output)) and sgr.search(bytes(coloured.output))
    for each in (plain, coloured):
        each.type("q")
        assert each.end() == 0


def test_watch_needs_a_terminal(relay: Relay) -> None:
    run = relay("ps", "--watch", check=False)
    assert run.returncode == 2 and "--watch needs a terminal" in run.stderr and run.stdout == ""
    assert relay("ps", "--watch", "--json", check=False).returncode == 2
    assert relay("ps", "--interval", "0", check=False).returncode == 2


def test_next_is_the_agent_that_has_waited_longest_for_the_user(relay: Relay, terminal: Open) -> None:
    run = relay("next", "--print", check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "No agent needs you.\n")
    idle = FakeAgent(relay, "Idle").wrap()
    wait_until(lambda: idle.state() == "ready", message=idle.log)
    assert relay("next", "--print", check=False).returncode == 1
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
    assert {row["name"] for row in ps(relay)} == {"Idle", "Zoe", "Bob"}
