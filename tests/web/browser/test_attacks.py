"""What other pages in the same browser try: requests, sockets, frames, another name, another's cookie."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support import Relay
from web.browser.pages import Pages, Server

TRIES = """async (address) => {
    const found = {};
    const attempt = async (name, run) => {
        try { found[name] = await run(); } catch { found[name] = "blocked"; }
    };
    const get = { credentials: "include" };
    const post = { ...get, method: "POST", body: '{"to": "Ann", "text": "hi"}' };
    const headers = { "Content-Type": "application/json", "X-Relay": "1" };
    await attempt("get", async () => (await fetch(address + "/api/agents", get)).status);
    await attempt("post", async () => (await fetch(address + "/api/messages", { ...post, headers })).status);
    await attempt("simple", async () => (
        await fetch(address + "/api/messages", { ...post, mode: "no-cors" })
    ).type);
    await attempt("socket", () => new Promise((resolve, reject) => {
        const socket = new WebSocket(address.replace("http", "ws") + "/api/agents/Ann/terminal?mode=view");
        socket.onopen = () => resolve("open");
        socket.onerror = reject;
    }));
    await attempt("events", () => new Promise((resolve, reject) => {
        const source = new EventSource(address + "/api/events", { withCredentials: true });
        source.onopen = () => resolve("open");
        source.onerror = reject;
    }));
    await attempt("frame", () => new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.src = address;
        frame.onload = () => resolve(frame.contentDocument ? "readable" : "foreign");
        document.body.append(frame);
    }));
    await attempt("script", () => new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = address + "/api/agents";
        script.onload = () => resolve("loaded");
        script.onerror = reject;
        document.body.append(script);
    }));
    return found;
}"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><body>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def evil() -> Iterator[str]:
    """Yield the address of a page on another port of this machine: the same site, another origin."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_page_of_another_port_gets_nothing(pages: Pages, evil: str, shared: Relay) -> None:
    page = pages.open()
    other = page.context.new_page()  # with the same cookies: they ignore ports
    other.goto(evil)
    found = other.evaluate(TRIES, pages.server.address)
    frame = next(each for each in other.frames if each != other.main_frame)
    assert "Agents" not in (frame.content() if frame.url.startswith("http") else "")
    assert found.pop("frame") == "foreign"
    assert set(found.values()) == {"blocked"}, found
    assert json.loads(shared("messages", "--json").stdout) == []


def test_a_name_that_resolves_to_this_machine_gets_nothing(
    browser: Any, server: Server, pages: Pages
) -> None:
    """DNS rebinding: to the browser, the page and the server have the same origin."""
    page = pages.open()
    answer = page.request.get(
        f"{server.address}/api/agents", headers={"Host": f"rebound.example:{server.port}"}
    )
    assert answer.status == 403
    rebound = page.context.new_page()
    rebound.goto(f"http://rebound.localhost:{server.port}/")  # browsers resolve *.localhost themselves
    assert "only" in rebound.inner_text("body")


def test_a_cookie_is_of_one_run(browser: Any, pages: Pages, shared: Relay) -> None:
    """Cookies ignore ports: another server gets it. It opens nothing there, nor by another name."""
    page = pages.open()
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert page.evaluate("document.cookie") == ""
    other = Server(shared)
    try:
        answer = page.request.get(f"{other.address}/api/agents")
        assert answer.status == 401
        renamed = {**cookie, "name": cookie["name"][:-1] + ("0" if cookie["name"][-1] != "0" else "1")}
        context = pages.context()
        context.add_cookies([renamed])
        assert context.request.get(f"{pages.server.address}/api/agents").status == 401
    finally:
        other.close()


def test_the_link_works_once_and_leaves_no_trace(pages: Pages) -> None:
    link = pages.server.link()
    page = pages.context().new_page()
    page.goto(link)
    page.get_by_role("heading", name="Agents").wait_for()
    token = link.partition("#")[2]
    assert token not in page.url and token not in page.content()
    page.go_back()
    assert token not in page.url
    again = pages.context().new_page()
    again.goto(link)
    again.get_by_role("heading", name="Connect to relay").wait_for()
