"""Text that a session was typing when it was killed: the next one completes it, and never repeats it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from session.fake_agent import events, messages, ps
from support import Relay, session_patch, wait_until

FAKE = Path(__file__).parent.parent / "fakes" / "agent_tui.py"

Json = dict[str, Any]


class Tui:
    """An agent that draws its own input (tests/fakes/agent_tui.py); its first session dies at `target`.

    While the file `spared` exists, it does not die.
    """

    def __init__(self, relay: Relay, target: str = "", when: str = "", nth: int = 1) -> None:
        self.relay = relay
        self.log = relay.home / "agent.log"
        self.died, self.held, self.spared = (relay.home / each for each in ("died", "held", "spared"))
        self.patch = session_patch(
            "import os, time\n"
            f"died, held = {str(self.died)!r}, {str(self.held)!r}\n"
            "if os.path.exists(died):\n"
            "    while os.path.exists(held):\n"
            "        time.sleep(0.01)\n"
            f"elif {target!r} and not os.path.exists({str(self.spared)!r}):\n"
            "    from failpoints import Failpoint, Point, When, arm\n"
            f"    arm(Failpoint(Point({target!r}), When({when or 'before'!r}), nth={nth}, note=died))\n"
        )

    def command(self, *options: str) -> list[str | Path]:
        return ["-n", "Bob", sys.executable, FAKE, *options]

    @property
    def environment(self) -> dict[str, str]:
        return {"AGENT_LOG": str(self.log), **self.patch}

    def wrap(self, *options: str) -> Tui:
        self.relay("wrap", "-d", *self.command(*options), env=self.environment)
        return self

    def inputs(self) -> list[Json]:
        """Return the agent's input: submitted texts, control characters, approvals."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def bodies(self) -> list[str]:
        return [each["submitted"].split("] ", 1)[1].rpartition(" [/relay")[0] for each in self.inputs()]

    def outcomes(self, count: int = 1) -> list[Json]:
        """Return the messages to it once there are `count`, all final."""

        def final() -> list[Json]:
            found = messages(self.relay)
            return found if [m["state"] in {"injected", "uncertain"} for m in found] == [True] * count else []

        return wait_until(
            final, 60, message=lambda: f"{messages(self.relay)}\n{self.inputs()}\n{events(self.relay)}"
        )


BEFORE_ENTER = {
    "the paste is written": ("relay.terminal.shim_link:ShimLink.write", "after", 1),
    "the paste is drawn": ("relay.injection.typist:Typist._enter", "before", 1),
    "before Enter is written": ("relay.terminal.shim_link:ShimLink.write", "before", 2),
}
AFTER_ENTER = {
    "Enter is written": ("relay.terminal.shim_link:ShimLink.write", "after", 2),
    "before Enter is verified": ("relay.injection.typist:Typist._taken", "before", 1),
    "Enter is verified": ("relay.injection.typist:Typist.type", "after", 1),
    "before that is recorded": ("relay.messaging.inbox:Inbox.settle", "before", 1),
}


@pytest.mark.parametrize(("target", "when", "nth"), BEFORE_ENTER.values(), ids=BEFORE_ENTER)
@pytest.mark.parametrize(
    "style", [("paste",), (), ("paste", "scrolls")], ids=["pasted", "typed", "its end is shown"]
)
def test_text_alone_in_the_input_is_submitted_once_by_the_next_session(
    relay: Relay, style: tuple[str, ...], target: str, when: str, nth: int
) -> None:
    bob = Tui(relay, target, when, nth).wrap(*style)
    relay("send", "Bob", "a text of some length, so that it takes more than one row: " + "abc " * 40)
    wait_until(bob.died.exists)
    relay("send", "Bob", "second")
    first, second = bob.outcomes(2)
    assert (first["state"], second["state"]) == ("injected", "injected")
    assert "the next one pressed Enter" in first["detail"]
    wait_until(lambda: len(bob.inputs()) >= 2)
    assert [body[:11] for body in bob.bodies()] == ["a text of s", "second"]
    noted = [e for e in events(relay) if e["event"] == "injection" and e["id"] == first["id"]]
    assert [(e["result"], e["verified"]) for e in noted] == [("injected", "screen")]


@pytest.mark.parametrize("style", [("paste",), ()], ids=["pasted", "typed"])
def test_earlier_submitted_texts_do_not_prevent_the_submission(relay: Relay, style: tuple[str, ...]) -> None:
    bob = Tui(relay, *BEFORE_ENTER["the paste is drawn"])
    bob.spared.touch()
    bob.wrap(*style)
    for body in ("first", "second"):
        relay("send", "--wait", "60", "Bob", body)
    bob.spared.unlink()
    relay("reload", "Bob")
    relay("send", "Bob", "third")
    wait_until(bob.died.exists)
    assert [message["state"] for message in bob.outcomes(3)] == ["injected"] * 3
    wait_until(lambda: len(bob.inputs()) >= 3)
    assert bob.bodies() == ["first", "second", "third"]


@pytest.mark.parametrize(("target", "when", "nth"), AFTER_ENTER.values(), ids=AFTER_ENTER)
def test_a_submitted_text_is_not_submitted_again(relay: Relay, target: str, when: str, nth: int) -> None:
    """The screen shows that it was submitted."""
    bob = Tui(relay, target, when, nth).wrap("paste")
    relay("send", "Bob", "first")
    wait_until(bob.died.exists)
    relay("send", "Bob", "second")
    assert [m["state"] for m in bob.outcomes(2)] == ["injected", "injected"]
    wait_until(lambda: len(bob.inputs()) >= 2)
    assert bob.bodies() == ["first", "second"]


