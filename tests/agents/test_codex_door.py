"""The door of Codex, at a small program with such a queue (tests/fakes/codex_queue.py)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from relay.agents import hook_setup, kinds
from relay.agents.door import Offer, OfferState, Site
from relay.agents.kinds import _codex_door
from relay.agents.kinds._codex_door import CodexDoor
from relay.agents.kinds.codex import PROGRAM
from support import eventually, wait_until

FAKE = Path(__file__).parent.parent / "fakes" / "codex_queue.py"
MARK = "[/relay 3f9a41c7]"


class Agent:
    """A running agent: this process has the locks of its conversations."""

    def __init__(self, folder: Path, locks: ExitStack) -> None:
        self.folder = folder
        self.home = folder / "home"
        (self.home / "thread-writer-locks").mkdir(parents=True)
        self._locks = locks
        self.fill([])
        self.mode("queues")
        (folder / PROGRAM).write_text(str(FAKE))
        self.thread = self.turns_to()

    def mode(self, mode: str) -> None:
        (self.home / "mode").write_text(mode)

    def turns_to(self, thread: str = "", *, at: int = 0) -> str:
        """Take the lock of a conversation, a new one by default; return its id."""
        thread = thread or str(uuid.uuid4())
        file = self.home / "thread-writer-locks" / f"{thread}.lock"
        lock = os.open(file, os.O_CREAT | os.O_RDWR)
        self._locks.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(file, (at, at))
        return thread

    def fill(self, queue: list[dict[str, object]]) -> None:
        (self.home / "queue.json").write_text(json.dumps(queue))

    def queue(self) -> list[str]:
        return [each["input"][0]["text"] for each in json.loads((self.home / "queue.json").read_text())]

    def door(self) -> CodexDoor:
        """Return the door, as each of relay's sessions makes it."""
        env = {"CODEX_HOME": str(self.home), "PATH": os.environ["PATH"]}
        site = Site(env, str(self.folder), "/nonexistent", lambda pid: pid == os.getpid(), self.thread)
        door = kinds.find("codex").door(site)
        assert isinstance(door, CodexDoor)
        return door


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[Agent]:
    with ExitStack() as locks:
        yield Agent(tmp_path, locks)


def offer(text: str = "hello") -> Offer:
    return Offer(str(uuid.uuid4()), f"[relay 3f9a41c7 from Bob] {text} {MARK}", MARK, "Bob")


@pytest.mark.parametrize("text", ['/clear\n!cmd "@file" \\', "漢字 👩‍👩‍👧" * 3_000], ids=["signs", "long"])
def test_a_text_is_queued_whole_and_can_be_withdrawn(codex: Agent, text: str) -> None:
    """Also by the next of relay's sessions, from behind those of its user."""
    user = [{"threadId": codex.thread, "id": str(n), "input": [{"text": f"user {n}"}]} for n in range(5)]
    codex.fill(user)
    sent = offer(text)
    assert asyncio.run(codex.door().offer(sent)) is OfferState.ACCEPTED
    assert codex.queue()[-1] == sent.text
    assert asyncio.run(codex.door().settle(sent)) is OfferState.REFUSED
    assert codex.queue() == [f"user {n}" for n in range(5)]


def test_a_text_that_its_conversation_has_taken_cannot_be_withdrawn(codex: Agent) -> None:
    sent = offer()
    asyncio.run(codex.door().offer(sent))
    codex.fill([])
    assert asyncio.run(codex.door().settle(sent)) is OfferState.UNKNOWN


@pytest.mark.parametrize(
    ("mode", "state", "queued"),
    [("refuses", OfferState.REFUSED, 0), ("dies", OfferState.UNKNOWN, 1)],
)
def test_what_became_of_a_text(codex: Agent, mode: str, state: OfferState, queued: int) -> None:
    codex.mode(mode)
    sent = offer()
    assert asyncio.run(codex.door().offer(sent)) is state
    assert len(codex.queue()) == queued
    codex.mode("queues")
    settled = OfferState.REFUSED if queued else OfferState.UNKNOWN
    assert asyncio.run(codex.door().settle(sent)) is settled
    assert codex.queue() == []


def test_a_server_that_hangs_is_ended(codex: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codex_door, "END_TIMEOUT", 0.1)
    codex.mode("hangs")

    note = codex.home / "pid"

    async def main() -> None:
        offering = asyncio.create_task(codex.door().offer(offer()))
        await eventually(lambda: note.exists() and note.read_text())
        offering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await offering

    asyncio.run(main())
    wait_until(lambda: not Path("/proc", note.read_text()).exists())


def test_without_a_program_or_an_offer_nothing_was_queued(codex: Agent) -> None:
    assert asyncio.run(codex.door().settle(offer())) is OfferState.REFUSED
    (codex.folder / PROGRAM).write_text("/nonexistent")
    assert asyncio.run(codex.door().offer(offer())) is OfferState.REFUSED
    (codex.folder / PROGRAM).unlink()
    assert "no queue" in codex.door().closed()


def test_the_door_is_that_of_the_conversation_on_the_screen(codex: Agent) -> None:
    """/new and /resume take a lock, and no hook reports them before the next prompt."""
    first, door = codex.thread, codex.door()
    assert door.closed() == ""
    second = codex.turns_to(at=10)
    assert "no prompt yet" in door.closed()
    door.site.session_id = second
    assert door.closed() == ""
    os.utime(codex.home / "thread-writer-locks" / f"{first}.lock", (20, 20))
    assert "no prompt yet" in door.closed()
    (codex.home / "thread-writer-locks" / f"{uuid.uuid4()}.lock").touch()  # of another process
    door.site.session_id = first
    assert door.closed() == ""


def test_a_text_is_withdrawn_when_its_user_turns_to_another_conversation(
    codex: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_codex_door, "LOOK_EVERY", 0.01)
    sent, door = offer(), codex.door()

    async def refused() -> bool:
        return await door.settle(sent) is OfferState.REFUSED

    async def main() -> None:
        assert await door.offer(sent) is OfferState.ACCEPTED
        watch = asyncio.create_task(door.delivered(sent))
        codex.turns_to(at=10)
        await eventually(lambda: not codex.queue())
        await eventually(refused)
        assert not watch.done()
        watch.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "words", "flags", "door"),
    [
        ("0.171.0", [], ["--no-daemon"], True),
        ("0.169.0", ["--no-daemon", "resume"], [], True),
        ("0.168.0", [], [], False),
        ("0.171.0", ["--remote", "ws://127.0.0.1:1"], [], False),
        ("0.171.0", ["--remote=unix://"], [], False),
    ],
)
def test_a_version_with_a_queue_runs_without_the_shared_daemon(
    version: str, words: list[str], flags: list[str], door: bool, tmp_path: Path
) -> None:
    """The daemon would have the conversation, and outlive the run."""
    package = tmp_path / "@openai" / "codex"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "@openai/codex", "version": version}))
    program = package / "codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    run = str(tmp_path / "runs" / "run")
    prepared = hook_setup.prepare("codex", [str(program), *words], {"PATH": "/bin"}, run, "/s")
    assert prepared.command[1 : 1 + len(flags)] == flags
    assert prepared.command.count("--no-daemon") == ("--no-daemon" in [*words, *flags])
    assert Path(run, PROGRAM).exists() is door
