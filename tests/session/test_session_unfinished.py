"""Text that a session was typing when it was killed: the next one completes it, and never repeats it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.home import Home
from relay.message import Message, State
from relay.messaging.ledger import Ledger
from session.fake_agent import events
from session.test_session_replaced import entry, replaced
from support import Relay, session_patch, wait_until
from terminal.emulator import Emulator

FAKE = Path(__file__).parent.parent / "fakes" / "agent_tui.py"

Json = dict[str, Any]

_numbers = itertools.count(1)


class Tui:
    """An agent that draws its own input (tests/fakes/agent_tui.py); its first session dies at `target`.

    While the file `spared` exists, it does not die.
    """

    def __init__(self, relay: Relay, target: str = "", when: str = "", nth: int = 1) -> None:
        self.relay = relay
        self.name = f"Bob{next(_numbers)}"
        self.folder = relay.home / self.name
        self.folder.mkdir()
        self.log = self.folder / "agent.log"
        self.died, self.held, self.spared = (self.folder / each for each in ("died", "held", "spared"))
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
        return ["-n", self.name, sys.executable, "-S", FAKE, *options]

    @property
    def environment(self) -> dict[str, str]:
        return {"AGENT_LOG": str(self.log), **self.patch}

    def wrap(self, *options: str) -> Tui:
        self.relay("wrap", "-d", *self.command(*options), env=self.environment)
        return self

    def send(self, text: str, *options: str) -> None:
        self.relay("send", *options, self.name, text)

    def inputs(self) -> list[Json]:
        """Return the agent's input: submitted texts, control characters, approvals."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def bodies(self) -> list[str]:
        return [each["submitted"].split("] ", 1)[1].rpartition(" [/relay")[0] for each in self.inputs()]

    def outcomes(self, count: int = 1) -> list[Message]:
        """Return the messages to it once there are `count`, all final."""
        with Ledger(Home.from_env(self.relay.environment).ledger) as ledger:

            def found() -> list[Message]:
                return [entry.message for entry in ledger.messages(to=self.name)]

            wait_until(
                lambda: [m.state in {State.INJECTED, State.UNCERTAIN} for m in found()] == [True] * count,
                message=lambda: f"{found()}\n{self.inputs()}\n{events(self.relay)}",
            )
            return found()


Tuis = Callable[..., Tui]


@pytest.fixture
def tui(shared: Relay) -> Iterator[Tuis]:
    """Yield a factory of agents in a shared home, which are stopped afterwards."""
    made: list[Tui] = []

    def make(*arguments: Any) -> Tui:
        made.append(Tui(shared, *arguments))
        return made[-1]

    yield make
    for each in made:
        shared("stop", "--now", each.name, check=False)


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


@pytest.mark.parametrize(
    ("style", "point"),
    [
        *((("paste",), point) for point in BEFORE_ENTER),
        ((), "the paste is drawn"),
        (("paste", "scrolls"), "before Enter is written"),
    ],
    ids=str,
)
def test_text_alone_in_the_input_is_submitted_once_by_the_next_session(
    tui: Tuis, style: tuple[str, ...], point: str
) -> None:
    bob = tui(*BEFORE_ENTER[point]).wrap(*style)
    bob.send("a text of some length, so that it takes more than one row: " + "abc " * 40)
    wait_until(bob.died.exists)
    bob.send("second")
    first, second = bob.outcomes(2)
    assert (first.state, second.state) == (State.INJECTED, State.INJECTED)
    assert "the next one pressed Enter" in (first.detail or "")
    wait_until(lambda: len(bob.inputs()) >= 2)
    assert [body[:11] for body in bob.bodies()] == ["a text of s", "second"]
    noted = [e for e in events(bob.relay) if e["event"] == "injection" and e["id"] == first.id]
    assert [(e["result"], e["verified"]) for e in noted] == [("injected", "screen")]


@pytest.mark.parametrize("style", [("paste",), ()], ids=["pasted", "typed"])
def test_earlier_submitted_texts_do_not_prevent_the_submission(tui: Tuis, style: tuple[str, ...]) -> None:
    bob = tui(*BEFORE_ENTER["the paste is drawn"])
    bob.spared.touch()
    bob.wrap(*style)
    for body in ("first", "second"):
        bob.send(body, "--wait", "60")
    bob.spared.unlink()
    bob.relay("reload", bob.name)
    bob.send("third")
    wait_until(bob.died.exists)
    assert [message.state for message in bob.outcomes(3)] == [State.INJECTED] * 3
    wait_until(lambda: len(bob.inputs()) >= 3)
    assert bob.bodies() == ["first", "second", "third"]


