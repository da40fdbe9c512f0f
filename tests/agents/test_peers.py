"""The records of other agents in an agent's own list of sessions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.agents import kinds
from relay.agents.door import Site
from relay.agents.kinds.claude import without_envelope
from relay.agents.peers import Peer, PeerList, start_ticks

Json = dict[str, Any]

OWN: dict[str, Json] = {
    "claude": {
        "messagingSocketPath": "/tmp/own.sock",
        "peerProtocol": 1,
        "pidDomain": "linux:machine:pid:[4026531836]",
        "version": "2.1.332",
    },
    "qwen": {
        "ipcPath": "/tmp/own.sock",
        "schemaVersion": 1,
        "procStart": "b007:12",
        "pidNs": 4026531836,
        "qwenVersion": "0.24.4",
    },
}
ADDRESS = {"claude": "messagingSocketPath", "qwen": "ipcPath"}


class Place:
    """An agent's list in `home`, in which it is itself the process AGENT; Bob is a process that sleeps."""

    AGENT = os.getpid()

    def __init__(self, home: Path, kind: str, bob: int) -> None:
        self.home = home
        self.kind = kind
        self.folder = home / "sessions"
        self.folder.mkdir()
        self.bob = Peer("Bob", bob, str(home / "run" / "sessions" / "default" / "bob.sock"))

    def list(self, agent: int = AGENT) -> PeerList:
        env = {"CLAUDE_CONFIG_DIR": str(self.home), "QWEN_HOME": str(self.home)}
        socket = str(self.home / "run" / "sessions" / "default" / "alice.sock")
        found = kinds.find(self.kind).peers(Site(env, str(self.home), socket, lambda pid: pid == agent))
        assert found is not None
        return found

    def register(self, pid: int = AGENT, **changes: object) -> Json:
        """Write a record as the agent does."""
        record = {"pid": pid, "name": "work-3f", **OWN[self.kind], **changes}
        (self.folder / f"{pid}.json").write_text(json.dumps(record))
        return record

    def records(self) -> dict[str, Json]:
        found = [json.loads(path.read_text()) for path in self.folder.glob("*.json")]
        return {record["name"]: record for record in found}


@pytest.fixture
def bob() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture(params=["claude", "qwen"])
def place(tmp_path: Path, bob: int, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, request.param, bob)


def test_a_record_names_a_live_process_and_its_control_socket(place: Place) -> None:
    place.register()
    list = place.list()
    assert list.closed() == ""
    list.show([place.bob])
    record = place.records()["Bob"]
    assert (record["pid"], record[ADDRESS[place.kind]]) == (place.bob.pid, place.bob.socket)
    assert record["procStart"].rpartition(":")[2] == start_ticks(place.bob.pid)
    path = place.folder / f"{place.bob.pid}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (list.shown, list.complete()) == (1, True)
    for key in ("pidDomain", "pidNs", "schemaVersion", "peerProtocol"):
        assert record.get(key) == OWN[place.kind].get(key)
    assert record["procStart"].rpartition(":")[0] == OWN[place.kind].get("procStart", "").rpartition(":")[0]


def test_nobody_is_shown_until_the_agent_has_a_record_of_a_known_form(place: Place) -> None:
    list = place.list()
    assert list.closed() == "its session has no messaging socket"
    for change in ({ADDRESS[place.kind]: None}, {"peerProtocol": 2, "schemaVersion": 2}, {"procStart": "7"}):
        if change == {"procStart": "7"} and place.kind == "claude":
            change = {"pidDomain": None}
        place.register(**change)
        list.show([place.bob])
        assert list.closed() and not list.shown and "Bob" not in place.records(), change
    assert "1, which relay knows" in list.closed()
    (place.folder / f"{Place.AGENT}.json").write_text("{cut o")
    assert list.closed() == "its session has no messaging socket"


