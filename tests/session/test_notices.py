"""How relay's own errors are shown to the user."""

from __future__ import annotations

import asyncio
from pathlib import Path

from relay.eventbus import EventBus, handles
from relay.features.notices import Notices
from relay.storage.journal import Journal, read
from relay.tasks import Tasks
from relay.terminal.events import Notify


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
