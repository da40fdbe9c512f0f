"""A server of `relay web`, and its pages in Chromium."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from support import PATIENCE, Relay

SIZE = {"width": 1280, "height": 800}


class Server:
    """`relay web` in a home. port: where it listens."""

    def __init__(self, relay: Relay, cwd: Path | None = None) -> None:
        command = [*relay.command, "web", "--no-browser", "--port", "0"]
        self.relay = relay
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=relay.environment,
            cwd=cwd or relay.home,
            text=True,
            bufsize=1,
        )
        self._link: str | None = self._read()
        self.port = int(self._link.split(":")[2].partition("/")[0])
        self.address = f"http://127.0.0.1:{self.port}"

    def link(self) -> str:
        """Return an address that opens the page, once."""
        if self._link is None:
            assert self.process.stdin is not None
            self.process.stdin.write("\n")
            return self._read()
        link, self._link = self._link, None
        return link

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("http://"), line
        return line.strip()

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


class Pages:
    """Pages of one server. Each fails its test for an error in a script, or a request to elsewhere."""

    def __init__(self, browser: Any, server: Server) -> None:
        self.server = server
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._browser = browser
        self._contexts: list[Any] = []

    def context(self, **options: Any) -> Any:
        """Return a new user agent, with no cookies."""
        context = self._browser.new_context(**{"viewport": SIZE, **options})
        context.set_default_timeout(PATIENCE * 1000)
        self._contexts.append(context)
        return context

    def open(self, route: str = "", **options: Any) -> Any:
        """Return a page that has signed in, at a route such as "#/inbox"."""
        page = self.context(**options).new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on("console", self._note)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.goto(self.server.link())
        page.get_by_role("heading", name="Agents").wait_for()
        if route:
            self.go(page, route)
        return page

    @staticmethod
    def go(page: Any, route: str) -> None:
        page.evaluate("route => { location.hash = route }", route)

    def _note(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.text} ({message.location})")

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        elsewhere = [
            url for url in self.requests if f"127.0.0.1:{self.server.port}/" not in url and url[:5] != "data:"
        ]
        assert not elsewhere
        assert not self.problems, "\n".join(self.problems)
