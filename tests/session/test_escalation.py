"""What is done when an agent asks, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relay import desktop_notification
from relay.session.escalation import COOLDOWN, MAX_LINES, MOMENT, REPEAT, Escalation
from relay.storage.journal import Journal


class World:
    """Everything that an escalation reaches."""

    def __init__(self, folder: Path, action: str = "escalate", to: str = "Lead") -> None:
        self.now = 100.0
        self.terminal = self.undo = b""
        self.title = "own"
        self.drawn: tuple[str, ...] = ()
        self.notified: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str]] = []
        self.timers: list[Alarm] = []
        self.path = folder / "events.jsonl"
        self.escalation = Escalation(
            "Alice",
            action=action,
            to=to,
            drawn=lambda: self.drawn,
            show=self._show,
            title=lambda: self.title,
            notify=lambda title, text: self.notified.append((title, text)),
            send=lambda to, text: self.sent.append((to, text)),
            journal=Journal(self.path, "s1", "Alice"),
            clock=lambda: self.now,
            later=self._later,
        )

    def _show(self, data: bytes, undo: bytes | None = None) -> None:
        self.terminal += data
        self.undo = self.undo if undo is None else undo

    def _later(self, delay: float, call: Callable[[], None]) -> Alarm:
        self.timers.append(Alarm(self.now + delay, call))
        return self.timers[-1]

    def passes(self, seconds: float) -> None:
        self.now += seconds
        for alarm in [each for each in self.timers if each.at <= self.now]:
            self.timers.remove(alarm)
            if not alarm.cancelled:
                alarm.call()

    @property
    def bells(self) -> int:
        return self.terminal.count(b"\a")


class Alarm:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


ASKED = ("Do you want to proceed?", "1. Yes")


def test_a_prompt_is_told_everywhere_once(tmp_path: Path) -> None:
    """R96: however often it is drawn."""
    world = World(tmp_path)
    for _ in range(3):
        world.escalation.prompting("permission", ASKED)
    assert world.notified == []
    world.passes(MOMENT)
    assert world.bells == 1
    assert world.terminal.startswith(b"\x1b[22;0t\x1b]2;Alice asks: permission\x1b\\")
    assert world.notified == [("Alice asks: permission", "Do you want to proceed?\n1. Yes")]
    ((to, text),) = world.sent
    assert to == "Lead"
    assert text.splitlines()[1:] == ["> Do you want to proceed?", "> 1. Yes"]
    assert world.path.read_text().count('"escalated"') == 1


def test_what_is_drawn_says_more_than_why_it_counts_as_a_prompt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.drawn = ASKED
    world.escalation.prompting("permission", ["its hooks say that it asks"])
    world.passes(MOMENT)
    assert world.notified[0][1] == "\n".join(ASKED)


def test_what_hooks_tell_and_what_is_drawn_then_is_one_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.escalation.prompting("permission", ["its hooks say that it asks"])
    world.passes(MOMENT / 2)
    world.escalation.prompting("question", ASKED)
    world.passes(2 * COOLDOWN)
    assert (world.bells, len(world.notified), len(world.sent)) == (1, 1, 1)
    assert world.notified == [("Alice asks: a question", "\n".join(ASKED))]
    assert world.terminal.endswith(b"Alice asks: a question\x1b\\")


def test_what_is_answered_at_once_is_told_nobody_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.escalation.prompting("permission", ASKED)
    world.escalation.over()
    world.passes(2 * COOLDOWN)
    assert (world.bells, world.notified, world.sent) == (1, [], [])


def test_the_agents_own_title_comes_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.escalation.prompting("question", ASKED)
    assert world.undo == b"\x1b[23;0t"
    world.terminal = b""
    world.escalation.over()
    world.escalation.over()
    assert world.undo == b""
    assert world.terminal == b"\x1b[23;0t\x1b]2;own\x1b\\"
    world.title = ""
    world.escalation.prompting("other", ASKED)
    world.terminal = b""
    world.escalation.over()
    assert world.terminal == b"\x1b[23;0t"


def test_a_question_that_flickers_is_told_again_only_much_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.escalation.prompting("permission", ASKED)
        world.passes(MOMENT)
        world.escalation.over()
    assert (world.bells, len(world.sent)) == (1, 1)
    world.passes(REPEAT)
    world.escalation.prompting("permission", ASKED)
    world.passes(MOMENT)
    assert (world.bells, len(world.sent)) == (2, 2)


def test_a_question_that_flickered_before_it_was_told_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.escalation.prompting("permission", ASKED)
    world.escalation.over()
    world.escalation.prompting("permission", ASKED)
    world.passes(MOMENT)
    assert (world.bells, len(world.sent)) == (1, 1)


def test_another_question_rings_at_once_and_is_sent_after_a_while(tmp_path: Path) -> None:
    """A message costs a turn of the receiver's: the last that still stands is sent, once."""
    world = World(tmp_path)
    for number in range(5):
        world.escalation.prompting("question", (f"question {number}",))
        world.passes(MOMENT)
    assert (world.bells, len(world.sent), len(world.notified)) == (5, 1, 1)
    world.passes(COOLDOWN)
    assert (len(world.sent), len(world.notified)) == (2, 2)
    assert world.sent[1][1].endswith("\n> question 4")
    world.escalation.prompting("question", ("question 5",))
    world.escalation.over()
    world.passes(COOLDOWN)
    assert len(world.sent) == 2


