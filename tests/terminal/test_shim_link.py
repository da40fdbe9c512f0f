"""The session's link to its shim, however the shim's messages are split."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from relay.shim import ring
from relay.shim.ring import RingWriter
from relay.terminal import shim_link
from relay.terminal.shim_link import ShimLink
from support import eventually


class ShimEnd:
    """The shim's end of a link: it sends `hello` together with the lines in `along`.

    received: what the session has received, in order.
    """

    def __init__(self, *along: dict[str, Any]) -> None:
        self.channel, theirs = socket.socketpair()
        memory = ring.make()
        RingWriter(memory, lambda: None)
        wake, self._write = os.pipe()
        os.set_blocking(wake, False)
        master, self._slave = pty.openpty()
        self.send(self._hello(ring=memory, wake=wake, listener=-1, master=master), *along)
        self.link = ShimLink(theirs.detach())
        self.received: list[str] = []

    def _hello(self, **fds: int) -> dict[str, Any]:
        return {
            "generation": 2,
            "resumed": True,
            "skip": 0,
            "shim": os.getpid(),
            "agent": os.getpid(),
            "line_feeds_return": True,
            "fds": fds,
        }

    def send(self, *lines: dict[str, Any]) -> None:
        """Send `lines` at once, so that the session receives them together."""
        self.channel.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def listen(self) -> None:
        self.link.listen(
            asyncio.get_running_loop(),
            lambda: self.received.append("retire"),
            lambda: self.received.append("gone"),
            self.received.append,
        )

    def answer(self, *before: dict[str, Any], after: tuple[dict[str, Any], ...] = ()) -> threading.Thread:
        """Answer the next question on another thread, between these lines."""

        def run() -> None:
            question = json.loads(self.channel.recv(1 << 16))
            self.send(*before, {"id": question["id"], "answer": ["a notice"]}, *after)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def close(self) -> None:
        self.channel.close()
        self.link.close()
        os.close(self._write)
        os.close(self._slave)


@pytest.fixture
def shims() -> Iterator[list[ShimEnd]]:
    opened: list[ShimEnd] = []
    yield opened
    for each in opened:
        each.close()


def test_keys_that_come_with_the_hello_are_received(shims: list[ShimEnd]) -> None:
    """They come before the session listens."""
    shims.append(shim := ShimEnd({"chosen": "q"}))

    async def run() -> None:
        shim.listen()
        assert shim.received == []  # not before `listen` has returned
        await eventually(lambda: shim.received == ["q"])

    asyncio.run(run())


def test_messages_that_arrive_together_are_received_in_order(shims: list[ShimEnd]) -> None:
    shims.append(shim := ShimEnd())

    async def run() -> None:
        shim.listen()
        shim.send({"chosen": "r"}, {"chosen": "q"}, {"retire": True})
        await eventually(lambda: shim.received == ["r", "q", "retire"])
        shim.send({"chosen": "d"})
        shim.channel.shutdown(socket.SHUT_RDWR)
        await eventually(lambda: shim.received[3:] == ["d", "gone"])

    asyncio.run(run())


def test_messages_around_an_answer_are_received(
    shims: list[ShimEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_link, "ANSWER_TIMEOUT", 60.0)
    shims.append(shim := ShimEnd())

    async def run() -> None:
        shim.listen()
        thread = shim.answer({"chosen": "r"}, after=({"retire": True}, {"chosen": "q"}))
        assert shim.link.notices() == ["a notice"]
        thread.join()
        assert shim.received == []  # only in the event loop
        await eventually(lambda: shim.received == ["r", "retire", "q"])

    asyncio.run(run())


def test_messages_around_an_answer_are_received_once_the_session_listens(
    shims: list[ShimEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_link, "ANSWER_TIMEOUT", 60.0)
    shims.append(shim := ShimEnd())
    thread = shim.answer({"retire": True})
    assert shim.link.notices() == ["a notice"]
    thread.join()

    async def run() -> None:
        shim.listen()
        await eventually(lambda: shim.received == ["retire"])

    asyncio.run(run())
