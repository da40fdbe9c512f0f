"""`relay mcp` speaks both eras of the protocol, and survives whatever a client sends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from mcp_client import SERVER, STATELESS, server, text_of
from relay.mcp.server import MOST_WAITING
from session.fake_agent import FakeAgent, messages
from support import Relay

pytestmark = pytest.mark.shared_home

TOOLS = {
    *("whoami", "list_agents", "send_message", "wait_for_message", "inbox", "message_status"),
    *("remember", "recall", "forget", "look"),
}
"""What the user's own server offers."""


def official_server(relay: Relay) -> Any:
    """Return the SDK's connection to a server. Its import takes a second: not in each worker of the tests."""
    from mcp.client.stdio import stdio_client

    from mcp import StdioServerParameters

    return stdio_client(
        StdioServerParameters(command=SERVER[0], args=SERVER[1:], env=relay.environment, cwd=relay.home)
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_lists_and_calls_the_tools(relay: Relay, mode: str) -> None:
    """auto: it asks for server/discover first, and stays with 2026-07-28."""
    from mcp import Client as SdkClient

    async def main() -> None:
        async with SdkClient(official_server(relay), mode=mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            saved = await client.call_tool("remember", {"text": f"the {mode} client was here"})
            assert not saved.is_error
            found = await client.call_tool("recall", {"query": f"{mode} client"})
            assert f"the {mode} client was here" in found.content[0].text
            wrong = await client.call_tool("recall", {"quer": "x"})
            assert wrong.is_error and "recall has no argument 'quer'" in wrong.content[0].text

    asyncio.run(main())


def test_an_older_client_gets_the_version_that_it_asks_for(relay: Relay) -> None:
    from mcp import ClientSession

    async def main() -> None:
        async with official_server(relay) as streams, ClientSession(*streams) as session:
            await session.initialize()
            assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS

    asyncio.run(main())
    with server(relay) as client:
        for asked, served in {
            "2025-06-18": "2025-06-18",
            "2025-11-25": "2025-11-25",
            "1999": "2025-11-25",
        }.items():
            result = client.request("initialize", {"protocolVersion": asked})["result"]
            assert result["protocolVersion"] == served
            assert result["serverInfo"]["name"] == "relay"


def test_a_stateless_request_must_name_a_version_that_is_served(relay: Relay) -> None:
    with server(relay) as client:
        found = client.request("server/discover", STATELESS)["result"]
        assert found["supportedVersions"][0] == "2026-07-28"
        assert (found["resultType"], found["cacheScope"], found["ttlMs"]) == ("complete", "private", 0)
        assert client.request("tools/list", STATELESS)["result"]["resultType"] == "complete"
        called = client.request("tools/call", {"name": "whoami", **STATELESS})["result"]
        assert called["resultType"] == "complete"
        other = json.loads(json.dumps(STATELESS).replace("2026-07-28", "2027-01-01"))
        error = client.request("tools/list", other)["error"]
        assert (error["code"], error["data"]["supported"]) == (-32022, ["2026-07-28"])
        assert client.request("server/discover")["error"]["code"] == -32602


BROKEN = {
    b"nonsense": -32700,
    b"\xff\xfe": -32700,
    b"[" * 100_000: -32700,
    b'{"a":' * 100_000: -32700,
    b'{"jsonrpc": "2.0", "id": ' + b"9" * 5000 + b"}": -32700,
    b"[]": -32600,
    b"7": -32600,
    b'{"id": 1, "method": "ping"}': -32600,
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}': -32600,
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}': -32600,
    b'{"jsonrpc": "2.0", "id": true, "method": "ping"}': -32600,
    b'{"jsonrpc": "2.0", "id": 1, "method": 7}': -32600,
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}': -32600,
    b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}': -32601,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}': -32602,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}': -32602,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": 1}}': -32602,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no_tool"}}': -32602,
}
"""Frames that are answered with an error of the protocol."""

IGNORED = [
    b"",
    b"  ",
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}',
    b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "remember"}}',
]


def test_each_broken_frame_gets_its_error(relay: Relay, subtests: pytest.Subtests) -> None:
    with server(relay) as client:
        for frame, code in BROKEN.items():
            with subtests.test(frame=frame[:80]):
                client.send(frame + b"\n")
                assert client.frame()["error"]["code"] == code
                assert client.request("ping", id="still")["result"] == {}
        for frame in IGNORED:
            client.send(frame + b"\n")
        assert client.request("ping")["result"] == {}


WRONG = {
    "wait_for_message": {"seconds": 51, "second": 1},
    "send_message": {"to": "Bob"},
    "message_status": {"id": "Bob"},
    "remember": {"text": 7},
}
"""Arguments that do not fit a tool."""


def test_wrong_arguments_are_an_error_that_the_model_can_read(
    relay: Relay, subtests: pytest.Subtests
) -> None:
    with server(relay) as client:
        for tool, arguments in WRONG.items():
            with subtests.test(tool):
                assert client.refusal(tool, **arguments)
        priority = client.refusal("send_message", to="Bob", text="x", priority="high")
        assert priority == 'priority does not fit {"type": "string", "enum": ["urgent", "normal", "low"]}.'
        for seconds in (-1, 51, float("nan"), float("inf"), True):
            assert "seconds does not fit" in client.refusal("wait_for_message", seconds=seconds)


