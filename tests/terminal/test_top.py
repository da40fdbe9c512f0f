"""`relay top` in a user's terminal, which is as before when it has left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulator import Emulator

from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

Open = Callable[..., Emulator]

TOP = (sys.executable, "-m", "relay", "top")
CELL = (8, 16)  # pixels, as the virtual screen says
KITTY = re.compile(rb"\x1b\[([<>])[0-9;]*u")
SGR_COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|9[0-7]|38|48)[0-9;]*m")


def click(top: Emulator, name: str) -> bytes:
    """Return a click at an agent in the list, as a terminal reports it (xterm ctlseqs: SGR, SGR-Pixels)."""
    x, y = 3, next(at for at, line in enumerate(top.lines()) if line.startswith(f"  {name} "))
    if top.screen.mode(1016):
        x, y = x * CELL[0], y * CELL[1]
    return f"\x1b[<0;{x + 1};{y + 1}M\x1b[<0;{x + 1};{y + 1}m".encode()


def test_you_attach_and_come_back_and_the_terminal_is_as_before(relay: Relay, terminal: Open) -> None:
    """Keys and the mouse; nothing that an agent prints acts on the terminal."""
    alice = FakeAgent(relay, "Alice").wrap()
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("\x1b]52;c;ZXZpbA==\x07\x1b]0;evil\x07\x1b[?1002hbuilding")
    top = terminal(*TOP, columns=80, rows=20)
    top.wait_for("2 agents, none needs you")
    assert top.screen.alternate and top.raw()
    top.wait(lambda: top.screen.mode(2048), "reports of its size are on")
    top.resize(80, 24)  # the virtual screen says only now how large a cell is
    top.wait(lambda: len(top.lines()) == 24, "drawn again")
    top.type(click(top, "Bob"))
    top.wait(lambda: sum("building" in line for line in top.lines()) == 2, "Bob's screen is shown")
    top.type(click(top, "Bob") * 2)
    top.wait(lambda: not top.screen.alternate, "the agent's own terminal, by a double click")
    bob.say("you are here")
    top.wait_for("you are here")
    before = len(top.output)
    top.type("for Bob\r")
    bob.receives("for Bob\n")
    top.resize(200, 60)
    top.type(b"\x1dd")
    top.wait(lambda: "── Bob " in "".join(top.lines()[1:2]), "the screen beside the list")
    top.type("k\r")
    top.wait(lambda: not top.screen.alternate, "the other agent's own terminal")
    alice.say("it is Alice")
    top.wait_for("it is Alice")
    top.type(b"\x1dd")
    top.wait_for("2 agents, none needs you")
    assert b"]52;" not in top.output[before:] and b"evil" not in top.output[before:]
    top.type("mxyryq")  # at once: no letter of a message is a key of the list
    top.wait_for("Message to Alice:")
    top.type("hi\r")
    alice.receives("hi")
    top.type("q")
    assert top.end() == 0
    keyboard = KITTY.findall(bytes(top.output))
    assert top.restored() and keyboard.count(b"<") >= keyboard.count(b">")
    assert {row["state"] for row in ps(relay)} <= {"ready", "working"}


@pytest.fixture(scope="module")
def sixty(shared: Relay) -> Iterator[None]:
    """Simulate sixty agents (benchmarks/top.py) in the shared home."""
    command = [sys.executable, "-m", "benchmarks.top", "--serve", "--agents", "60"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=shared.environment, stdout=subprocess.PIPE) as fleet:
        assert fleet.stdout is not None
        fleet.stdout.readline()
        yield
        fleet.kill()


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
@pytest.mark.shared_home
@pytest.mark.usefixtures("sixty")
def test_sixty_agents_are_listed_filtered_and_chosen(terminal: Open, columns: int, rows: int) -> None:
    top = terminal(*TOP, columns=columns, rows=rows)
    top.wait_for("60 agents, 15 need you")
    top.wait_for("── Agent58 ")
    top.type("\x1b[F")  # End
    top.wait_for("── Agent0 ")
    top.wait(lambda: top.shows("  Agent3 ") and not top.shows("  Agent58 "), "the end of the list")
    top.type("/")
    top.wait_for("words that an agent must have")
    top.type("agent17\r")
    top.wait(lambda: top.shows("── Agent17 ") and not top.shows("Agent3 "), "one is listed")
    top.type("\x1b")
    top.wait(lambda: top.shows("  Agent21 ") and top.shows("  Agent17 "), "all are listed")
    top.type("q")
    assert top.end() == 0 and top.restored()


def test_a_job_is_suspended_and_continues(relay: Relay, shell: Open) -> None:
    FakeAgent(relay, "Alice").wrap()
    top = shell(columns=80, rows=24)
    top.screen.answer_queries(lambda _: None)  # a report of the size would have all drawn again
    top.type("relay top\r")
    top.wait_for("── Alice")
    top.type(b"\x1a")
    top.wait(lambda: not top.screen.alternate and top.prompted(), "the shell is back")
    before = len(top.output)
    top.type("fg\r")
    top.see("1 agent, none needs you", before)
    top.see("help", before)  # all is drawn again, also what has not changed
    top.type("q")
    top.wait(lambda: not top.screen.alternate and top.prompted(), "the shell is back")


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda pid: b"\x03", 130),
        (lambda pid: os.kill(pid, signal.SIGTERM) or b"", 143),
        (lambda pid: os.kill(pid, signal.SIGINT) or b"", 130),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGINT"],
)
def test_a_signal_restores_the_terminal(terminal: Open, leave: Callable[[int], bytes], code: int) -> None:
    top = terminal(*TOP)
    top.wait_for("No agent is running")
    top.type(leave(top.pid))
    assert top.end() == code
    assert top.restored()


@pytest.mark.parametrize("attached", [False, True])
def test_closing_the_window_ends_it(relay: Relay, terminal: Open, attached: bool) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    top = terminal(*TOP)
    top.wait_for("1 agent, none needs you")
    if attached:
        top.type("\r")
        top.wait(lambda: not top.screen.alternate, "the agent's own terminal")
        alice.say("you are here")
        top.wait_for("you are here")
    top.hang_up()
    wait_until(top.ended)
    wait_until(lambda: ps(relay))


def test_no_color_is_respected(relay: Relay, terminal: Open) -> None:
    for name in ("Alice", "Bob"):
        FakeAgent(relay, name).wrap()
    plain, coloured = (terminal(*TOP, env={"NO_COLOR": value}) for value in ("1", ""))
    for each in (plain, coloured):
        each.wait_for("  Bob ")  # the chosen one, Alice, has no colours
        each.type("q")
        assert each.end() == 0
    assert not SGR_COLOUR.search(bytes(plain.output)) and SGR_COLOUR.search(bytes(coloured.output))


def test_it_needs_a_terminal(relay: Relay) -> None:
    run = relay("top", check=False)
    assert run.returncode == 2 and "top needs a terminal" in run.stderr and run.stdout == ""
