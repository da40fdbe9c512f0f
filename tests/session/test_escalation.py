"""How relay escalates an agent's prompts: bell, title, message; with a fake clock. And the desktop."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from relay import desktop_notification
from relay.eventbus import EventBus, answers
from relay.features.attention import COOLDOWN, MAX_LINES, MOMENT, REPEAT, Escalation
from relay.features.window_title import WindowTitle
from relay.hooks.commands import SendMessage
from relay.hooks.events import Prompting
from relay.message import Message
from relay.messaging.events import EndItem, UnreadCounted
from relay.place import TERMINAL, Place
from relay.state.agent_terminal import AgentTerminal
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.events import AttachmentChanged, OutputRead, ScreenChanged
from relay.terminal.shim_link import ShimLink
from session.fake_agent import FakeAgent, settings
from supervision.world import Timers
from support import Relay, wait_until


class ImmediateTasks:
    """Runs tasks immediately."""

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        with pytest.raises(StopIteration):
            work.send(None)


class World:
    """Everything that an escalation touches, including the agent's terminal and the user's."""

    def __init__(self, folder: Path, to: str = "Lead") -> None:
        self.shown = self.undo = b""
        self.own_title = "own"
        self.drawn: tuple[str, ...] = ()
        self.sent: list[tuple[str, str]] = []
        self.clock = Timers()
        self.path = folder / "events.jsonl"
        self.bus = EventBus(asyncio.new_event_loop())
        self.bus.loop.close()
        terminal, shim = cast(AgentTerminal, self), cast(ShimLink, self)
        tasks, journal = cast(Tasks, ImmediateTasks()), Journal(self.path, "s1", "Alice")
        escalation = Escalation(
            self.bus, tasks, journal, shim, name="Alice", escalate_to=to, known=True, clock=self.clock
        )
        self.bus.add(escalation)
        self.bus.add(WindowTitle(self.bus, shim, terminal, name="Alice"))
        self.bus.add(self)
        self.bus.publish(AttachmentChanged(watched=True))

    def asks(self, kind: str, lines: Sequence[str]) -> None:
        self.bus.publish(Prompting(kind, "\n".join(lines)))

    def prompt_over(self) -> None:
        self.bus.publish(EndItem("question"))

    @answers(SendMessage)
    async def send(self, question: SendMessage, _: object) -> tuple[Message, ...]:
        self.sent.append((question.message.to, question.message.body))
        return ()

    # The agent's terminal, and the user's.

    def screen_text(self) -> list[str]:
        return list(self.drawn)

    def unfinished(self) -> str:
        return ""

    def title(self) -> str:
        return self.own_title

    def aside(self, data: bytes, undo: bytes | None = None) -> None:
        """Write to the terminal as the shim does."""
        if not undo or undo != self.undo:
            self.shown += data
            self.undo = self.undo if undo is None else undo

    def passes(self, seconds: float) -> None:
        self.clock.passes(seconds)

    @property
    def bells(self) -> int:
        return self.shown.count(b"\a")


DIALOG = ("Do you want to proceed?", "1. Yes")


def test_a_prompt_is_escalated_once_on_every_route(tmp_path: Path) -> None:
    """R96: once, however often it is drawn."""
    world = World(tmp_path)
    for _ in range(3):
        world.asks("permission", DIALOG)
    world.passes(MOMENT)
    assert world.bells == 1
    assert world.shown.startswith(b"\x1b[22;0t\x1b]2;Alice\x1b\\\a\x1b]2;Alice asks: permission\x1b\\")
    ((to, text),) = world.sent
    assert to == "Lead"
    assert text.splitlines()[1:] == ["> Do you want to proceed?", "> 1. Yes"]
    assert world.path.read_text().count('"escalated"') == 1


def test_a_prompt_from_a_hook_and_then_on_the_screen_is_one_prompt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.asks("permission", ["its hooks say that it asks"])
    world.passes(MOMENT / 2)
    world.asks("question", DIALOG)
    world.passes(2 * COOLDOWN)
    assert (world.bells, len(world.sent)) == (1, 1)
    assert world.sent[0][1].splitlines()[1:] == [f"> {line}" for line in DIALOG]
    assert world.shown.endswith(b"Alice asks: a question\x1b\\")


def test_a_prompt_answered_at_once_only_rings_the_bell(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.asks("permission", DIALOG)
    world.prompt_over()
    world.passes(2 * COOLDOWN)
    assert (world.bells, world.sent) == (1, [])


def writes(world: World, data: bytes, title: str | None = None) -> bytes:
    """Make the agent write `data`, after which its title is `title`; return what the terminal shows extra."""
    world.own_title = world.own_title if title is None else title
    world.shown = b""
    world.bus.publish(OutputRead(data, Place(TERMINAL, 1), 1))
    world.bus.publish(ScreenChanged())
    return world.shown


def set_to(title: str) -> bytes:
    return b"\x1b]2;" + title.encode() + b"\x1b\\"


def test_the_title_always_names_the_agent(tmp_path: Path) -> None:
    """U11: the agent may set the same title again, in pieces or with a different terminator."""
    world = World(tmp_path)
    assert world.shown == b"\x1b[22;0t" + set_to("Alice")
    assert writes(world, b"x") == set_to("Alice: own")
    assert writes(world, b"y") == b"", "there is nothing to replace"
    assert writes(world, b"\x1b]0;own\a") == set_to("Alice: own")
    assert writes(world, b"\x1b]") == b""
    assert writes(world, b"2;own\x1b\\") == set_to("Alice: own")
    assert writes(world, b"\x1b]8;;http://x/\a") == b"", "a link is not a title"
    assert writes(world, b"\x1b]2;\a", title="") == set_to("Alice")
    assert len(writes(world, b"", title="x" * 1000)) < 300
    assert world.undo == b"\x1b[23;0t"


def test_a_prompt_stays_in_the_title_until_it_is_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.asks("question", DIALOG)
    assert writes(world, b"\x1b]0;thinking\a", title="thinking") == set_to("Alice asks: a question")
    world.shown = b""
    world.prompt_over()
    world.prompt_over()
    assert world.shown == set_to("Alice: thinking")


def test_the_title_counts_what_is_unread(tmp_path: Path) -> None:
    world = World(tmp_path)
    writes(world, b"x")
    for number, shown in ((2, "(2) Alice: own"), (0, "Alice: own")):
        world.shown = b""
        world.bus.publish(UnreadCounted(number))
        assert world.shown == set_to(shown)
    world.bus.publish(UnreadCounted(1))
    world.asks("question", DIALOG)
    assert world.shown.endswith(set_to("(1) Alice asks: a question"))


def test_each_attached_terminal_gets_the_title(tmp_path: Path) -> None:
    world = World(tmp_path)
    writes(world, b"x")
    world.undo = world.shown = b""
    world.bus.publish(AttachmentChanged(watched=False))
    assert writes(world, b"\x1b]0;new\a", title="new") == b"", "no terminal shows it"
    world.bus.publish(AttachmentChanged(watched=True))
    assert world.shown == b"\x1b[22;0t" + set_to("Alice: new")


def test_a_flickering_prompt_is_escalated_again_only_much_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.asks("permission", DIALOG)
        world.passes(MOMENT)
        world.prompt_over()
    assert (world.bells, len(world.sent)) == (1, 1)
    world.passes(REPEAT)
    world.asks("permission", DIALOG)
    world.passes(MOMENT)
    assert (world.bells, len(world.sent)) == (2, 2)


def test_a_prompt_that_flickered_before_its_escalation_is_escalated(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.asks("permission", DIALOG)
    world.prompt_over()
    world.asks("permission", DIALOG)
    world.passes(MOMENT)
    assert (world.bells, len(world.sent)) == (1, 1)


def test_another_prompt_rings_at_once_and_is_sent_after_the_cooldown(tmp_path: Path) -> None:
    """A message costs the receiver a turn, so only the last open question is sent, once."""
    world = World(tmp_path)
    for number in range(5):
        world.asks("question", (f"question {number}",))
        world.passes(MOMENT)
    assert (world.bells, len(world.sent)) == (5, 1)
    world.passes(COOLDOWN)
    assert len(world.sent) == 2
    assert world.sent[1][1].endswith("\n> question 4")
    world.asks("question", ("question 5",))
    world.prompt_over()
    world.passes(COOLDOWN)
    assert len(world.sent) == 2


def test_text_from_the_screen_is_inert_in_escalations(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.own_title = "a\x1b]0;b\x07\x9c"
    world.asks("permission", ["\x1b[31mred\x07", "a\u202eb", "@relay:Bob hi", *DIALOG * 3])
    world.passes(MOMENT)
    world.prompt_over()
    shown = world.sent[0][1]
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\n> @relay:Bob hi" in world.sent[0][1]
    world.asks("permission", DIALOG * 20)
    world.passes(COOLDOWN)
    assert len(world.sent[1][1].splitlines()) == 1 + MAX_LINES
    assert world.bells == 2
    world.prompt_over()
    world.bus.publish(ScreenChanged())
    assert world.shown.endswith(set_to("Alice: a␛]0;b␇<U+009C>"))


def test_no_message_is_sent_without_another_agent_to_escalate_to(tmp_path: Path) -> None:
    for to in ("", "alice"):  # the agent that asks
        world = World(tmp_path, to=to)
        world.asks("permission", DIALOG)
        world.passes(MOMENT)
        assert (world.bells, world.sent) == (1, [])


def test_settings_can_turn_escalation_off(relay: Relay) -> None:
    settings(relay, 'on_prompt = "none"\n')
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("Install? [Y/n] ", end="")
    wait_until(lambda: bob.state() == "prompting")
    wait_until(lambda: bob.events("state"))
    bob.exit()
    wait_until(bob.ended)
    assert not bob.events("escalated")


def test_a_missing_desktop_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/missing")
    problem = asyncio.run(desktop_notification.notify("Alice asks", "text"))
    assert problem
    assert "\n" not in problem
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
    print(repr(await notify("Alice asks <1>", "<b>What</b> & why?")), flush=True)
    bus.disconnect()

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("dbus-run-session") is None, reason="needs D-Bus")
def test_a_desktop_shows_the_notification(tmp_path: Path) -> None:
    """It goes through a real D-Bus session bus to a notification service, where the text is markup."""
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
    shown = ("relay", "Alice asks <1>", "&lt;b&gt;What&lt;/b&gt; &amp; why?")
    assert done.stdout.splitlines() == [repr(shown), "''"], done.stderr
