"""Where relay's notices appear in the user's terminal: never over the agent's or the user's text."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from emulator import Emulator

from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

BOX = r"stty raw -echo; printf 'top\r\n+------+\r\n| ask  |\r\n+------+\033[A\033[3D'; exec cat >/dev/null"
"""Draws an input box on the primary screen, with the cursor in it."""

NOTIFIER = """
import asyncio, pathlib
from relay.session.features import FEATURES
from relay.terminal.events import Notify

class Notifier:
    def __init__(self, bus):
        self.bus = bus
    async def run(self):
        while True:
            for path in pathlib.Path(FOLDER).glob("say-*"):
                self.bus.publish(Notify(path.read_text()))
                path.unlink()
            await asyncio.sleep(0.01)

FEATURES["notifier"] = lambda core: Notifier(core.bus)
"""
"""A session feature that shows the notices requested by `notify`."""


@pytest.fixture
def wrap_alice(wrap: Open, relay: Relay) -> Open:
    """Return a factory: `wrap_alice("cat")` wraps a program whose session shows notices for `notify`."""
    patch = session_patch(f"FOLDER = {str(relay.home)!r}{NOTIFIER}")

    def open_(*argv: str, **options: Any) -> Emulator:
        return wrap("-n", "Alice", *argv, env=patch, **options)

    return open_


def notify(relay: Relay, text: str) -> None:
    """Make the session show a notice, and wait until its shim knows of it."""
    part, whole = relay.home / "part", relay.home / "say-it"
    part.write_text(text)
    part.rename(whole)
    wait_until(lambda: not whole.exists())
    _pending(relay)  # answered only after the notice was handled


def _session(relay: Relay) -> dict[str, Any]:
    return wait_until(
        lambda: next(
            (row for row in json.loads(relay("ps", "--json").stdout) if row["state"] != "unresponsive"), None
        )
    )


def _pending(relay: Relay) -> list[str]:
    return list(json.loads(relay("explain", "--json", "Alice").stdout)["notices"])


def test_a_notice_waits_in_the_inbox_until_a_terminal_shows_it(wrap_alice: Open, relay: Relay) -> None:
    """B3: the agent draws all the time."""
    alice = wrap_alice("sh", "-c", BOX)
    alice.wait_for("ask")
    _session(relay)
    notify(relay, "the news")
    wait_until(lambda: "the news" in relay("inbox").stdout)
    alice.type(b"\x1dd")
    alice.end()
    assert "relay: the news" in "\n".join(alice.lines())
    wait_until(lambda: "the news" not in relay("inbox").stdout)


def test_a_notice_appears_between_two_lines(wrap_alice: Open, relay: Relay) -> None:
    alice = wrap_alice("sh", "-c", "echo up; exec cat")
    alice.wait_for("up")
    _session(relay)
    notify(relay, "the news")
    alice.wait_for("relay: the news")
    alice.type("mine\r")
    alice.wait(lambda: alice.lines() == ["up", "relay: the news", "mine", "mine"])
    assert _pending(relay) == []


def test_a_notice_waits_until_the_typed_line_is_complete(wrap_alice: Open, relay: Relay) -> None:
    """Neither a prompt nor a draft is split; the bell announces the notice."""
    alice = wrap_alice("sh", "-c", "while printf 'name? '; read name; do echo hello $name; done")
    alice.wait_for("name?")
    _session(relay)
    notify(relay, "the first news")
    alice.type("Ann")
    alice.wait_for("name? Ann")
    alice.see("\a")
    bells = alice.output.count(b"\a")
    notify(relay, "more news")
    alice.wait(lambda: alice.output.count(b"\a") > bells)
    assert _pending(relay) == ["the first news", "more news"]
    assert alice.lines() == ["name? Ann"]
    alice.type("ie\r")
    rows = ["hello Annie", "name?", "name? Annie", "relay: more news", "relay: the first news"]
    alice.wait(lambda: sorted(alice.lines()) == rows)
    assert _pending(relay) == []


def test_a_notice_waits_while_a_shell_edits_its_line(wrap_alice: Open, relay: Relay) -> None:
    """readline draws it: the notice comes with the next command's output, or at the end."""
    alice = wrap_alice("bash", "--norc", "--noprofile", "-i", cwd=relay.home)
    alice.type("PS1='shell> '\r")
    alice.wait(lambda: alice.lines()[-1:] == ["shell>"])
    _session(relay)
    alice.type("echo half")
    alice.wait_for("shell> echo half")
    notify(relay, "the news")
    assert _pending(relay) == ["the news"]
    assert alice.lines()[-1] == "shell> echo half"
    alice.type("\x01\x1b[C\x05way; read line\r")
    alice.wait(lambda: {"shell> echo halfway; read line", "halfway", "relay: the news"} <= {*alice.lines()})
    alice.type("\r")
    alice.wait(lambda: alice.lines()[-1:] == ["shell>"])
    alice.type("one\x15exit\r")
    assert alice.end() == 0


