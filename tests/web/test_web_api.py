"""relay web's API says what the commands say, and does what the commands do."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from cli.test_answer import AskingAgent, entries
from ledgers import post
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, SharedAgent, messages, ps
from support import PATIENCE, Relay, wait_until
from web.running import WebServer

pytestmark = pytest.mark.shared_home


@pytest.fixture(scope="module")
def alice(shared: Relay) -> SharedAgent:
    agent = SharedAgent(shared, "Alice")
    agent.wrap()
    return agent


@contextmanager
def events(web: WebServer) -> Iterator[HTTPResponse]:
    """Listen as a page does."""
    connection = HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
    connection.request("GET", "/api/events", headers={"Cookie": web.cookie})
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def changed(answer: HTTPResponse) -> list[str]:
    """Return what the next event says has changed; nothing at the end."""
    while line := answer.readline():
        if line.startswith(b"data: "):
            return list(json.loads(line.removeprefix(b"data: ")))
    return []


def test_agents_are_those_of_ps_in_their_groups(web: WebServer, alice: SharedAgent) -> None:
    alice.say("What I said last.")

    def row() -> dict[str, Any]:
        (found,) = (each for each in web.get("/api/agents").json if each["name"] == "Alice")
        return dict(found)

    wait_until(lambda: row()["line"] == "What I said last.")
    (listed,) = (each for each in ps(web.relay) if each["name"] == "Alice")
    assert {*row()} == {*listed, "group", "line", "branch", "unread"}
    assert row()["group"] in {"working", "waiting"}
    assert web.get("/api/agents?team=default").json[0]["name"] == "Alice"
    assert web.get("/api/agents?team=other").json == []


def test_a_folder_may_have_any_name(web: WebServer) -> None:
    folder = web.relay.home / os.fsdecode(b"caf\xe9 <b>")
    folder.mkdir()
    FakeAgent(web.relay, "Cafe").wrap(cwd=folder)
    (row,) = (each for each in web.get("/api/agents").json if each["name"] == "Cafe")
    assert row["cwd"] == str(folder)


def test_an_answer_is_that_of_the_command_and_only_for_the_question_that_was_shown(web: WebServer) -> None:
    agent = AskingAgent(web.relay, "again", name="Asking")
    asked = web.get("/api/agents/Asking/question").json
    assert asked == agent.question()

    def row() -> dict[str, Any]:
        (found,) = (each for each in web.get("/api/agents").json if each["name"] == "Asking")
        return dict(found)

    wait_until(lambda: (row()["group"], row()["unread"]) == ("needs you", 1))
    assert "Do you want to proceed?" in row()["line"]
    for question in ("", "0000", asked["id"] + "0"):
        given = web.post("/api/agents/Asking/answer", {"question": question, "answer": "1"})
        assert given.status in {400, 403}
    assert web.post("/api/agents/Asking/answer", {"answer": "1"}).status == 400
    assert web.post("/api/agents/Asking/answer", {"question": asked["id"], "answer": "7"}).status == 400
    assert agent.received == []
    given = web.post("/api/agents/Asking/answer", {"question": asked["id"], "answer": "No"})
    assert (given.status, given.json["result"], given.json["option"]["number"]) == (200, "answered", 3)
    assert agent.received == [{"chose": 3, "text": ""}]
    agent.ask_again()
    asked = web.get("/api/agents/Asking/question").json
    text = {"text": "--json is what I want"}
    given = web.post("/api/agents/Asking/answer", {"question": asked["id"], "answer": text})
    assert given.status == 200
    assert agent.received[-1] == {"chose": 4, "text": "--json is what I want"}
    assert [each["result"] for each in entries(web.relay, "Asking")][-1] == "answered"


def test_two_phones_answer_once(web: WebServer) -> None:
    agent = AskingAgent(web.relay, name="Phoned")
    asked = web.get("/api/agents/Phoned/question").json
    given: list[int] = []

    def press() -> None:
        answer = web.post("/api/agents/Phoned/answer", {"question": asked["id"], "answer": "1"})
        given.append(answer.status)

    phones = [threading.Thread(target=press) for _ in range(2)]
    for each in phones:
        each.start()
    for each in phones:
        each.join()
    assert given.count(200) == 1
    assert agent.received == [{"chose": 1, "text": ""}]


def test_messages_are_sent_and_listed_as_by_the_commands(web: WebServer, alice: SharedAgent) -> None:
    text = "--wait is <b>no</b> option\nof mine"
    answer = web.post("/api/messages", {"to": "Alice", "text": text})
    assert answer.status == 200
    (row,) = answer.json
    assert (row["from"], row["to"], row["body"]) == ("you", "Alice", text)
    alice.receives("of mine")
    assert web.get("/api/messages?with=Alice").json == messages(web.relay, "Alice")
    assert web.get("/api/messages?limit=1").json == messages(web.relay)[-1:]
    assert web.get("/api/messages?state=held").json == []
    assert web.get("/api/messages?with=Nobody").json == []
    reply = web.post("/api/messages", {"to": "Alice", "text": "more", "reply_to": row["id"]})
    assert reply.json[0]["reply_to"] == row["id"]


def test_what_cannot_be_sent_says_why(web: WebServer, alice: SharedAgent, subtests: pytest.Subtests) -> None:
    for body, status, words in (
        ({"to": "Nobody", "text": "x"}, 404, "has no agent called 'Nobody'"),
        ({"to": "Alice"}, 400, "needs a text 'text'"),
        ({"to": ["Alice"], "text": "x"}, 400, "needs a text 'to'"),
        ({"to": "a/b", "text": "x"}, 400, "a/b"),
        ({"to": "Alice", "text": "x" * 70_000}, 409, "larger than"),
        ({"to": "Alice", "text": "x", "reply_to": "ffff"}, 404, "ffff"),
    ):
        with subtests.test(words):
            answer = web.post("/api/messages", body)
            assert (answer.status, words in answer.json["error"]) == (status, True), answer.json


def test_the_inbox_is_read_and_done_as_by_the_command(web: WebServer, alice: SharedAgent) -> None:
    with Ledger(web.relay.home / "state" / "ledger.db") as ledger:
        for text in ("I am done.", "I am stuck."):
            post(ledger, "default", "Alice", "you", text)

    def waiting() -> list[dict[str, Any]]:
        return [each for each in web.get("/api/inbox").json if each["name"] == "Alice"]

    assert [each["text"] for each in waiting()] == ["I am done.", "I am stuck."]
    assert waiting() == [e for e in json.loads(web.relay("inbox", "--json").stdout) if e["name"] == "Alice"]
    first, second = waiting()
    assert web.post(f"/api/inbox/{first['id']}/read", {}).json["text"] == "I am done."
    assert web.post(f"/api/inbox/{second['id']}/done", {}).status == 200
    assert waiting() == []
    assert web.post("/api/inbox/ffffff/done", {}).status == 404
    assert web.post("/api/inbox/--all/done", {}).status == 404


def test_logs_usage_recordings_and_the_fleet_are_the_commands(web: WebServer, alice: SharedAgent) -> None:
    alice.say("A line of its log.")
    wait_until(lambda: any("A line of" in each["text"] for each in web.get("/api/agents/Alice/logs").json))
    assert len(web.get("/api/agents/Alice/logs?limit=1").json) == 1
    assert web.get("/api/agents/Nobody/logs").status == 404
    assert web.get("/api/usage").json == json.loads(web.relay("usage", "--json").stdout)

    def cast() -> bytes:
        (row,) = (each for each in web.get("/api/recordings").json if each["name"] == "Alice")
        assert "files" not in row
        return web.get(f"/api/recordings/{row['id']}").body

    wait_until(lambda: b"A line of its log." in cast())
    header, *lines = cast().splitlines()
    assert json.loads(header)["version"] in {2, 3}
    assert all(len(json.loads(line)) == 3 for line in lines)
    assert web.get("/api/recordings/0").status == 404


def test_an_agent_is_held_and_released(web: WebServer) -> None:
    agent = FakeAgent(web.relay, "Kept").wrap()
    held, released = web.post("/api/agents/Kept/hold", {}), web.post("/api/agents/Kept/release", {})
    assert (held.status, held.json[0]["outcome"]) == (200, "held"), agent.log()
    assert (released.status, released.json[0]["outcome"]) == (200, "released")
    assert web.post("/api/agents/Kept/release", {}).json[0]["outcome"] == "not held"


def test_an_agent_is_restarted_and_stopped(web: WebServer) -> None:
    agent = FakeAgent(web.relay, "Ended").wrap()
    before = {each["name"]: each["agent_pid"] for each in ps(web.relay)}["Ended"]
    answer = web.post("/api/agents/Ended/restart", {"now": True})
    assert (answer.status, answer.json[0]["outcome"]) == (200, "restarted")
    assert {each["name"]: each["agent_pid"] for each in ps(web.relay)}["Ended"] != before
    answer = web.post("/api/agents/Ended/stop", {"now": True})
    assert (answer.status, answer.json[0]["outcome"]) == (200, "ended"), agent.log()
    assert web.post("/api/agents/Ended/stop", {}).status == 404
    assert web.post("/api/agents/--all/stop", {"now": True}).status == 400


FLEET = """
[fleet]
team = "crew"

