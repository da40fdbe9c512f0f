"""The door of Qwen Code, at a small program with such an inbox (tests/fakes/qwen_inbox.py)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.agents import kinds
from relay.agents.door import Offer, OfferState, Site
from relay.agents.kinds import _qwen_door
from relay.agents.kinds._qwen_door import QwenDoor

INBOX = Path(__file__).parent.parent / "fakes" / "qwen_inbox.py"
MARK = "[/relay 3f9a41c7]"


class Session:
    """A running session with an inbox, and a way to its door."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "qwen"
        self.mode("gives")
        (folder / "session").write_text(str(uuid.uuid4()))
        env = {**os.environ, "QWEN_HOME": str(self.home)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", INBOX, folder], env=env, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def clear(self) -> None:
        """Begin another session in the same process, as /clear does."""
        session = str(uuid.uuid4())
        (self.folder / "session").write_text(session)
        self.record().write_text(json.dumps({**json.loads(self.record().read_text()), "sessionId": session}))

    def record(self) -> Path:
        return self.home / "sessions" / f"{self.process.pid}.json"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def door(self) -> QwenDoor:
        """Return the door, as each of relay's sessions makes it."""
        site = Site(
            {"QWEN_HOME": str(self.home), "PWD": str(self.folder)},
            str(self.folder),
            str(self.folder / "a.sock"),
            lambda pid: pid == self.process.pid and self.process.poll() is None,
            transcript=str(self.folder / "transcript"),
        )
        door = kinds.find("qwen").door(site)
        assert isinstance(door, QwenDoor)
        return door

    def given(self) -> int:
        """Return how often its model has got the text of `OFFER`."""
        try:
            return (self.folder / "transcript").read_text().count(MARK)
        except FileNotFoundError:
            return 0

    def frames(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "frames").read_text().splitlines()]


@pytest.fixture
def qwen(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.kill()
    assert session.process.stdout is not None
    session.process.stdout.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_qwen_door, "RECEIPT_TIMEOUT", 0.2)
    monkeypatch.setattr(_qwen_door, "LOOK_EVERY", 0.01)


def offer(text: str = "hello") -> Offer:
    return Offer(str(uuid.uuid4()), f"[relay 3f9a41c7 from Bob] {text} {MARK}", MARK, "Bob")


def told(session: Session) -> str:
    door = session.door()
    with open(session.folder / "transcript", "rb") as file:
        return "".join(map(door.told, file))


@pytest.mark.parametrize("mode", ["gives", "confuses"])
@pytest.mark.parametrize(
    "text", ["hello", '/clear\n!cmd "@file" \\', "漢字 👩‍👩‍👧" * 5_000], ids=["short", "signs", "long"]
)
def test_a_text_is_given_whole_and_the_transcript_proves_it(qwen: Session, text: str, mode: str) -> None:
    qwen.mode(mode)
    sent = offer(text)
    assert asyncio.run(qwen.door().offer(sent)) is OfferState.ACCEPTED
    assert qwen.given() == 1
    assert sent.text in told(qwen)
    (frame,) = qwen.frames()
    assert (frame["fromName"], frame["msgId"]) == ("Bob", sent.id)


@pytest.mark.parametrize(
    ("mode", "state", "given", "settled"),
    [
        ("gives", OfferState.ACCEPTED, 1, OfferState.DELIVERED),
        ("holds", OfferState.ACCEPTED, 0, OfferState.ACCEPTED),  # a receipt is no proof
        ("mute", OfferState.UNKNOWN, 1, OfferState.DELIVERED),
        ("slow", OfferState.BUSY, 0, OfferState.BUSY),
        ("refuses", OfferState.REFUSED, 0, OfferState.REFUSED),
        ("resets", OfferState.UNKNOWN, 0, OfferState.UNKNOWN),
    ],
)
def test_what_became_of_a_text(
    qwen: Session, mode: str, state: OfferState, given: int, settled: OfferState
) -> None:
    """Also for the next of relay's sessions, and nothing is given twice."""
    qwen.mode(mode)
    sent = offer()
    assert asyncio.run(qwen.door().offer(sent)) is state
    assert qwen.given() == given
    assert asyncio.run(qwen.door().settle(sent)) is settled
    assert qwen.given() == given


def test_a_text_that_a_broken_connection_has_lost_is_sent_again(qwen: Session) -> None:
    qwen.mode("resets")
    sent = offer()
    assert asyncio.run(qwen.door().offer(sent)) is OfferState.UNKNOWN
    qwen.mode("gives")
    assert asyncio.run(qwen.door().settle(sent)) is OfferState.DELIVERED
    assert qwen.given() == 1


def test_too_many_texts_at_once_are_a_pause(qwen: Session) -> None:
    qwen.mode("slow")
    door = qwen.door()
    assert door.pause() == 0
    asyncio.run(door.offer(offer()))
    assert door.pause() > 0


def test_another_session_of_the_agent_gets_no_old_text(qwen: Session) -> None:
    """/clear drops what is queued. The next session knows no ids: it would take the text a second time."""
    qwen.mode("holds")
    sent = offer()
    assert asyncio.run(qwen.door().offer(sent)) is OfferState.ACCEPTED
    qwen.mode("gives")
    qwen.clear()
    assert asyncio.run(qwen.door().settle(sent)) is OfferState.REFUSED
    assert qwen.given() == 0


def test_a_text_that_was_never_sent_or_died_with_the_agent_is_given_again(qwen: Session) -> None:
    assert asyncio.run(qwen.door().settle(offer())) is OfferState.REFUSED
    qwen.mode("holds")
    sent = offer()
    asyncio.run(qwen.door().offer(sent))
    qwen.kill()
    door = qwen.door()
    assert asyncio.run(door.settle(sent)) is OfferState.REFUSED
    assert "no inbox" in door.closed()


def test_the_door_is_the_agents_own(qwen: Session) -> None:
    """Not that of another session in the user's folder, nor of an agent that this one has started."""
    door = qwen.door()
    assert door.closed() == ""
    record = json.loads(qwen.record().read_text())
    for changed in ({"pid": os.getpid()}, {"kind": "headless"}, {"schemaVersion": 2}, {"sessionId": 3}):
        other = {**record, "startedAt": 0, "ipcPath": "/nonexistent", **changed}
        (qwen.home / "sessions" / f"{other['pid']}-0000000a.json").write_text(json.dumps(other))
        assert asyncio.run(door.offer(offer(str(changed)))) is OfferState.ACCEPTED


@pytest.mark.parametrize("inbound", ["hold", "refuse"])
def test_a_user_who_holds_messages_has_closed_the_door(qwen: Session, inbound: str) -> None:
    (qwen.home / "settings.json").write_text(json.dumps({"agents": {"crossSessionInbound": inbound}}))
    assert qwen.door().closed() == f"you have set agents.crossSessionInbound to {inbound}"
