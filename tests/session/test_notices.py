"""How relay's own errors are shown to the user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from relay.eventbus import EventBus, handles
from relay.features.notices import Notices
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
