"""OSC 7501, status reports: relay takes them from its agent, and sends them to the user's terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session.fake_agent import ps
from support import Relay, wait_until
from terminal.emulator import Emulator

pytestmark = pytest.mark.own_team

QUERY = b"\x1b]7501;?\x1b\\"
MENU = Path(__file__).parent.parent / "fakes" / "agent_menu.py"

Open = Callable[..., Emulator]


@pytest.fixture
def wrap(relay: Relay) -> Iterator[Open]:
    """Yield a factory: `wrap("--agent", "claude", "--", "sh")` runs `relay wrap -n Alice ...`."""
    opened = []

    def open_(*arguments: str, **environment: str) -> Emulator:
        argv = [*relay.command, "wrap", "-n", "Alice", *arguments]
        terminal = Emulator(argv, relay.environment | environment)
        terminal.drawing = False  # it would answer queries
        opened.append(terminal)
        return terminal

    yield open_
    for terminal in opened:
        terminal.close()


def test_a_terminal_that_supports_reports_gets_them(relay: Relay, wrap: Open) -> None:
    """Neither the query nor its answer reaches the agent."""
    log = relay.home / "agent.log"
    terminal = wrap("--agent", "claude", "--", sys.executable, str(MENU), AGENT_LOG=str(log))
    asked = terminal.see(QUERY)
    terminal.type(QUERY)
    blocked = terminal.see(b"\x1b]7501;state=blocked:kind=permission:app=relay\x1b\\", asked)
    relay("answer", "Alice", "3")
    working = terminal.see(b"\x1b]7501;state=working:app=relay\x1b\\", blocked)
    terminal.type("\x1d" + "d")
    terminal.see(b"\x1b]7501;state=clear\x1b\\", working)
    terminal.end()
    assert [json.loads(line) for line in log.read_text().splitlines()] == [
        {"asked": True},
        {"chose": 3, "text": ""},
    ]


def test_a_terminal_without_support_gets_no_reports(relay: Relay, wrap: Open) -> None:
    log = relay.home / "agent.log"
    terminal = wrap("--agent", "claude", "--", sys.executable, str(MENU), AGENT_LOG=str(log))
    terminal.see(QUERY)
    wait_until(lambda: [row["prompt"] for row in ps(relay)] == ["permission"])
    relay("answer", "Alice", "3")
    terminal.type("\x1d" + "d")
    terminal.end()
    assert b"7501;state" not in terminal.output


REPORTER = r"""
import os, sys, tty
tty.setraw(0)
os.write(1, b"\x1b]7501;?\x1b\\\x1b[c")
said = b""
while not said.endswith(b"c"):
    said += os.read(0, 100)
os.write(1, repr(said).encode() + b"\r\n\x1b]7501;state=blocked:kind=question:app=speaker\x1b\\> ")
while os.read(0, 100):
    pass
"""


def test_reports_of_the_agent_count_and_are_passed_on(relay: Relay, wrap: Open) -> None:
    """Its query is answered before later queries are; its report is passed on unchanged."""
    terminal = wrap("--", sys.executable, "-c", REPORTER)
    asked = terminal.see(QUERY + b"\x1b[c")
    terminal.type(QUERY + b"\x1b[?62c")
    answered = terminal.see(repr(QUERY + b"\x1b[?62c").encode(), asked)
    terminal.see(b"\x1b]7501;state=blocked:kind=question:app=speaker\x1b\\", answered)
    wait_until(lambda: [row["prompt"] for row in ps(relay)] == ["question"])


def test_a_detached_agents_query_is_answered_first(relay: Relay) -> None:
    out = relay.home / "out"
    code = REPORTER.replace(
        "os.write(1, repr(said)", f"open({str(out)!r}, 'wb').write(said); os.write(1, repr(said)"
    )
    relay("wrap", "-d", "-n", "Alice", "--", sys.executable, "-c", code)
    wait_until(lambda: [row["prompt"] for row in ps(relay)] == ["question"])
    assert out.read_bytes().startswith(QUERY + b"\x1b[?")
