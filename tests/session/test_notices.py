"""How relay's own errors are shown to the user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relay.eventbus import EventBus, handles
from relay.features import notices
from relay.features.notices import Notices
from relay.messaging.events import AddItem, EndItem
from relay.storage.journal import Journal, read
from relay.terminal.events import Notify
from relay.terminal.shim_link import ShimLink


def test_an_error_in_showing_notices_is_reported_once(tmp_path: Path) -> None:
    """The notice about it cannot be shown either, which would be the same error again, and so on."""

    class Broken:
        @handles(Notify)
        def show(self, event: Notify) -> None:
            raise ValueError("no screen")

    async def main() -> None:
        bus = EventBus()
        bus.add(Notices(bus, Journal(tmp_path / "events", "id", "Ann"), cast(ShimLink, None), ()))
        bus.add(Broken())
        bus.publish(Notify("hello", listed=True))

    asyncio.run(main())
    texts = [entry["text"] for entry in read(tmp_path / "events")]
    assert texts[0] == "hello" and len(texts) == 2 and "ValueError: no screen" in texts[1]


def test_a_notice_that_no_terminal_has_shown_is_one_item_until_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays pending for hours while a full-screen agent draws; adding it again would undo `inbox done`."""
    monkeypatch.setattr(notices, "UNSEEN", 0.0)
    monkeypatch.setattr(notices, "TICK", 0.0)
    looks = 0

    def pending() -> list[str]:
        """Show the notice between the second and the third look."""
        nonlocal looks
        looks += 1
        return ["hello"] if looks < 3 else []

    class Items:
        def __init__(self) -> None:
            self.got: asyncio.Queue[AddItem | EndItem] = asyncio.Queue()

        @handles(AddItem, EndItem)
        def changed(self, event: AddItem | EndItem) -> None:
            self.got.put_nowait(event)

    async def main() -> list[AddItem | EndItem]:
        bus, items = EventBus(), Items()
        shim = SimpleNamespace(notices=pending, state=SimpleNamespace(attached=True))
        bus.add(Notices(bus, Journal(tmp_path / "events", "id", "Ann"), cast(ShimLink, shim), ()))
        bus.add(items)
        bus.publish(Notify("hello"))
        return [await items.got.get() for _ in range(2)]

    added, ended = asyncio.run(main())
    assert isinstance(added, AddItem) and ended == EndItem("notice", "hello") and looks == 3