@pytest.mark.parametrize(
    ("options", "target", "when", "nth"),
    [
        (("paste",), "relay.terminal.shim_link:ShimLink.write", "before", 1),
        (("paste", "no-enter"), "relay.terminal.shim_link:ShimLink.write", "after", 2),
        (("paste", "collapse"), "relay.injection.typist:Typist._enter", "before", 1),
        (("paste", "silent"), "relay.injection.typist:Typist._enter", "before", 1),
        (("paste", "asks"), "relay.terminal.shim_link:ShimLink.write", "after", 1),
    ],
    ids=["never written", "Enter not taken", "a placeholder", "not drawn", "a dialog"],
)
def test_any_other_text_is_uncertain_and_not_submitted(
    relay: Relay, options: tuple[str, ...], target: str, when: str, nth: int
) -> None:
    bob = Tui(relay, target, when, nth).wrap(*options)
    relay("send", "Bob", "hello")
    wait_until(bob.died.exists)
    (message,) = bob.outcomes()
    assert (message["state"], message["detail"]) == (
        "uncertain",
        "the session ended while it was being typed",
    )
    assert bob.inputs() == []


@pytest.mark.parametrize("keys", ["X", "\x7f", "\x1b[D"], ids=["a letter", "backspace", "an arrow"])
def test_nothing_is_submitted_if_the_user_has_typed_since(relay: Relay, keys: str) -> None:
    bob = Tui(relay, "relay.injection.typist:Typist._enter", "before")
    bob.held.touch()
    arguments = [*relay.command[1:], "wrap", *map(str, bob.command("paste"))]
    environment = {**relay.environment, **bob.environment}
    user = pexpect.spawn(relay.command[0], arguments, env=environment, timeout=60, dimensions=(24, 80))  # type: ignore[arg-type]
    user.expect("> ")
    wait_until(lambda: relay("send", "Bob", "hello", check=False).returncode == 0)
    wait_until(bob.died.exists)
    user.send(keys)
    # Only then are the keys in the ring.
    wait_until(lambda: keys == "X" or bob.inputs())
    if keys == "X":
        user.expect_exact("X")
    bob.held.unlink()
    (message,) = bob.outcomes()
    assert message["state"] == "uncertain"
    assert not [each for each in bob.inputs() if "submitted" in each]
    user.close(force=True)


def test_a_text_is_submitted_once_across_a_reload(relay: Relay) -> None:
    """The old session leaves it to the next one."""
    bob = Tui(relay)
    slow = relay.home / "slow"
    patch = session_patch(
        "import asyncio, os\n"
        "from relay.injection.typist import Typist\n"
        "enter = Typist._enter\n"
        "async def slowly(self, mark, empty, tries):\n"
        f"    while os.path.exists({str(slow)!r}):\n"
        f"        open({str(bob.died)!r}, 'w').close()\n"
        "        await asyncio.sleep(0.01)\n"
        "    return await enter(self, mark, empty, tries)\n"
        "Typist._enter = slowly\n"
    )
    slow.touch()
    relay("wrap", "-d", *bob.command("paste"), env={**bob.environment, **patch})
    relay("send", "Bob", "hello")
    wait_until(bob.died.exists)
    relay("reload", "Bob")
    slow.unlink()
    assert [m["state"] for m in bob.outcomes()] == ["injected"]
    wait_until(bob.inputs)
    assert bob.bodies() == ["hello"]


SLOW_READER = """
import os, sys, time, tty
log, go = sys.argv[1:]
tty.setraw(0)
os.write(1, b"\x1b[?2004h> ")
with open(log, "ab", 0) as file:
    file.write(os.read(0, 10))
    while not os.path.exists(go):
        time.sleep(0.01)
    while True:
        file.write(os.read(0, 1 << 16))
"""


def test_a_paste_is_completed_even_if_the_session_dies(relay: Relay) -> None:
    """The shim writes the paste as a whole: keys that the user types come after it, not into it."""
    log, go = relay.home / "log", relay.home / "go"
    program = [sys.executable, "-c", SLOW_READER, str(log), str(go)]
    arguments = [*relay.command[1:], "wrap", "-n", "Bob", *program]
    user = pexpect.spawn(relay.command[0], arguments, env=relay.environment, timeout=60)  # type: ignore[arg-type]
    user.expect("> ")
    body = "much more than a terminal takes unread " * 1500
    wait_until(lambda: relay("send", "Bob", "-", input=body, check=False).returncode == 0)
    wait_until(lambda: log.exists() and log.read_bytes())
    (before,) = ps(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    wait_until(lambda: ps(relay)[0]["session_pid"] != before["session_pid"])
    user.send("typed by the user")
    go.touch()
    wait_until(lambda: b"typed by the user" in log.read_bytes())
    read = log.read_bytes()
    assert read.startswith(b"\x1b[200~[relay ")
    assert read.count(b"much more than a terminal takes unread") == 1500
    assert read[read.index(b"[/relay ") :].partition(b"]")[2] == b"\x1b[201~typed by the user"
    user.close(force=True)
