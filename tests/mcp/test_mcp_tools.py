"""The tools of `relay mcp` do what relay's commands do, for the agent that has started the server."""

from __future__ import annotations

import json

import pytest
from mcp_client import AgentWithTools

from session.fake_agent import messages
from support import Relay, wait_until

pytestmark = pytest.mark.shared_home


@pytest.fixture(scope="module")
def alice(shared: Relay) -> AgentWithTools:
    return AgentWithTools(shared, "Alice").start()


@pytest.fixture(scope="module")
def bob(shared: Relay) -> AgentWithTools:
    return AgentWithTools(shared, "Bob").start()


def test_the_server_knows_its_agent(alice: AgentWithTools, bob: AgentWithTools) -> None:
    client = alice.connect()
    assert json.loads(client.call("whoami"))["name"] == "Alice"
    assert [each["name"] for each in json.loads(client.call("list_agents"))] == ["Bob"]


def test_a_tool_sends_a_message(alice: AgentWithTools, bob: AgentWithTools) -> None:
    client = alice.connect()
    (sent,) = json.loads(client.call("send_message", to="Bob", text="-n is not an option", thread="t1"))
    bob.receives("[relay " + sent["id"][:8] + " from Alice] -n is not an option")
    (row,) = json.loads(client.call("message_status", id=sent["id"]))
    assert (row["state"], row["thread"], row["route"]) == ("injected", "t1", "typed")


def test_a_waiting_tool_takes_a_message_once(alice: AgentWithTools, bob: AgentWithTools) -> None:
    client = bob.connect()
    id = client.begin_call("wait_for_message", seconds=50)
    (sent,) = json.loads(alice.connect().call("send_message", to="Bob", text="by the tool"))
    frame = client.frame()
    assert frame["id"] == id
    mark = sent["id"][:8]
    assert frame["result"]["content"][0]["text"] == f"[relay {mark} from Alice] by the tool [/relay {mark}]"
    wait_until(lambda: messages(bob.relay, sent["id"])[0]["state"] == "injected")
    assert messages(bob.relay, sent["id"])[0]["route"] == "mcp"
    client.call("send_message", to="Alice", text="thanks")
    alice.receives("thanks")
    assert "by the tool" not in bob.received
