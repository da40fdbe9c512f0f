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
    """Pages of one server, in a user agent that has signed in.

    problems: what scripts failed at, and what the browser complained about; a test must have none at its end.
    """

    def __init__(self, browser: Any, server: Server) -> None:
        self.server = server
        self.problems: list[str] = []
        self._requests: list[str] = []
        self._browser = browser
        self._signed_in: Any = None
        self._contexts: list[Any] = []

    def context(self, **options: Any) -> Any:
        """Return a new user agent, without cookies."""
        context = self._browser.new_context(**{"viewport": SIZE, **options})
        context.set_default_timeout(PATIENCE * 1000)
        self._contexts.append(context)
        return context

    def open(self, route: str = "#/agents", **options: Any) -> Any:
        """Return a page at a route. options: of a user agent of its own."""
        fresh = bool(options) or self._signed_in is None
        context = self.context(**options) if fresh else self._signed_in
        if not options:
            self._signed_in = context
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on("console", self._note)
        page.on("request", lambda request: self._requests.append(request.url))
        page.on("websocket", lambda socket: self._requests.append(socket.url))
        page.goto(self.server.link() if fresh else f"{self.server.address}/{route}")
        page.locator("main h1, main h2").first.wait_for(state="attached")
        if fresh:
            self.go(page, route)
        return page

    @staticmethod
    def go(page: Any, route: str) -> None:
        page.evaluate("route => { location.hash = route }", route)

    def _note(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.text} ({message.location})")

    def finish(self) -> None:
        """Close what a test has opened. Raise AssertionError for problems, and requests to elsewhere."""
        for context in self._contexts:
            if context is not self._signed_in:
                context.close()
        self._contexts.clear()
        for page in self._signed_in.pages if self._signed_in else ():
            page.close()
        problems, self.problems = self.problems, []
        own = (f"http://127.0.0.1:{self.server.port}/", f"ws://127.0.0.1:{self.server.port}/")
        elsewhere = [url for url in self._requests if not url.startswith(own)]
        assert not elsewhere
        assert not problems, "\n".join(problems)

    def sign_out(self) -> None:
        """Forget the user agent that has signed in: the next page is one of another."""
        self._signed_in = None

    def close(self) -> None:
        if self._signed_in:
            self._signed_in.close()
