"""How relay's own errors are shown to the user."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relay import desktop_notification
from relay.eventbus import EventBus, handles
from relay.features.notices import Notices
from relay.lifecycle import SessionSettling
from relay.storage.journal import Journal, read
from relay.tasks import Tasks
from relay.terminal.events import Notify, NotifyDesktop


def test_an_error_in_showing_notices_is_reported_once(tmp_path: Path) -> None:
    """The notice about it cannot be shown either, which would be the same error again, and so on."""

    class Broken:
        @handles(Notify)
        def show(self, event: Notify) -> None:
            raise ValueError("no screen")

    async def main() -> None:
        bus = EventBus()
        async with asyncio.TaskGroup() as group:
            bus.add(Notices(bus, Tasks(group, bus), Journal(tmp_path / "events", "id", "Ann"), ()))
            bus.add(Broken())
            bus.publish(Notify("hello"))

    asyncio.run(main())
    texts = [entry["text"] for entry in read(tmp_path / "events")]
    assert texts[0] == "hello" and len(texts) == 2 and "ValueError: no screen" in texts[1]


def test_a_session_waits_for_its_last_notification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, that its agent has failed: the desktop may have to start its service first."""
    shown: list[str] = []

    async def main() -> None:
        bus, starts = EventBus(), asyncio.Event()

        async def notify(title: str, text: str) -> str:
            await starts.wait()
            shown.append(title)
            return ""

        monkeypatch.setattr(desktop_notification, "notify", notify)
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, bus)
            bus.add(Notices(bus, tasks, Journal(tmp_path / "events", "id", "Ann"), ()))
            bus.publish(NotifyDesktop("Ann exited with 3", ""))
            bus.loop.call_soon(bus.loop.call_soon, starts.set)
            await bus.ask_all(SessionSettling())
            tasks.cancel()

    asyncio.run(main())
    assert shown == ["Ann exited with 3"]
