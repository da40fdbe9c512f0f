"""Tells pages what has changed, so that they fetch it again (server-sent events).

One thread looks, whatever the number of pages, and only while there are any.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from relay.control import board
from relay.control.board import Board
from relay.errors import RelayError
from relay.home import Home

LOOK_EVERY, LEISURE = 1.0, 20
"""Seconds between two looks, but at least so many times the processor time that a look takes."""

BEAT = 15.0
"""Seconds without news after which a page is told that the server lives."""

MOST_PAGES = 64
"""Pages that are told at a time; the oldest gives way."""

EVERYTHING = frozenset({"agents", "inbox", "messages"})


class WatchingPage:
    """A page that wants to know. It has no queue: what changes twice is fetched once."""

    def __init__(self) -> None:
        self._changed: set[str] = {*EVERYTHING}
        self._news = asyncio.Event()
        self._news.set()
        self._over = False

    def tell(self, changed: frozenset[str]) -> None:
        self._changed |= changed
        self._news.set()

    def close(self) -> None:
        self._over = True
        self._news.set()

    async def events(self) -> AsyncIterator[str]:
        while not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await self._news.wait()
            self._news.clear()
            if self._changed:
                what, self._changed = sorted(self._changed), set()
                yield f"event: changed\ndata: {json.dumps(what)}\n\n"
            else:
                yield ": beat\n\n"


class Watch:
    """Looks for changes in a home. Use it in the loop's thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pages: list[WatchingPage] = []
        self._wanted, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def page(self) -> Iterator[WatchingPage]:
        """Give a page for as long as it is there. Its first event says that everything has changed."""
        if len(self._pages) >= MOST_PAGES:
            self._pages[0].close()
        page = WatchingPage()
        self._pages.append(page)
        self._wanted.set()
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._look, args=(loop,), daemon=True)
            self._thread.start()
        try:
            yield page
        finally:
            self._pages.remove(page)
            if not self._pages:
                self._wanted.clear()

    def close(self) -> None:
        self._over.set()
        self._wanted.set()
        for page in [*self._pages]:
            page.close()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        before: dict[str, Any] = {}
        while not self._over.is_set():
            self._wanted.wait()
            began = time.process_time()
            now = self._state()
            changed = frozenset(what for what in now if now[what] != before.get(what))
            before = now
            if changed:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._tell, changed)
            self._over.wait(max(LOOK_EVERY, LEISURE * (time.process_time() - began)))

    def _tell(self, changed: frozenset[str]) -> None:
        for page in self._pages:
            page.tell(changed)

    def _state(self) -> dict[str, Any]:
        try:
            found: Board = board.look(self._home)
        except (RelayError, OSError) as error:
            return dict.fromkeys(EVERYTHING, str(error))
        return {
            "agents": [each.public() for each in found.entries],
            "inbox": found.inbox,
            "messages": [_written(Path(f"{self._home.ledger}{each}")) for each in ("", "-wal")],
        }


def _written(file: Path) -> tuple[int, int] | None:
    """Return what changes whenever the file is written; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
