"""Relay's own keys in an agent's terminal: help, switching to other agents, and another prefix."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from session.fake_agent import ps, settings
from session.test_session_replaced import entry
from support import Relay

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

ECHO = (
    sys.executable,
    "-c",
    "import os\nwhile data := os.read(0, 99): os.write(1, b'<' + data.strip() + b'>\\n')",
)
"""Prints every line it reads."""

DRAWS = (
    sys.executable,
    "-c",
    "import os, tty\ntty.setraw(0)\nos.write(1, b'\\x1b[?1049h\\x1b[2;5H\\x1b[1;31mdrawn\\x1b[0m')\n"
    "while data := os.read(0, 99): os.write(1, b'<' + data.hex().encode() + b'>')",
)
"""Draws on the alternate screen, and shows every key."""


def start(relay: Relay, *names: str) -> None:
    for name in names:
        relay("wrap", "-d", "-n", name, "sh", "-c", f"echo this is {name}; exec cat")


def test_help_covers_the_screen_until_a_key_is_pressed(wrap: Open) -> None:
    drawn = wrap("-n", "Alice", *DRAWS)
    drawn.wait_for("drawn")
    before = drawn.picture()
    drawn.type(b"\x1d?")
    drawn.wait_for("Ctrl-] n   the next agent")
    assert not drawn.shows("drawn")
    drawn.type(b"\x1b[5;9R")  # a late terminal report reaches the agent, and does not close the help
    drawn.type(b"q")
    drawn.wait_for("drawn")
    drawn.wait(lambda: drawn.shows("<1b5b353b3952>"), "the answer reached the agent")
    assert not drawn.shows("Ctrl-]") and not drawn.shows("<71>")
    assert drawn.picture()[2] == before[2]
    drawn.type(b"x")
    drawn.wait_for("<78>")
    drawn.type(b"\x1dd")
    assert drawn.end() == 0


def test_help_works_without_a_session(relay: Relay, wrap: Open) -> None:
    """The agent's last output is shown again."""
    alice = wrap("-n", "Alice", *ECHO)
    alice.type("first\r")
    alice.wait_for("<first>")
    pid = entry(relay)["session_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        alice.type(b"\x1d?")
        alice.wait_for("Press any key")
        alice.type(b" ")
        alice.wait_for("<first>")
        alice.type("second\r")
        alice.wait_for("<second>")
    finally:
        os.kill(pid, signal.SIGCONT)


def test_keys_switch_from_agent_to_agent(relay: Relay, wrap: Open) -> None:
    """The order is by name, cyclic; an agent attached in another terminal is skipped."""
    start(relay, "Bob", "Cy")
    terminal = wrap("-n", "Alice", "sh", "-c", "echo this is Alice; exec cat")
    terminal.wait_for("this is Alice")
    entry(relay)  # only then can one switch to it
    seen = len(terminal.output)
    for key, name in [(b"n", "Bob"), (b"n", "Cy"), (b"n", "Alice"), (b"p", "Cy"), (b"p", "Bob")]:
        terminal.type(b"\x1d" + key)
        seen = terminal.see(f"this is {name}", after=seen)
    terminal.type("to Bob\r")
    terminal.see("to Bob", after=seen)
    terminal.type(b"\x1dd")
    assert terminal.end() == 0
    terminal.wait_for("Bob keeps running; `relay attach Bob` brings it back")
    assert not terminal.shows("Alice keeps running"), "a switch is not reported as a detachment"
    assert {row["name"] for row in ps(relay)} == {"Alice", "Bob", "Cy"}


def test_an_agent_attached_elsewhere_is_skipped(relay: Relay, wrap: Open, terminal: Open) -> None:
    start(relay, "Bob", "Cy")
    other = terminal(sys.executable, "-m", "relay", "attach", "Bob")
    other.wait_for("this is Bob")
    mine = wrap("-n", "Alice", *ECHO)
    mine.type("x\r")
    mine.wait_for("<x>")
    mine.type(b"\x1dn")
    mine.wait_for("this is Cy")
    relay("stop", "Cy")
    mine.end()
    other.type(b"\x1dn")
    other.wait_for("<x>")
    other.type(b"\x1dd")
    assert other.end() == 0


def test_without_another_agent_the_same_one_is_shown_again(relay: Relay, wrap: Open) -> None:
    alice = wrap("-n", "Alice", *ECHO)
    entry(relay)
    alice.type("first\r")
    seen = alice.see("<first>")
    alice.type(b"\x1dn")
    alice.see("<first>", after=seen)
    alice.type("second\r")
    alice.wait_for("<second>")


def test_the_prefix_can_be_changed_or_disabled(relay: Relay, wrap: Open, terminal: Open) -> None:
    settings(relay, 'detach_key = "C-a"\n')
    alice = wrap("-n", "Alice", *DRAWS)
    entry(relay)  # its session has read the setting
    alice.wait_for("drawn")
    alice.type(b"\x1dd")
    alice.wait_for("<1d64>")
    alice.type(b"\x01d")
    assert alice.end() == 0
    settings(relay, 'detach_key = "none"\n')
    relay("reload", "Alice")
    again = terminal(sys.executable, "-m", "relay", "attach", "Alice")
    again.wait_for("drawn")
    again.type(b"\x01d\x1dd")
    again.wait_for("<01641d64>")