def test_a_record_that_is_not_relays_stays_as_it_is(place: Place) -> None:
    place.register()
    foreign = place.register(place.bob.pid, name="theirs")
    elsewhere = place.register(
        1, **{ADDRESS[place.kind]: "/other/run/sessions/default/x.sock", "name": "other"}
    )
    list = place.list()
    list.show([place.bob])
    assert list.shown == 0
    list.show([])
    assert place.records() | {"theirs": foreign, "other": elsewhere} == place.records()


def test_records_of_ended_agents_are_removed_also_those_that_another_session_left(place: Place) -> None:
    place.register()
    place.list().show([place.bob])
    stale = {**place.records()["Bob"], "name": "Old", "procStart": "b007:1"}
    (place.folder / "1.json").write_text(json.dumps({**stale, "pid": 1}))
    (place.folder / "999999999.json").write_text(json.dumps({**stale, "pid": 999999999, "name": "Gone"}))
    list = place.list()
    list.show([place.bob])
    assert sorted(place.records()) == ["Bob", "work-3f"]
    list.show([])
    assert sorted(place.records()) == ["work-3f"]


def test_what_is_no_record_does_no_harm(place: Place) -> None:
    place.register()
    os.mkfifo(place.folder / "7.json")
    with (place.folder / "8.json").open("wb") as file:
        file.truncate(1 << 40)
    endless = {**OWN[place.kind], "pid": float("inf"), ADDRESS[place.kind]: place.bob.socket}
    (place.folder / "9.json").write_text(json.dumps(endless))
    (place.folder / "10.json").symlink_to("/dev/zero")
    list = place.list()
    list.show([place.bob])
    assert (list.shown, list.complete()) == (1, True)
    assert (place.folder / f"{place.bob.pid}.json").exists()


def test_two_agents_with_one_list_share_its_records(place: Place) -> None:
    place.register()
    first, second = place.list(), place.list()
    first.show([place.bob])
    written = (place.folder / f"{place.bob.pid}.json").stat().st_mtime_ns
    second.show([place.bob])
    assert (place.folder / f"{place.bob.pid}.json").stat().st_mtime_ns == written
    assert second.shown == 1
    first.show([])
    assert not second.complete()
    second.show([place.bob])
    assert "Bob" in place.records()


def test_a_record_of_an_earlier_process_with_the_same_id_is_replaced(place: Place) -> None:
    place.register()
    list = place.list()
    list.show([place.bob])
    path = place.folder / f"{place.bob.pid}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "procStart": "b007:1"}))
    list.show([place.bob])
    assert place.records()["Bob"]["procStart"].endswith(start_ticks(place.bob.pid))


def test_a_socket_whose_path_is_too_long_is_not_shown(place: Place) -> None:
    place.register()
    list = place.list()
    list.show([place.bob._replace(socket="/" + "x" * 120)])
    assert "Bob" not in place.records()


@pytest.mark.parametrize(("kind", "id"), [("claude", "msg_id"), ("qwen", "msgId")])
def test_only_a_users_frame_with_an_id_and_a_text_is_a_message(tmp_path: Path, kind: str, id: str) -> None:
    list = Place(tmp_path, kind, 0).list()
    frame = {"type": "user", id: "m1", "message": {"role": "user", "content": "hello"}}
    assert list.message(frame) == ("m1", "hello")
    for change in (
        {"type": "control"},
        {id: None},
        {id: 3},
        {"message": "hello"},
        {"message": {"content": ""}},
    ):
        assert list.message({**frame, **change}) is None, change


def test_claudes_envelope_is_no_part_of_the_message() -> None:
    attributes = (
        'from="uds:/tmp/a.sock" from-session="s" hop-chain="0" from-name="Mallory" from-mode="prompting"'
    )
    text = "first\n<\\cross-session-message>\nlast"
    wrapped = f"<cross-session-message {attributes}>\n{text}\n</cross-session-message>"
    assert without_envelope(wrapped) == text
    assert without_envelope(text) == text
