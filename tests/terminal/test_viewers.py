"""What a session keeps for the terminals that view its agent."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from relay.features.viewers import LIMIT, _Viewer
from relay.terminal.view_stream import Unpacker


def test_little_is_kept_for_a_viewer_that_reads_nothing() -> None:
    """It gets the screen instead, once it reads again."""
    terminal: Any = SimpleNamespace(
        screen=None, size=(80, 24), drawn=lambda history: b"the screen", output_offset=lambda: 0
    )

    async def scenario() -> list[tuple[dict[str, Any], bytes]]:
        own, its = socket.socketpair()
        with own, its:
            own.setblocking(False)
            its.setblocking(False)
            viewer = _Viewer(own, terminal, {})
            serving = asyncio.create_task(viewer.serve())
            for _ in range(100):
                viewer.output(bytes(1 << 16))
                await asyncio.sleep(0)
                assert len(viewer._waiting) <= LIMIT
            viewer.end()
            reader, sent = Unpacker(), []
            while not serving.done():
                sent += reader.feed(await asyncio.get_running_loop().sock_recv(its, 1 << 16))
            return sent

    parts = asyncio.run(scenario())
    assert [part for part in parts if part[1] == b"the screen"][1:], "at first, and after what was dropped"