def test_a_notice_leaves_a_drawing_intact(wrap_alice: Open, relay: Relay) -> None:
    """The notice appears below the box when the terminal is detached."""
    alice = wrap_alice("sh", "-c", BOX)
    alice.wait_for("+------+")
    _session(relay)
    drawn = alice.lines()
    notify(relay, "the news")
    assert _pending(relay) == ["the news"]
    alice.see("\a")
    assert alice.lines() == drawn
    alice.type("\x1dd")
    assert alice.end() == 0
    assert alice.lines()[: len(drawn) + 1] == [*drawn, "relay: the news"]


def test_a_notice_waits_while_the_program_reads_single_keys(wrap_alice: Open, relay: Relay) -> None:
    alice = wrap_alice("sh", "-c", r"stty raw -echo; printf 'up\r\n'; exec cat >/dev/null")
    alice.wait_for("up")
    _session(relay)
    notify(relay, "the news")
    alice.see("\a")
    assert _pending(relay) == ["the news"]
    assert alice.lines() == ["up"]


def test_no_notice_appears_while_the_job_is_stopped(shell: Open, relay: Relay) -> None:
    patch = session_patch(f"FOLDER = {str(relay.home)!r}{NOTIFIER}")
    outer = shell()
    for name, value in patch.items():
        (relay.home / name).write_text(value)
        outer.type(f'export {name}="$(cat {name})"\r')
    outer.type("clear; relay wrap -n Alice sh -c 'echo up; read a; kill -STOP $$; cat'\r")
    outer.wait(lambda: outer.lines()[-1:] == ["up"])
    _session(relay)
    outer.type("\r")
    outer.wait(outer.prompted)
    outer.type("echo dra")
    outer.wait_for("shell> echo dra")
    wait_until(lambda: _session(relay)["state"] == "stopped")
    notify(relay, "the news")
    assert _pending(relay) == ["the news"]
    outer.drain()
    assert outer.lines()[-1] == "shell> echo dra"
    outer.type("\x15fg\r")
    outer.wait(outer.raw)
    outer.type("go on\r")
    outer.wait_for("relay: the news")


@pytest.mark.parametrize("way", ["takeover", "detach", "death"])
def test_relays_last_line_appears_below_the_drawing(
    way: str, wrap_alice: Open, terminal: Open, relay: Relay
) -> None:
    """No session may be left that knows where the drawing ends (U18)."""
    alice = wrap_alice("sh", "-c", BOX)
    alice.wait_for("+------+")
    session = _session(relay)
    drawn = alice.lines()
    alice.screen.collect()
    if way == "detach":
        os.kill(session["session_pid"], signal.SIGSTOP)
        alice.type("\x1dd")
    elif way == "takeover":
        terminal(sys.executable, "-m", "relay", "attach", "--takeover", "Alice").wait_for("+------+")
        alice.see("press Enter")
        alice.type("\r")
    else:
        os.kill(session["terminal_pid"], signal.SIGKILL)
    alice.end()
    if way == "detach":
        os.kill(session["session_pid"], signal.SIGCONT)
    lines = [*alice.screen.history, *alice.lines()]
    assert lines[: len(drawn)] == drawn
    assert any(line.startswith("relay: ") for line in lines[len(drawn) :])


def test_the_failure_of_the_session_is_reported_between_two_lines(wrap: Open, relay: Relay) -> None:
    broken = relay.home / "broken"
    patch = session_patch(f"import os\nif os.path.exists({str(broken)!r}):\n    raise SystemExit('broken')\n")
    alice = wrap("-n", "Alice", "sh", "-c", "printf 'name? '; read name; echo hello $name; cat", env=patch)
    alice.wait_for("name?")
    before = _session(relay)
    alice.type("An")
    alice.wait_for("name? An")
    broken.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.see("\a")
    assert alice.lines() == ["name? An"]
    alice.type("n\r")
    alice.wait_for("hello Ann")
    alice.wait_for("relay: relay's session failed")
    assert "name? Ann" in alice.lines() and "hello Ann" in alice.lines()
