"""Agents' terminals in pages: to view, and to control once the user has confirmed it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from session.fake_agent import FakeAgent, SharedAgent, events, ps
from support import PATIENCE, Relay, wait_until
from web.running import WebServer, serving

pytestmark = pytest.mark.shared_home

SIZE = 120, 40
"""Of an agent that was started detached."""


@pytest.fixture(scope="module")
def alice(shared: Relay) -> SharedAgent:
    agent = SharedAgent(shared, "Alice")
    agent.wrap()
    return agent


def shown(channel: ClientConnection, until: Callable[[bytes], bool] | bytes) -> bytes:
    """Read, and acknowledge as a page does, until that is on the terminal; return what it got."""
    found = b""
    done = until if callable(until) else lambda found: until in found
    while not done(found):
        data = channel.recv(PATIENCE)
        if isinstance(data, bytes):
            found += data
            channel.send(json.dumps({"ack": len(found)}))
    return found


def size(channel: ClientConnection) -> tuple[int, int]:
    screen = json.loads(channel.recv(PATIENCE))["screen"]
    return screen["columns"], screen["rows"]


def closed(channel: ClientConnection) -> tuple[int, str]:
    """Read until the server closes; return its code and reason."""
    try:
        while True:
            channel.recv(PATIENCE)
    except ConnectionClosed as end:
        assert end.rcvd is not None
        return end.rcvd.code, end.rcvd.reason


def confirm(web: WebServer, name: str, *, takeover: bool = False) -> None:
    assert web.post(f"/api/agents/{name}/control", {"takeover": takeover}).status == 204


def test_a_view_shows_the_screen_then_what_follows(web: WebServer, alice: SharedAgent) -> None:
    alice.say("before")
    with web.terminal("Alice") as channel:
        assert size(channel) == SIZE
        shown(channel, b"before")
        alice.say("after")
        shown(channel, b"after")
        (row,) = (each for each in ps(web.relay) if each["name"] == "Alice")
        assert row["viewers"] == 1


def test_keys_in_a_view_go_nowhere(web: WebServer, alice: SharedAgent) -> None:
    alice.forget()
    with web.terminal("Alice") as channel:
        size(channel)
        channel.send(b"typed in a view\r")
        channel.send("typed in a view\r")
        alice.say("and now")
        shown(channel, b"and now")
    assert alice.received == ""


def test_control_types_and_never_sizes_the_agent(web: WebServer, alice: SharedAgent) -> None:
    alice.forget()
    confirm(web, "Alice")
    with web.terminal("Alice", "control") as channel:
        assert size(channel) == SIZE
        channel.send(b"typed in control\r")
        alice.receives("typed in control\n")
        shown(channel, b"typed in control")
        with web.terminal("Alice") as view:
            assert size(view) == SIZE
        channel.send(b"\x1dd")
        assert closed(channel) == (4004, "detached from Alice.")
    (row,) = (each for each in ps(web.relay) if each["name"] == "Alice")
    assert row["state"] != "exited"


def test_control_needs_a_click_of_this_page_for_this_agent(
    web: WebServer, alice: SharedAgent, subtests: pytest.Subtests
) -> None:
    FakeAgent(web.relay, "Bob").wrap()

    def refused() -> bool:
        with web.terminal("Alice", "control") as channel:
            code, reason = closed(channel)
            return code == 4003 and "needs a confirmation" in reason

    with subtests.test("none"):
        assert refused()
    with subtests.test("another agent's"):
        confirm(web, "Bob")
        assert refused()
    with subtests.test("another browser's"):
        own = web.cookie
        web.log_in()
        confirm(web, "Alice")
        web.cookie = own
        assert refused()
    with subtests.test("once"):
        confirm(web, "Alice")
        with web.terminal("Alice", "control") as channel:
            size(channel)
        assert refused()


def test_one_terminal_controls_an_agent_until_it_is_taken_over(web: WebServer, alice: SharedAgent) -> None:
    confirm(web, "Alice")
    with web.terminal("Alice", "control") as first:
        shown(first, lambda found: bool(found))
        confirm(web, "Alice")
        with web.terminal("Alice", "control") as second:
            code, reason = closed(second)
            assert (code, "another terminal" in reason or "attached" in reason) == (4003, True), reason
        confirm(web, "Alice", takeover=True)
        with web.terminal("Alice", "control") as third:
            shown(third, lambda found: bool(found))
            assert closed(first) == (4004, "another terminal has taken over.")
            alice.forget()
            third.send(b"mine now\r")
            alice.receives("mine now\n")


def test_a_page_that_leaves_detaches(web: WebServer, alice: SharedAgent) -> None:
    for _ in range(2):  # the second is not refused
        confirm(web, "Alice")
        with web.terminal("Alice", "control") as channel:
            shown(channel, lambda found: bool(found))
        wait_until(lambda: not attached(web.relay))
    assert [each for each in events(web.relay) if each["event"] == "terminal_lost"] == []


def attached(relay: Relay) -> bool:
    """Return True while a `relay attach` of the server's runs: it has the server's command line."""
    (row,) = (each for each in ps(relay) if each["name"] == "Alice")
    found = [each for each in Path(f"/proc/{row['terminal_pid']}/fd").iterdir() if each.is_symlink()]
    return any("/dev/pts/" in str(each.readlink()) for each in found)


def test_who_may_not_open_a_terminal(web: WebServer, alice: SharedAgent, subtests: pytest.Subtests) -> None:
    for headers in (
        {"Origin": ""},
        {"Origin": "http://evil.example"},
        {"Origin": f"http://127.0.0.1:{web.port + 1}"},
        {"Cookie": ""},
        {"Cookie": f"{web.cookie}x"},
    ):
        for mode in ("view", "control"):
            with (
                subtests.test(headers=headers, mode=mode),
                pytest.raises(InvalidStatus) as refused,
                web.terminal("Alice", mode, **headers),
            ):
                pass
            assert refused.value.response.status_code == 403
    with subtests.test("another name"):
        lines = [f"Host: 127.0.0.1.nip.io:{web.port}", f"Origin: {web.origin}", f"Cookie: {web.cookie}"]
        upgrade = (
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
        )
        start = "GET /api/agents/Alice/terminal?mode=view HTTP/1.1"
        assert web.raw(start, *lines, *upgrade, connection="Upgrade").startswith(b"HTTP/1.1 403 ")
    for name, mode, words in (
        ("Nobody", "view", "no session called 'Nobody'"),
        ("Alice", "", "view or control"),
        ("Alice", "both", "view or control"),
    ):
        with subtests.test(name=name, mode=mode), web.terminal(name, mode) as channel:
            code, reason = closed(channel)
            assert (code, words in reason) == (4003, True)


def test_a_message_has_a_size(web: WebServer, alice: SharedAgent) -> None:
    with web.terminal("Alice") as channel:
        channel.send(b"x" * 70_000)
        assert closed(channel)[0] == 1009


def test_what_is_no_acknowledgement_is_ignored(web: WebServer, alice: SharedAgent) -> None:
    with web.terminal("Alice") as channel:
        size(channel)
        for text in ("", "{", "[]", "{}", '{"ack": "x"}', '{"ack": -1}', '{"ack": 1e999}', "[" * 20_000):
            channel.send(text)
        alice.say("still here")
        shown(channel, b"still here")


LOUD = """
input()
for n in range(40_000):
    print(f"line {n:06}", "=" * 60)