def test_huge_input_is_refused_and_skipped(relay: Relay) -> None:
    with server(relay) as client:
        huge = client.request("tools/call", {"name": "remember", "arguments": {"text": "x" * (10 << 20)}})
        assert (huge["error"]["code"], huge["error"]["message"][:23]) == (-32602, "a call has at most 1 MB")
        for _ in range(40):
            client.send(b"x" * (1 << 20))
        assert client.frame()["error"]["code"] == -32700
        client.send(b"\n")
        assert client.request("ping")["result"] == {}


def test_a_repeated_call_is_carried_out_once(relay: Relay) -> None:
    with server(relay) as client:
        call = {"name": "remember", "arguments": {"text": "only once"}}
        first = client.request("tools/call", call, id="again")
        assert client.request("tools/call", call, id="again") == first
        other = {"name": "remember", "arguments": {"text": "another"}}
        assert client.request("tools/call", other, id="again")["error"]["code"] == -32600
        for _ in range(3):  # while it is being carried out
            client.begin("tools/call", {"name": "remember", "arguments": {"text": "at once"}}, id="at once")
        assert len({json.dumps(client.frame()) for _ in range(3)}) == 1
    assert [each["text"] for each in json.loads(relay("memory", "list", "--json").stdout)][:2] == [
        "at once",
        "only once",
    ]


def test_calls_are_carried_out_in_order_and_do_not_wait_for_one_that_waits(relay: Relay) -> None:
    with server(relay) as client:
        waits = client.begin_call("wait_for_message", seconds=50)
        ids = [client.begin_call("remember", text=f"number {number}") for number in range(5)]
        assert [client.frame()["id"] for _ in ids] == ids
        client.notify("notifications/cancelled", {"requestId": waits})
    newest = [each["text"] for each in json.loads(relay("memory", "list", "--json").stdout)][:5]
    assert newest == [f"number {number}" for number in reversed(range(5))]


def test_too_many_calls_at_once_are_refused(relay: Relay) -> None:
    with server(relay) as client:
        first = client.begin_call("remember", text="first")
        ids = [client.begin_call("whoami") for _ in range(MOST_WAITING + 1)]
        refused = client.frame()
        assert (refused["id"], refused["error"]["code"]) == (ids[-1], -32603)
        for id in ids[:-1]:
            client.notify("notifications/cancelled", {"requestId": id})
        assert client.frame()["id"] == first
        assert client.call("whoami")


def test_a_call_whose_process_dies_fails_alone(relay: Relay) -> None:
    with server(relay) as client:
        client.begin_call("wait_for_message", seconds=50)
        client.request("ping")  # by now, the call has begun
        with open(f"/proc/{client.pid}/task/{client.pid}/children") as children:
            (child,) = map(int, children.read().split())
        os.kill(child, 9)
        result = client.frame()["result"]
        assert result["isError"] and "its process has ended" in result["content"][0]["text"]
        assert client.call("whoami")


def test_a_call_that_meets_a_bug_fails_alone_and_is_logged(relay: Relay) -> None:
    log = relay.home / "stderr"
    code = "from relay.cli import mcp; from relay.mcp import calls; del calls.certain; mcp.quick()"
    command = ["sh", "-c", 'exec "$@" 2>"$0"', str(log), sys.executable, "-c", code]
    with server(relay, command) as client:
        assert "relay failed to do that (NameError" in client.refusal("whoami")
        assert client.request("ping")["result"] == {}
    assert log.read_text().count("Traceback") == 1


def test_a_tool_that_is_not_listed_cannot_be_called(relay: Relay) -> None:
    """`relay release ID` releases what is held for the user."""
    with server(relay) as client:
        for tool, arguments in {
            "release": {"name": "3f9a"},
            "spawn": {"name": "A", "agent": "B", "task": "C"},
            "ask_user": {"question": "Who?"},
        }.items():
            assert tool not in client.tools()
            assert "relay has no tool" in client.refusal(tool, **arguments)


def test_what_a_call_prints_does_not_reach_the_client(relay: Relay) -> None:
    """A project's relay.config.py may print, and is loaded for the memory that it configures."""
    project = relay.home / "prints"
    project.mkdir()
    (project / "relay.config.py").write_text(
        "import os\nfrom relay import RelayConfig\n"
        "os.write(1, b'nonsense')\nprint('more')\nconfig = RelayConfig()\n"
    )
    relay("trust", cwd=project)
    with server(relay, ["sh", "-c", 'cd "$0" && exec "$@"', str(project), *SERVER]) as client:
        assert client.call("recall").startswith("What follows was written by others")


def test_two_calls_at_once_do_not_get_the_same_message(relay: Relay) -> None:
    with server(relay) as client:
        first, second = (client.begin_call("wait_for_message", seconds=wait) for wait in (50, 0))
        FakeAgent(relay, "Author").wrap().say("@relay:you look at this")
        frames = [client.frame(), client.frame()]
    assert [frame["id"] for frame in frames] == [first, second]
    assert "look at this" in text_of(frames[0])
    assert text_of(frames[1]) == "No message came within 0 s."


def test_the_user_gets_their_messages(relay: Relay) -> None:
    FakeAgent(relay, "Writer").wrap().say("@relay:you look at this")
    with server(relay) as client:
        text = client.call("wait_for_message", seconds=50)
        assert "from Writer] look at this [/relay" in text
        assert client.call("wait_for_message", seconds=0) == "No message came within 0 s."
        client.call("send_message", to="Writer", text="I have seen it")
    assert [m["state"] for m in messages(relay, "--from", "Writer")] == ["read"]
    FakeAgent(relay, "Writer").receives("from the user] I have seen it")
