"""A small HTTP server, which keeps what is posted to it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Server:
    """A small HTTP server. got: the requests, as (path, headers, body). status: of its answers."""

    url: str = ""
    status: int = 200
    got: list[tuple[str, dict[str, str], str]] = field(default_factory=list)

    @property
    def json(self) -> Any:
        ((_, _, body),) = self.got
        return json.loads(body)


@contextmanager
def serving() -> Iterator[Server]:
    found = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(found.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()
