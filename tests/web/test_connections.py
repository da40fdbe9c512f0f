"""How long and how many connections may be, and what an unknown process may do."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from relay.cli.main import dispatch
from relay.control.commands import Commands
from relay.home import Home
from relay.web import api, connections
from relay.web.peers import UNKNOWN
from relay.web.server import Server, listen
from support import PATIENCE

Answered = tuple[int, str, bytes]


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The server ignores SIGTTIN."""
    before = signal.getsignal(signal.SIGTTIN)
    yield
    signal.signal(signal.SIGTTIN, before)


class Client:
    """Speaks to a server in this process."""

    def __init__(self, port: int, url: str) -> None:
        self.port = port
        self.token = url.partition("#")[2]
        self.cookie = ""

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        own = f"127.0.0.1:{self.port}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {own}", f"Cookie: {self.cookie}"]
        if method != "GET":
            lines += [f"Origin: http://{own}", "X-Relay: 1", f"Content-Length: {length}"]
            lines += ["Content-Type: application/json"]
        return "\r\n".join([*lines, "", ""]).encode()

    async def ask(self, method: str, path: str, body: object = None) -> Answered:
        """Send a request over a connection of its own; return the status, the head and the body."""
        data = b"" if body is None else json.dumps(body).encode()
        reader, writer = await self.opened()
        writer.write(
            self.head(method, path, len(data)).replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + data
        )
        answer = await reader.read()
        writer.close()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), rest

    async def log_in(self) -> None:
        status, head, _ = await self.ask("POST", "/api/session", {"token": self.token})
        assert status == 204
        self.cookie = head.partition("set-cookie: ")[2].partition(";")[0]


def serve(home: Path, work: Callable[[Client], Awaitable[None]]) -> None:
    """Run a server in this process while `work` runs."""

    async def run() -> None:
        shown: asyncio.Queue[str] = asyncio.Queue()
        own = Home.from_env({"RELAY_HOME": str(home)}).ensure()
        with listen(0) as listener:
            server = Server(own, commands, listener, shown.put_nowait, None)
            serving = asyncio.create_task(server.serve([listener]))
            url = await shown.get()
            try:
                async with asyncio.timeout(PATIENCE):
                    await work(Client(listener.getsockname()[1], url))
            finally:
                server.should_exit = True
                await serving

    commands = Commands(dispatch)
    try:
        asyncio.run(run())
    finally:
        commands.close()


async def stays_open(reader: asyncio.StreamReader, seconds: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read()


def test_a_head_must_come_in_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first request, and of the next one on the same connection."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)

    async def work(client: Client) -> None:
        await client.log_in()
        for before, begun in ((b"", b""), (b"", b"GET / HT"), (client.head("GET", "/api/agents"), b"G")):
            reader, writer = await client.opened()
            if before:
                writer.write(before)
                await reader.readuntil(b"[]")
            writer.write(begun)
            await reader.read()  # until it is closed
            writer.close()
        reader, writer = await client.opened()
        writer.write(client.head("GET", "/api/events"))
        await reader.readuntil(b"messages")
        await stays_open(reader, 0.7)  # for longer than a head may take: this one has come
        writer.close()

    serve(home, work)


def test_a_body_must_come_in_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BODY_SECONDS", 0.1)

    async def work(client: Client) -> None:
        reader, writer = await client.opened()
        writer.write(client.head("POST", "/api/session", 100) + b"{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    serve(home, work)


def test_the_oldest_connection_without_a_session_gives_way(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST", 4)

    async def work(client: Client) -> None:
        await client.log_in()
        page, page_writer = await client.opened()
        page_writer.write(client.head("GET", "/api/events"))
        await page.readuntil(b"messages")
        held = [await client.opened() for _ in range(3)]
        assert (await client.ask("GET", "/api/agents"))[0] == 200
        assert await held[0][0].read() == b""
        held[2][1].write(client.head("GET", "/"))
        assert (await held[2][0].readline()).startswith(b"HTTP/1.1 200 ")
        await stays_open(page, 0.1)
        for _, writer in (*held, (page, page_writer)):
            writer.close()

    serve(home, work)


def test_a_process_has_a_share_of_the_connections(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SHARE", 3)

    async def work(client: Client) -> None:
        held = [await client.opened() for _ in range(4)]
        for number, (reader, writer) in enumerate(held):
            writer.write(client.head("GET", "/"))
            assert (await reader.readline()).split()[1] == (b"200" if number < 3 else b"503")
        for _, writer in held:
            writer.close()

    serve(home, work)


def test_a_process_that_nobody_knows_may_only_look(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "peer_of", lambda *_: UNKNOWN)

    async def work(client: Client) -> None:
        await client.log_in()
        assert (await client.ask("GET", "/api/agents"))[0] == 200
        for path in (
            "messages",
            "agents/Alice/answer",
            "agents/Alice/stop",
            "agents/Alice/control",
            "inbox/1/done",
        ):
            status, _, body = await client.ask("POST", f"/api/{path}", {})
            assert (status, b"may only look" in body) == (403, True)
        terminal = f"ws://127.0.0.1:{client.port}/api/agents/Alice/terminal?mode=control"
        own, cookie = f"http://127.0.0.1:{client.port}", {"Cookie": client.cookie}
        async with connect(terminal, origin=Origin(own), additional_headers=cookie) as page:
            await page.wait_closed()
            assert (page.close_code, "may only look" in (page.close_reason or "")) == (4003, True)
        assert (await client.ask("DELETE", "/api/session"))[0] == 204
        assert (await client.ask("GET", "/api/agents"))[0] == 401

    serve(home, work)
