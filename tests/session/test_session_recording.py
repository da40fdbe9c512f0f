"""Recordings of sessions: what the terminal shows, without secrets, despite floods and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from relay.eventbus import EventBus, handles
from relay.features.recorder import Recorder
from relay.lifecycle import SessionBegan, SessionClosed
from relay.place import Place
from relay.recording import store
from relay.recording.asciicast import Cast, CastEvent, Header
from relay.recording.throttle import BURST, RATE
from relay.redaction import Redactor
from relay.settings import Settings
from relay.state.agent_terminal import AgentTerminal
from relay.storage.journal import Journal
from relay.terminal.events import Notify, OutputRead, OutputSkipped, TerminalResized
from session.fake_agent import FakeAgent, ps, settings
from session.test_session_replaced import wait_until_gone
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

# Assembled from parts, so this file contains no secret.
TOKEN = "gh" + "p_" + "a7Qz" * 9
PASSWORD = "hun" + "ter2-deep"
FROM_ENV = "Qz9" + "mellon-friend7"


def parts(relay: Relay, name: str) -> Sequence[store.StoredPart]:
    return latest(relay.home / "state" / "recordings", name, f"{relay.team}")


def latest(folder: Path, name: str, team: str = "default") -> Sequence[store.StoredPart]:
    found = store.recordings(folder, name, team)
    return found[-1].parts if found else ()


def events_of(part: store.StoredPart) -> list[CastEvent]:
    return list(Cast(part.path, strict=True))


def shown(relay: Relay, name: str) -> str:
    """Return everything that the recording of `name` shows so far."""
    return "".join(e.data for p in parts(relay, name) for e in events_of(p) if e.kind == "o")


def files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_running_session_removes_old_recordings(relay: Relay) -> None:
    often = "from relay.features import recorder\nrecorder.SWEEP_EVERY = 0.05\n"
    FakeAgent(relay, "Ann").wrap(env=session_patch(often))
    FakeAgent(relay, "Bob").wrap()
    relay("stop", "Bob")
    (old,) = parts(relay, "Bob")
    os.utime(old.path, (0, 0))
    wait_until(lambda: not parts(relay, "Bob"))
    assert parts(relay, "Ann")


def test_a_session_is_recorded_without_its_secrets(relay: Relay) -> None:
    """R44: secrets that the agent prints are in no file; the journal's entries are beside the recording."""
    ann = FakeAgent(relay, "Ann").wrap(env={"DEPLOY_TOKEN": FROM_ENV, "TERM": "xterm-256color"})
    ann.say(f"first {TOKEN[:20]}", end="")
    ann.say(f"{TOKEN[20:]} \x1b[1mbold\x1b[0m DB_PASSWORD={PASSWORD} and {FROM_ENV}, done")
    ann.say(f"@relay:Nobody use {TOKEN} and {FROM_ENV}")
    wait_until(lambda: ann.events("directive"))
    ann.exit()
    wait_until(ann.ended)
    wait_until_gone(relay, "Ann")
    stars = "*" * len(TOKEN)
    assert f"first {stars} \x1b[1mbold\x1b[0m DB_PASSWORD={'*' * len(PASSWORD)}" in shown(relay, "Ann")
    [part] = parts(relay, "Ann")
    cast = Cast(part.path, strict=True)
    assert cast.header.title.startswith("Ann: ") and list(cast) and cast.skipped == 0
    entries = [json.loads(line) for line in part.events.read_text().splitlines()]
    assert entries[0]["event"] == "session_start"
    assert "session_end" in [entry["event"] for entry in entries]
    assert all(0 <= entry["at"] < 3600 for entry in entries)  # seconds since the start of the recording
    journal = [{k: v for k, v in e.items() if k != "at"} for e in entries]
    assert journal == ann.events()[: len(journal)]
    state = relay.home / "state"
    for secret in (TOKEN, PASSWORD, FROM_ENV):
        left = [p for p in files_with(state, secret) if "ledger" not in p.name and "broker" not in p.parts]
        assert not left  # messages are delivered unchanged: the ledger and the broker contain them
    assert part.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("capture", ["preview", "full"])