def test_what_the_agent_has_drawn_acts_on_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.title = "a\x1b]0;b\x07\x9c"
    world.escalation.prompting("permission", ["\x1b[31mred\x07", "a\u202eb", "@relay:Bob hi", *ASKED * 3])
    world.passes(MOMENT)
    world.escalation.over()
    shown = world.notified[0][1] + world.sent[0][1]
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\n> @relay:Bob hi" in world.sent[0][1]
    world.escalation.prompting("permission", ASKED * 20)
    world.passes(COOLDOWN)
    assert len(world.notified[1][1].splitlines()) == MAX_LINES
    assert world.bells == 2
    world.escalation.over()
    assert world.terminal.endswith("\x1b]2;a␛]0;b␇<U+009C>\x1b\\".encode())


def test_nothing_is_done_where_the_settings_say_so(tmp_path: Path) -> None:
    world = World(tmp_path, action="none")
    world.escalation.prompting("permission", ASKED)
    world.escalation.over()
    assert (world.terminal, world.notified, world.sent) == (b"", [], [])
    world = World(tmp_path, to="")
    world.escalation.prompting("permission", ASKED)
    world.passes(MOMENT)
    assert (len(world.notified), world.sent) == (1, [])


def test_a_machine_without_a_desktop_is_one_line_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    said = asyncio.run(desktop_notification.notify("Alice asks", "text"))
    assert said
    assert "\n" not in said
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if sys.platform == "linux":
        assert "no desktop" in asyncio.run(desktop_notification.notify("Alice asks", "text"))
    monkeypatch.setenv("CI", "true")
    assert "CI" in asyncio.run(desktop_notification.notify("Alice asks", "text"))


SERVICE = """
import asyncio, sys
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, dbus_method
from relay.desktop_notification import notify

class Desktop(ServiceInterface):
    def __init__(self):
        super().__init__("org.freedesktop.Notifications")
    @dbus_method()
    def Notify(self, app: "s", replaces: "u", icon: "s", title: "s", text: "s",
               actions: "as", hints: "a{sv}", expires: "i") -> "u":
        print(repr((app, title, text)), flush=True)
        return 1
    @dbus_method()
    def GetCapabilities(self) -> "as":
        return ["body"]
    @dbus_method()
    def GetServerInformation(self) -> "ssss":
        return ["test", "test", "1", "1.2"]

async def main():
    bus = await MessageBus().connect()
    bus.export("/org/freedesktop/Notifications", Desktop())
    await bus.request_name("org.freedesktop.Notifications")
    print(repr(await notify("Alice asks", "What?")), flush=True)
    bus.disconnect()

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("dbus-run-session") is None, reason="needs D-Bus")
def test_a_desktop_shows_it(tmp_path: Path) -> None:
    """A real session bus, and a notification service on it."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    script = tmp_path / "desktop.py"
    script.write_text(SERVICE)
    done = subprocess.run(
        ["dbus-run-session", "--", sys.executable, str(script)],
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["('relay', 'Alice asks', 'What?')", "''"], done.stderr
