"""Texts that reach an agent through relay's plug-in in it: tests/fakes/agent_pi.mjs runs that for pi."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from agents.node import NODE, needs_node
from relay.control.sessions import call, find
from relay.home import Home
from session.fake_agent import messages, ps
from support import Relay, session_patch, wait_until

FAKE = Path(__file__).parent.parent / "fakes" / "agent_pi.mjs"

HASTE = """
import relay.injection.door_delivery as door
door.PROOF_TIMEOUT, door.PAUSE, door.REPORT_LEASE = 0.5, 1.0, 1.0
"""
"""Makes a session soon give up a silent door, try it again, and end a turn that no hook ends."""

pytestmark = [
    pytest.mark.shared_home,
    needs_node,
]

_numbers = itertools.count(1)


class Pi:
    """The fake program, named `pi`, in its own session. takes: it takes prompts from the beginning."""

    def __init__(self, relay: Relay, *, takes: bool = True) -> None:
        self.relay = relay
        self.name = f"Pi{next(_numbers)}"
        self.folder = relay.home / self.name
        self.folder.mkdir()
        program = self.folder / "pi"
        program.write_text(f"#!{NODE}\nimport({json.dumps(FAKE.as_uri())})\n")
        program.chmod(0o755)
        if takes:
            self.go()
        env = {"AGENT_FOLDER": str(self.folder), **session_patch(HASTE)}
        relay("wrap", "-d", "-n", self.name, "--", program, env=env, cwd=self.folder)
        wait_until(lambda: "takes texts" in self.explain()["door"], message=lambda: str(self.explain()))

    def go(self) -> None:
        """Let it take its prompts."""
        (self.folder / "go").touch()

    def explain(self) -> dict[str, Any]:
        home = Home.from_env(self.relay.environment)
        return call(find(home, self.name).socket, {"op": "explain"})

    def send(self, body: str) -> None:
        self.relay("send", self.name, body)

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self) -> list[tuple[str, str, str]]:
        found = messages(self.relay, "--all", "--to", self.name)
        rows = sorted(found, key=lambda row: float(row["time"]))
        return [(row["body"], row["state"], row["route"]) for row in rows]

    def ends(self, *rows: tuple[str, str, str]) -> None:
        """Wait until the messages to it are `rows`."""
        wait_until(lambda: self.rows() == list(rows), message=lambda: f"{self.rows()} {self.explain()}")

    def kill_session(self) -> None:
        row = next(row for row in ps(self.relay) if row["name"] == self.name)
        os.kill(row["session_pid"], signal.SIGKILL)


def test_messages_come_once_each_and_in_order(relay: Relay) -> None:
    """By the door, or if pi has not finished with the one before, in the reply to its hook."""
    pi = Pi(relay)
    bodies = [f"number {number}" for number in range(8)]
    for body in bodies:
        pi.send(body)
    wait_until(
        lambda: [(row[0], row[1]) for row in pi.rows()] == [(body, "injected") for body in bodies],
        message=lambda: str(pi.rows()),
    )

    def taken() -> list[str]:
        return re.findall(r"\] (number \d) \[/relay", "\n".join(pi.lines("taken")))

    # What a reply carries is injected once the hook has printed it, a moment before pi takes it.
    wait_until(lambda: len(taken()) >= len(bodies), message=lambda: f"{taken()} {pi.rows()}")
    assert taken() == bodies
    assert "door" in {row[2] for row in pi.rows()}


def test_a_killed_session_leaves_the_message_to_the_next(relay: Relay) -> None:
    """Killed before pi takes the message, which its extension has accepted."""
    pi = Pi(relay, takes=False)
    pi.send("hello")
    wait_until(lambda: pi.lines("prompts"))
    pi.kill_session()
    pi.go()
    pi.ends(("hello", "injected", "door"))
    pi.send("hello again")
    pi.ends(("hello", "injected", "door"), ("hello again", "injected", "door"))
    assert len(pi.lines("prompts")) == 2


def test_a_message_that_pi_took_while_it_had_no_session_is_injected(relay: Relay) -> None:
    pi = Pi(relay, takes=False)
    pi.send("hello")
    wait_until(lambda: pi.lines("prompts"))
    shim = next(row for row in ps(relay) if row["name"] == pi.name)["terminal_pid"]
    os.kill(shim, signal.SIGSTOP)  # it starts no session
    try:
        pi.kill_session()
        pi.go()
        wait_until(lambda: pi.lines("taken"))
    finally:
        os.kill(shim, signal.SIGCONT)
    pi.ends(("hello", "injected", "door"))
    assert len(pi.lines("prompts")) == 1


def test_a_message_that_pi_never_takes_is_uncertain_and_keeps_none_waiting(relay: Relay) -> None:
    pi = Pi(relay, takes=False)
    pi.send("hello")
    pi.ends(("hello", "uncertain", "door"))
    pi.send("another")
    wait_until(lambda: len(pi.lines("prompts")) == 2)
    pi.go()
    wait_until(lambda: ("another", "injected", "door") in pi.rows(), message=lambda: str(pi.rows()))
    assert sum(text.startswith("[relay ") for text in pi.lines("taken")) == 2


def test_the_message_that_a_killed_agent_had_accepted_is_uncertain(relay: Relay) -> None:
    pi = Pi(relay, takes=False)
    pi.send("hello")
    wait_until(lambda: pi.lines("prompts"))
    os.kill(int((pi.folder / "pid").read_text()), signal.SIGKILL)
    pi.ends(("hello", "uncertain", "door"))