def test_output_of_rules_is_kept_beside_the_recording(capture: str, relay: Relay) -> None:
    """R42, R43, R44: head and tail of the output, or all of it, but never a secret."""
    settings(relay, f'hook_output = "{capture}"\n')
    printed = f"head {TOKEN} {'x' * 2000} {FROM_ENV} tail"
    command = f"echo '{printed}'"
    rule = {"hooks": {"SessionStart": [{"type": "command", "command": command}]}}
    (relay.home / "config" / "hooks.json").write_text(json.dumps(rule))
    ann = FakeAgent(relay, "Ann").wrap(env={"DEPLOY_TOKEN": FROM_ENV})
    wait_until(lambda: ann.events("hook_fired"), message=ann.log)
    ann.exit()
    wait_until_gone(relay, "Ann")
    [part] = parts(relay, "Ann")
    entries = [json.loads(line) for line in part.events.read_text().splitlines()]
    [fired] = [entry for entry in entries if entry["event"] == "hook_fired"]
    [shown] = [rule["output_preview"] for rule in fired["rules"]]
    assert shown.startswith("head [secret: github-token] xxx") and shown.endswith(
        "xxx [secret: known] tail\n"
    )
    assert (len(shown) > 2000) == (capture == "full")
    for secret in (TOKEN, FROM_ENV):
        assert not files_with(relay.home / "state", secret)


def test_user_input_is_not_recorded(relay: Relay) -> None:
    """R44: only the terminal's echo, like all output."""
    ann = FakeAgent(relay, "Ann").wrap()
    relay("send", "Ann", "a message")
    ann.receives("a message")
    ann.exit()
    wait_until_gone(relay, "Ann")
    [part] = parts(relay, "Ann")
    assert {event.kind for event in events_of(part)} <= {"o", "r"}


@pytest.mark.own_home
def test_settings_can_turn_recording_off(relay: Relay) -> None:
    settings(relay, 'record = "never"\n')
    ann = FakeAgent(relay, "Ann").wrap("--ready", "hello\n")
    ann.exit()
    wait_until_gone(relay, "Ann")
    assert not (relay.home / "state" / "recordings").exists()


def test_the_recording_of_a_killed_session_has_its_output(relay: Relay) -> None:
    ann = FakeAgent(relay, "Ann").wrap()
    ann.say("A line of the log.\n" * 40)
    wait_until(lambda: parts(relay, "Ann") and "A line" in shown(relay, "Ann"))
    assert parts(relay, "Ann")[0].in_use
    os.kill(ps(relay)[0]["terminal_pid"], signal.SIGKILL)
    wait_until(lambda: not parts(relay, "Ann")[0].in_use)
    assert "A line of the log." in shown(relay, "Ann")


def test_a_recording_continues_across_reloads(relay: Relay) -> None:
    ann = FakeAgent(relay, "Ann").wrap()
    for word in ("one", "two", "three", "four"):
        ann.say(f"word {word}")
        wait_until(lambda word=word: f"word {word}" in shown(relay, "Ann"))
        relay("reload", "Ann")
    wait_until(lambda: len(parts(relay, "Ann")) == 5)
    ann.exit()
    wait_until_gone(relay, "Ann")
    for word in ("one", "four"):
        assert f"word {word}" in relay("replay", "Ann", "--search", f"word {word}").stdout
    played = relay("replay", "Ann").stdout
    assert "word one" in played and "missing" not in played
    assert "session_start" in relay("replay", "Ann", "--events").stdout
    export = relay.home / "out.cast"
    relay("replay", "Ann", "--export", str(export))
    exported = "".join(event.data for event in Cast(export, strict=True))
    assert all(f"word {word}" in exported for word in ("one", "two", "three", "four"))


def test_an_unfinished_private_key_does_not_delay_writing(relay: Relay) -> None:
    """R43, R44: the text after it is on disk when the session is killed; its rows are redacted."""
    row = "MIIE" + "vQ7aZk" * 10
    ann = FakeAgent(relay, "Ann").wrap()
    ann.say("-----BEGIN PRIVATE " + f"KEY-----\n{row}\n{row}\nno such file\n")
    wait_until(lambda: parts(relay, "Ann") and "no such file" in shown(relay, "Ann"))
    os.kill(ps(relay)[0]["terminal_pid"], signal.SIGKILL)
    wait_until(lambda: not parts(relay, "Ann")[0].in_use)
    assert row[:8] not in shown(relay, "Ann") and "*" * len(row) in shown(relay, "Ann")


