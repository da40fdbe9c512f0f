"""A running `relay web`, and what a browser, or something else, sends to it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection, connect

from support import PATIENCE, Relay


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebServer:
    """One `relay web`. url: the address that it printed first."""

    def __init__(
        self, relay: Relay, *options: str, env: Mapping[str, str] | None = None, browser: bool = False
    ) -> None:
        self.relay = relay
        self.printed = ""
        self.process = subprocess.Popen(
            [*relay.command, "web", "--port", "0", *([] if browser else ["--no-browser"]), *options],
            env={**relay.environment, **(env or {})},
            cwd=relay.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._line()
        self.port = int(self.url.rpartition("#")[0].rstrip("/").rpartition(":")[2])
        self.origin = f"http://127.0.0.1:{self.port}"
        self.cookie = ""

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def new_url(self) -> str:
        """Press Enter in its terminal."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line()

    def log_in(self, url: str = "") -> str:
        """Use an address up (default: a new one); return the cookie, which is sent from now on."""
        token = (url or self.new_url()).partition("#")[2]
        answer = self.post("/api/session", {"token": token})
        assert answer.status == 204, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self.cookie

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.request("GET", path, None, {"Cookie": self.cookie, **headers})

    def post(self, path: str, body: object, **headers: str | None) -> Answer:
        return self.request("POST", path, body, {**self.changes, **headers})

    @property
    def changes(self) -> dict[str, str]:
        """The headers with which a page changes something."""
        ours = {"Origin": self.origin, "X-Relay": "1", "Content-Type": "application/json"}
        return {**ours, "Cookie": self.cookie}

    def request(self, method: str, path: str, body: object, headers: Mapping[str, str | None]) -> Answer:
        """Send a request over a connection of its own. A header that is None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def raw(self, *lines: str, body: bytes = b"", connection: str = "close") -> bytes:
        """Send a request's lines as they are, and a `Connection` header; return all that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as channel:
            channel.sendall("\r\n".join([*lines, f"Connection: {connection}", "", ""]).encode() + body)
            return b"".join(iter(lambda: channel.recv(1 << 16), b""))

    @contextmanager
    def terminal(self, name: str, mode: str = "view", **headers: str) -> Iterator[ClientConnection]:
        """Open an agent's terminal, as a page does."""
        sent = {"Origin": self.origin, "Cookie": self.cookie, **headers}
        with connect(
            f"ws://127.0.0.1:{self.port}/api/agents/{name}/terminal?mode={mode}",
            additional_headers={key: value for key, value in sent.items() if value},
            open_timeout=PATIENCE,
            compression=None,
        ) as channel:
            yield channel

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """End it with a signal; return its exit code, and what it has printed on standard error."""
        self.process.send_signal(number)
        self.printed, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err


@contextmanager
def serving(relay: Relay, *options: str, env: Mapping[str, str] | None = None) -> Iterator[WebServer]:
    """Yield a server, to which the user has logged in."""
    server = WebServer(relay, *options, env=env)
    try:
        server.log_in(server.url)
        yield server
    finally:
        if server.process.poll() is None:
            print(server.end())  # for a test that fails
