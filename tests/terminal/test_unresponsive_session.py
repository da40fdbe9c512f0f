"""Terminals of an agent whose session does not answer: attached, repainted late, and restored."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emulator import Emulator

from support import Relay, wait_until

Open = Callable[..., Emulator]

SCREEN = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"first\\r\\n")
os.write(1, b"second" + b"\\x1b[6n" * (len(sys.argv) > 1))
while True:
    for key in os.read(0, 100):
        if key == ord("w"):
            os.write(1, b"\\x1b[?1049h\\x1b[?1003h\\x1b[?2004h\\x1b[?25lwild")
        else:
            os.write(1, b"<%d>" % key)
"""
"""Shows each key; w draws on the alternate screen. With an argument, it queries the cursor position."""


@contextmanager
def _stopped(relay: Relay, name: str) -> Iterator[Callable[[], None]]:
    """Stop the session of `name`, once it answers, until the yielded function is called."""
    row = wait_until(
        lambda: next(
            (
                row
                for row in json.loads(relay("ps", "--json").stdout)
                if row["name"] == name and row["state"] != "unresponsive"
            ),
            None,
        )
    )
    os.kill(row["session_pid"], signal.SIGSTOP)
    try:
        yield lambda: os.kill(row["session_pid"], signal.SIGCONT)
    finally:
        os.kill(row["session_pid"], signal.SIGCONT)


def _attach(terminal: Open, name: str) -> Emulator:
    return terminal(sys.executable, "-m", "relay", "attach", name)


def _lines(terminal: Emulator) -> list[str]:
    return [line.rstrip() for line in terminal.lines() if line.strip()]


def test_the_last_output_is_shown_without_its_queries(terminal: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Still", sys.executable, "-c", SCREEN, "ask")
    with _stopped(relay, "Still"):
        outer = _attach(terminal, "Still")
        outer.wait_for("second")
        assert _lines(outer)[0] == "first"
        outer.type("x")
        outer.wait_for("<120>")
        assert b"\x1b[6n" not in outer.output
        assert outer.output.count(b"<27>") <= 1  # the session's own earlier answer


def test_a_late_repaint_is_followed_by_the_output_since(terminal: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Late", sys.executable, "-c", SCREEN)
    with _stopped(relay, "Late") as resume:
        outer = _attach(terminal, "Late")
        outer.wait_for("second")
        outer.type("x")
        outer.wait_for("<120>")
        shown = len(outer.output)
        resume()
        outer.wait(lambda: b"<120>" in outer.output[shown:], "the repaint, and the output since")
        assert _lines(outer) == ["first", "second<120>"]
        outer.type("y")
        outer.wait_for("second<120><121>")


def test_a_terminal_is_restored_without_knowledge_of_its_modes(wrap: Open, relay: Relay) -> None:
    outer = wrap("-n", "Wild", sys.executable, "-c", SCREEN)
    outer.wait_for("second")
    with _stopped(relay, "Wild"):
        outer.type("w")
        outer.wait_for("wild")
        outer.type("\x1dd")
        assert outer.end() == 0
        assert outer.restored()
        assert _lines(outer)[-1] == "relay: Wild keeps running; `relay attach Wild` brings it back"