class Session:
    """A recorder with a clock and a screen that the test controls; needs a running loop."""

    size = 80, 24

    def __init__(self, folder: Path, *, resumed: bool = False, **changed: object) -> None:
        self.now = 100.0
        self.screen: bytes | None = b"\x1b[Hthe screen"
        self.notices: list[str] = []
        self.folder = folder / "recordings"
        self.bus = EventBus()
        self.journal = Journal(folder / "events.jsonl", "0123456789", "Ann", self.bus, publishes=True)
        who = {"team": "default", "name": "Ann", "session": "0123456789"}
        self.bus.add(self)
        self.bus.add(
            Recorder(
                self.bus,
                cast(AgentTerminal, self),
                self.folder,
                Settings(**changed),  # type: ignore[arg-type]
                Header(80, 24, command="claude", env={"TERM": "xterm"}, **who),  # type: ignore[arg-type]
                Redactor(),
                follows=resumed,
                clock=lambda: self.now,
            )
        )
        self.bus.publish(SessionBegan())

    def repaint(self) -> bytes | None:
        return self.screen

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self.notices.append(event.text)

    def output(self, data: bytes) -> None:
        self.bus.publish(OutputRead(data, Place("terminal", 0), 0))

    def say(self, text: str, seconds: float = 0.0) -> None:
        self.now += seconds
        self.output(text.encode("utf-8", "surrogateescape"))

    def parts(self) -> Sequence[store.StoredPart]:
        return latest(self.folder, "Ann")

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop and the clock advance until `condition()` is true."""
        async with asyncio.timeout(60):
            while not condition():
                self.now += 0.1
                await asyncio.sleep(0.01)

    def events(self) -> list[tuple[str, str]]:
        return [(e.kind, e.data) for part in self.parts() for e in events_of(part)]


def run(
    work: Callable[[Session], Awaitable[None]], folder: Path, *, resumed: bool = False, **changed: object
) -> Session:
    """Run `work` with a recorder, then close it."""

    async def on_a_loop() -> Session:
        session = Session(folder, resumed=resumed, **changed)
        await work(session)
        await session.bus.ask(SessionClosed())
        return session

    return asyncio.run(on_a_loop())


def test_sizes_and_invalid_utf8_are_recorded(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        session.say("日本\r\n", 1)
        for byte in "語".encode():
            session.output(bytes([byte]))
        session.output(b"\xff\xfe")
        session.bus.publish(TerminalResized(100, 30))
        session.bus.publish(TerminalResized(100, 30))
        session.say("wide", 1)

    session = run(work, tmp_path)
    [part] = session.parts()
    events = events_of(part)
    output = b"".join(event.encoded for event in events if event.kind == "o")
    assert output == "日本\r\n語".encode() + b"\xff\xfewide"
    assert [(e.time, e.size) for e in events if e.kind == "r"] == [(1, (100, 30))]
    assert events[-1].data == "wide"


def test_a_flood_is_left_out_and_followed_by_the_screen(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        session.say("before\r\n")
        for _ in range(40):
            session.say(("y" * 78 + "\r\n") * 750, 0.01)
        session.screen = None  # in the middle of an escape sequence: no repaint yet
        session.say("\x1b[3", 60)
        session.screen = f"\x1b[Hafter the flood {TOKEN}".encode()
        session.say("1m", 1)
        session.say(" more", 1)

    session = run(work, tmp_path)
    events = session.events()
    [(at, marker)] = [(n, data) for n, (kind, data) in enumerate(events) if kind == "m"]
    assert marker.endswith("MB left out") and 1 < float(marker.split()[0]) < 2.4
    assert sum(len(data) for _, data in events[:at]) <= BURST + RATE
    after = "".join(data for _, data in events[at + 1 :])
    assert after == f"\x18\x1b[!p\x1b[?1049l\x1b[Hafter the flood {'*' * len(TOKEN)} more"


def test_skipped_output_leaves_a_gap_followed_by_the_screen(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        session.say("before")
        session.bus.publish(OutputSkipped(123_456))

    kinds = [(kind, data) for kind, data in run(work, tmp_path).events()]
    assert ("m", "123 kB left out") in kinds and "the screen" in kinds[-1][1]


def test_a_large_recording_continues_in_another_file(tmp_path: Path) -> None:
    """The last two files are kept. Each starts with the screen, so that it can be played alone."""

    async def work(session: Session) -> None:
        for part in (2, 3, 4):
            for number in range(12):
                session.journal.write("step", number=number)
                session.say(f"{number:04}" * 25_000, 1)
            await session.until(lambda part=part: [p for p in session.parts() if p.part == part])  # type: ignore[misc]

    session = run(work, tmp_path, record_megabytes=1)
    assert [part.part for part in session.parts()] == [3, 4]
    for part in session.parts():
        drawn = [each for each in events_of(part) if each.kind == "o"][:4]
        assert 0 < part.path.stat().st_size < 1_400_000
        assert "the screen" in "".join(each.data for each in drawn) and drawn[0].time < 11
    entries = [json.loads(line) for line in session.parts()[0].events.read_text().splitlines()]
    assert [entry["number"] for entry in entries] == list(range(12))
    assert all(0 <= entry["at"] < 30 for entry in entries)
    assert len(list(session.folder.rglob("*"))) == 1 + 4


def test_a_full_disk_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording continues with the screen once there is space."""
    real = os.write

    async def work(session: Session) -> None:
        session.say("x" * 600)
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
            await session.until(lambda: session.notices)
            session.say("lost")
            for _ in range(3):
                session.say("lost", 31)
        session.say("in the screen already", 31)
        session.say("and on")

    session = run(work, tmp_path)
    assert len(session.notices) == 1
    assert "No space left" in session.notices[0] and "record" in session.notices[0]
    assert [part.part for part in session.parts()] == [1]
    assert session.events() == [("o", "\x18\x1b[!p\x1b[?1049l\x1b[Hthe screen"), ("o", "and on")]


