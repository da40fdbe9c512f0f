"""A client of `relay mcp` that speaks in frames, and agents that run the server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from session.fake_agent import FakeAgent
from support import PATIENCE, Relay, wait_until

Frame = dict[str, Any]

SERVER = [sys.executable, "-m", "relay", "mcp"]

STATELESS = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


class Client:
    """A connection to a server. pid: the server's process, where the test has started it."""

    def __init__(self, channel: socket.socket, pid: int = 0) -> None:
        channel.settimeout(PATIENCE)
        self.channel = channel
        self.pid = pid
        self._lines = channel.makefile("rb")
        self._last = 0
        self._reader: threading.Thread | None = None

    def send(self, data: bytes) -> None:
        self.channel.sendall(data)

    def begin(self, method: str, params: Frame | None = None, id: str | int | None = None) -> str | int:
        """Send a request; return its id."""
        self._last += 1
        id = self._last if id is None else id
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
        self.send(json.dumps(frame).encode() + b"\n")
        return id

    def notify(self, method: str, params: Frame) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def frame(self) -> Frame:
        """Return the next frame of the server."""
        line = self._lines.readline()
        assert line.endswith(b"\n"), f"the server has ended: {line!r}"
        return dict(json.loads(line))

    def request(self, method: str, params: Frame | None = None, id: str | int | None = None) -> Frame:
        """Send a request; return the response, which must be the next frame."""
        id = self.begin(method, params, id)
        frame = self.frame()
        assert frame["id"] == id
        return frame

    def begin_call(self, tool: str, **arguments: object) -> str | int:
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, **arguments: object) -> str:
        """Return the text with which a tool succeeds."""
        return text_of(self.request("tools/call", {"name": tool, "arguments": arguments}))

    def refusal(self, tool: str, **arguments: object) -> str:
        """Return the text with which a tool fails."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert result["isError"], result
        return str(result["content"][0]["text"])

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.request("tools/list")["result"]["tools"]]

    def collect(self) -> list[Frame]:
        """Return a list to which each further frame is added as it comes."""
        frames: list[Frame] = []

        def read() -> None:
            frames.extend(map(json.loads, self._lines))

        self._reader = threading.Thread(target=read)
        self._reader.start()
        return frames

    def close(self) -> None:
        if self._reader is not None:
            self.channel.shutdown(socket.SHUT_RDWR)
            self._reader.join()
        self._lines.close()
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def text_of(frame: Frame) -> str:
    assert not frame["result"]["isError"], frame
    (content,) = frame["result"]["content"]
    return str(content["text"])


class AgentWithTools(FakeAgent):
    """A wrapped agent that starts a server for each `connect`."""

    def start(self, **options: Any) -> AgentWithTools:
        self.wrap("--mcp", *SERVER, **options)
        return self

    def connect(self) -> Client:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

        def connected() -> bool:
            try:
                channel.connect(str(self.folder / "mcp"))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            return True

        wait_until(connected, message=self.log)
        return Client(channel)


@contextmanager
def server(relay: Relay, command: list[str] = SERVER, **environment: str) -> Iterator[Client]:
    """Yield a client of a server that the user has started; afterwards the server must end by itself."""
    mine, its = socket.socketpair()
    with mine, its:
        process = subprocess.Popen(
            command, stdin=its, stdout=its, env={**relay.environment, **environment}, cwd=relay.home
        )
        its.close()
        client = Client(mine, process.pid)
        try:
            yield client
        finally:
            client.close()
            assert process.wait(PATIENCE) == 0