[agents.Ann]
run = "cat"
"""


def test_a_fleets_agents_are_started_and_stopped(web: WebServer) -> None:
    relay = web.relay
    (relay.home / "relay.toml").write_text(FLEET)
    try:
        assert "relay trust" in web.get("/api/fleet").json["error"]
        relay("trust", "relay.toml")
        assert web.get("/api/fleet").json == json.loads(relay("up", "--dry-run", "--json").stdout)
        assert web.post("/api/fleet/Ann/up", {}).status == 200
        assert [each["name"] for each in ps(relay) if each["team"] == "crew"] == ["Ann"]
        assert web.post("/api/fleet/Ann/down", {}).status == 200
        assert not [each for each in ps(relay) if each["team"] == "crew"]
        assert "Nobody" in web.post("/api/fleet/Nobody/up", {}).json["error"]
    finally:
        (relay.home / "relay.toml").unlink()


def test_each_mistake_in_a_fleet_file_is_told(web: WebServer) -> None:
    """Of the user's own, which needs no trust."""
    own = web.relay.home / "config" / "relay.toml"
    own.write_text("[agents.Ann]\nrun = 1\ntask = 2\n")
    try:
        assert "has 2 mistakes" in web.get("/api/fleet").json["error"]
    finally:
        own.unlink()


def test_a_page_learns_what_has_changed(web: WebServer, alice: SharedAgent) -> None:
    with events(web) as answer:
        assert changed(answer) == ["agents", "inbox", "messages"]
        web.relay("send", "Alice", "news")
        while "messages" not in changed(answer):
            pass
        alice.say("@relay:you Look at this.")
        while "inbox" not in changed(answer):
            pass


def test_logging_out_ends_what_is_open(web: WebServer) -> None:
    before = web.cookie
    web.log_in()
    with events(web) as answer:
        assert changed(answer)
        gone = web.request("DELETE", "/api/session", None, web.changes)
        assert gone.status == 204
        assert web.get("/api/agents").status == 401
        while changed(answer):
            pass  # until it ends
    web.cookie = before
    assert web.get("/api/agents").status == 200