@pytest.mark.parametrize(("target", "when", "nth"), AFTER_ENTER.values(), ids=AFTER_ENTER)
def test_a_submitted_text_is_not_submitted_again(tui: Tuis, target: str, when: str, nth: int) -> None:
    """The screen shows that it was submitted."""
    bob = tui(target, when, nth).wrap("paste")
    bob.send("first")
    wait_until(bob.died.exists)
    bob.send("second")
    assert [m.state for m in bob.outcomes(2)] == [State.INJECTED] * 2
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
    tui: Tuis, options: tuple[str, ...], target: str, when: str, nth: int
) -> None:
    bob = tui(target, when, nth).wrap(*options)
    bob.send("hello")
    wait_until(bob.died.exists)
    (message,) = bob.outcomes()
    assert (message.state, message.detail) == (
        State.UNCERTAIN,
        "the session ended while it was being typed",
    )
    assert bob.inputs() == []


@pytest.mark.parametrize("keys", ["X", "\x7f", "\x1b[D"], ids=["a letter", "backspace", "an arrow"])
def test_nothing_is_submitted_if_the_user_has_typed_since(shared: Relay, tui: Tuis, keys: str) -> None:
    bob = tui("relay.injection.typist:Typist._enter", "before")
    bob.held.touch()
    argv = [*shared.command, "wrap", *map(str, bob.command("paste"))]
    user = Emulator(argv, shared.environment | bob.environment)
    user.see("> ")
    wait_until(lambda: shared("send", bob.name, "hello", check=False).returncode == 0)
    wait_until(bob.died.exists)
    user.type(keys)
    # Only then are the keys in the ring.
    wait_until(lambda: keys == "X" or bob.inputs())
    if keys == "X":
        user.see("X")
    bob.held.unlink()
    (message,) = bob.outcomes()
    assert message.state is State.UNCERTAIN
    assert not [each for each in bob.inputs() if "submitted" in each]
    user.close()


def test_a_text_is_submitted_once_across_a_reload(tui: Tuis) -> None:
    """The old session leaves it to the next one."""
    bob = tui()
    slow = bob.folder / "slow"
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
    bob.patch = patch
    bob.wrap("paste")
    bob.send("hello")
    wait_until(bob.died.exists)
    bob.relay("reload", bob.name)
    slow.unlink()
    assert [m.state for m in bob.outcomes()] == [State.INJECTED]
    wait_until(bob.inputs)
    assert bob.bodies() == ["hello"]


SLOW_READER = """
import os, sys, tty
log, go = sys.argv[1:]
tty.setraw(0)
os.write(1, b"\x1b[?2004h> ")
with open(log, "ab", 0) as file:
    file.write(os.read(0, 10))
    open(go).read()
    while True:
        file.write(os.read(0, 1 << 16))
"""


def test_a_paste_is_completed_even_if_the_session_dies(shared: Relay) -> None:
    """The shim writes the paste as a whole: keys that the user types come after it, not into it."""
    log, go = shared.home / "log", shared.home / "go"
    os.mkfifo(go)
    program = [sys.executable, "-c", SLOW_READER, str(log), str(go)]
    user = Emulator([*shared.command, "wrap", "-n", "Bob", *program], shared.environment)
    user.see("> ")
    body = "much more than a terminal takes unread " * 1500
    wait_until(lambda: shared("send", "Bob", "-", input=body, check=False).returncode == 0)
    wait_until(lambda: log.exists() and log.read_bytes())
    before = entry(shared, "Bob")
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(shared, before)
    user.type("typed by the user")
    go.write_text("")
    wait_until(lambda: b"typed by the user" in log.read_bytes())
    read = log.read_bytes()
    assert read.startswith(b"\x1b[200~[relay ")
    assert read.count(b"much more than a terminal takes unread") == 1500
    assert read[read.index(b"[/relay ") :].partition(b"]")[2] == b"\x1b[201~typed by the user"
    user.close()
