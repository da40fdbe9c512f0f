"""A server of `relay web`, and its pages in Chromium."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from support import PATIENCE, Relay

SIZE = {"width": 1280, "height": 800}

BETWEEN = "#/usage"
"""Where the page is between two tests: none begins there, so each sees its own drawn."""


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
    """A page of one server, in a user agent that has signed in, and further ones.

    problems: what scripts failed at, and what the browser complained about; a test must have none at its end.
    """

    def __init__(self, browser: Any, server: Server) -> None:
        self.server = server
        self.problems: list[str] = []
        self._requests: list[str] = []
        self._browser = browser
        self._page: Any = None
        self._contexts: list[Any] = []

    def context(self, **options: Any) -> Any:
        """Return a new user agent, without cookies."""
        context = self._browser.new_context(**{"viewport": SIZE, **options})
        context.set_default_timeout(PATIENCE * 1000)
        self._contexts.append(context)
        return context

    def open(self, route: str = "#/agents", **options: Any) -> Any:
        """Return the page at a route: the same one in all tests. options: another one, of a user agent."""
        if options:
            return self._signed_in(route, **options)
        if self._page is None:
            self._page = self._signed_in(route)
        else:
            self.go(self._page, route)
        return self._page

    def _signed_in(self, route: str, **options: Any) -> Any:
        page = self.context(**options).new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on("console", self._note)
        page.on("request", lambda request: self._requests.append(request.url))
        page.on("websocket", lambda socket: self._requests.append(socket.url))
        page.goto(self.server.link())
        page.locator("main h1, main h2").first.wait_for(state="attached")
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
        kept = self._page and self._page.context
        for context in self._contexts:
            if context is not kept:
                context.close()
        self._contexts = [kept] if kept else []
        for page in kept.pages if kept else ():
            if page is not self._page:
                page.close()
        if self._page:
            self.go(self._page, BETWEEN)
        problems, self.problems = self.problems, []
        own = (f"http://127.0.0.1:{self.server.port}/", f"ws://127.0.0.1:{self.server.port}/")
        elsewhere = [url for url in self._requests if not url.startswith(own)]
        assert not elsewhere
        assert not problems, "\n".join(problems)

    def leave(self) -> None:
        """Close the page with its user agent: the next one belongs to another."""
        context, self._page = self._page.context, None
        self._contexts.remove(context)
        context.close()

    def close(self) -> None:
        if self._page:
            self.leave()