print("THE END")
input()
"""


def test_a_page_that_does_not_draw_gets_little_and_then_the_screen(web: WebServer) -> None:
    """The agent and other pages do not wait for it, even if it has control."""
    web.relay("wrap", "-d", "-n", "Loud", sys.executable, "-c", LOUD)
    confirm(web, "Loud")
    with web.terminal("Loud", "control") as slow, web.terminal("Loud") as quick:
        size(slow)
        slow.send(b"\r")
        shown(quick, b"THE END")
        got = 0
        while got < 256 << 10:
            data = slow.recv(PATIENCE)
            got += len(data) if isinstance(data, bytes) else 0
        with pytest.raises(TimeoutError):
            slow.recv(0.2)
        slow.send(json.dumps({"ack": got}))
        rest = b""
        while b"THE END" not in rest:
            data = slow.recv(PATIENCE)
            rest += data if isinstance(data, bytes) else b""
            slow.send(json.dumps({"ack": got + len(rest)}))
        assert len(rest) < 1 << 20  # of 3 MB


def test_how_a_terminal_ends(web: WebServer, subtests: pytest.Subtests) -> None:
    agent = FakeAgent(web.relay, "Brief").wrap()
    confirm(web, "Brief")
    with web.terminal("Brief") as view, web.terminal("Brief", "control") as control:
        size(view)
        size(control)
        before = web.cookie
        with subtests.test("logout"):
            web.log_in()
            with web.terminal("Brief") as other:
                size(other)
                assert web.request("DELETE", "/api/session", None, web.changes).status == 204
                assert closed(other) == (4008, "logged out.")
            web.cookie = before
        with subtests.test("restart"):
            web.relay("restart", "--now", "Brief")
            assert size_again(view) == SIZE
        agent.exit()
        with subtests.test("agent"):
            assert closed(view) == (4001, "Brief has ended.")
            assert closed(control) == (4001, "Brief has ended.")


def size_again(channel: ClientConnection) -> tuple[int, int]:
    while isinstance(data := channel.recv(PATIENCE), bytes):
        pass
    screen = json.loads(data)["screen"]
    return screen["columns"], screen["rows"]


def test_the_servers_end_closes_terminals(shared: Relay, alice: SharedAgent) -> None:
    with serving(shared) as server:
        confirm(server, "Alice")
        with server.terminal("Alice") as view, server.terminal("Alice", "control") as control:
            size(view)
            size(control)
            assert server.end() == (130, "")
            assert closed(view) == (1001, "relay web has ended.")
            assert closed(control) == (1001, "relay web has ended.")
    assert alice.state() != "exited"