def test_a_disk_with_space_for_a_header_only_keeps_earlier_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each retry starts a part, whose first flush fails. A failure after a success is reported again."""
    real = os.write

    async def fail(session: Session, retries: int) -> None:
        failures: list[int] = []

        def header_only(fd: int, data: bytes) -> int:
            if data.startswith(b'{"version"'):
                return real(fd, data)
            failures.append(fd)
            return real(fd, data[:3])

        with monkeypatch.context() as full:
            full.setattr(os, "write", header_only)
            for retry in range(1, retries + 1):
                session.say("lost\r\n", 31)
                await session.until(lambda retry=retry: len(failures) >= retry)  # type: ignore[misc]

    async def work(session: Session) -> None:
        session.say("hello\r\n")
        await session.until(session.events)
        await fail(session, 4)
        assert len(session.notices) == 1
        session.say("in the screen already", 31)
        await session.until(lambda: len(session.parts()) == 2 and len(session.events()) == 2)
        await fail(session, 2)
        assert len(session.notices) == 2

    session = run(work, tmp_path)
    assert session.events()[0] == ("o", "hello\r\n")
    assert [part.part for part in session.parts()] == [1, 2]
    assert len(list(session.folder.rglob("*.*"))) == 4


def test_successive_sessions_keep_earlier_recordings(tmp_path: Path) -> None:
    for number in range(5):

        async def work(session: Session, number: int = number) -> None:
            session.say("the screen is repainted")
            session.say(f"session {number}", 1)

        session = run(work, tmp_path, resumed=number > 0)
    cast = Cast(*(part.path for part in session.parts()), strict=True)
    assert [part.header.part for part in cast.parts] == [1, 2, 3, 4, 5] and not cast.truncated
    texts = [event.data for event in cast if event.data.startswith("session")]
    assert texts == [f"session {number}" for number in range(5)]


def test_secrets_are_redacted_after_a_resize_during_a_recording_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next part is searched for secrets at the new size: one is drawn in two pieces on the right."""
    real = os.write

    async def work(session: Session) -> None:
        session.say("x" * 600)
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
            await session.until(lambda: session.notices)
            session.bus.publish(TerminalResized(200, 24))
        session.say("in the screen already", 31)
        session.say(f"\x1b[2;101H{TOKEN[:10]}\x1b[2;111H{TOKEN[10:]}\r\n")

    session = run(work, tmp_path)
    assert session.events()[-1][1].count("*") == len(TOKEN)
    assert not files_with(tmp_path, TOKEN[10:])


def test_a_folder_that_cannot_be_created_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("in the way")

    async def work(session: Session) -> None:
        session.say("hello")

    session = run(work, tmp_path)
    assert len(session.notices) == 1 and "the session is not being recorded" in session.notices[0]


def test_a_starting_session_removes_old_recordings(tmp_path: Path) -> None:
    old = store.path_of(tmp_path / "recordings", "default", "Old", "abc", 1_000_000_000.0)
    old.parent.mkdir(parents=True)
    old.write_text("{}\n")
    os.utime(old, (1_000_000_000, 1_000_000_000))

    async def work(session: Session) -> None:
        await session.until(lambda: not old.exists())

    run(work, tmp_path)
