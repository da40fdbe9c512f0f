"""Claude Code's inbox: its registry, its frames and its settings."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from relay.agents import kinds
from relay.agents.door import SETTING_LOOK_EVERY, Offer, OfferState, Site
from relay.agents.hook_setup import prepare
from relay.agents.kinds import _claude_door
from relay.agents.kinds._claude_door import ClaudeDoor
from relay.agents.kinds.claude import inbound

CLAUDE = kinds.find("claude")
TEXT = "[relay 3f9a41c7 from Bob] hello [/relay 3f9a41c7]"
OFFER = Offer("6f8f3f5e-0000-4000-8000-000000000000", TEXT, "[/relay 3f9a41c7]", "Bob")


def door(folder: Path, *, session: str = "s1", owns: bool = True) -> ClaudeDoor:
    env = {"CLAUDE_CONFIG_DIR": str(folder), "PWD": str(folder)}
    return ClaudeDoor(Site(env, str(folder), "", lambda _: owns, session))


def register(folder: Path, **fields: object) -> None:
    (folder / "sessions").mkdir(exist_ok=True)
    entry = {"pid": os.getpid(), "sessionId": "s1", "messagingSocketPath": str(folder / "in.sock")}
    (folder / "sessions" / f"{os.getpid()}.json").write_text(json.dumps({**entry, **fields}))


def test_the_door_is_that_of_the_agents_own_process_and_conversation(tmp_path: Path) -> None:
    assert "no messaging socket" in door(tmp_path).closed()
    register(tmp_path)
    assert door(tmp_path).closed() == ""
    assert "hooks have not named" in door(tmp_path, session="").closed()
    assert door(tmp_path, session="s2").closed() != ""
    assert door(tmp_path, owns=False).closed() != ""
    register(tmp_path, messagingSocketPath=None)
    assert door(tmp_path).closed() != ""
    (tmp_path / "sessions" / f"{os.getpid()}.json").write_text("{cut o")
    assert door(tmp_path).closed() != ""


@pytest.mark.parametrize(
    ("status", "idle"), [("idle", True), ("busy", False), ("waiting", False), (None, None)]
)
def test_it_is_idle_if_its_registry_says_so(tmp_path: Path, status: str | None, idle: bool | None) -> None:
    register(tmp_path, status=status)
    assert door(tmp_path).idle() is idle


def test_a_frame_names_the_sender_and_guards_against_another_session(tmp_path: Path) -> None:
    register(tmp_path)
    got: list[bytes] = []

    async def main() -> OfferState:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.append(await reader.read())
            writer.close()

        async with await asyncio.start_unix_server(take, tmp_path / "in.sock"):
            return await door(tmp_path).offer(OFFER)

    assert asyncio.run(main()) is OfferState.ACCEPTED
    frame = json.loads(got[0])
    assert (frame["session_id"], frame["msg_id"]) == ("s1", OFFER.id)
    content = frame["message"]["content"]
    assert content == f'<cross-session-message from-name="Bob">\n{TEXT}\n</cross-session-message>'
    payload = json.dumps(
        {"hook_event_name": "UserPromptSubmit", "prompt": f"Another says:\n{content}\n\nMore."}
    )
    event = CLAUDE.parse("", payload)
    assert event is not None
    assert event.prompt == TEXT


def test_a_closed_socket_refuses(tmp_path: Path) -> None:
    register(tmp_path)
    assert asyncio.run(door(tmp_path).offer(OFFER)) is OfferState.REFUSED


def test_it_takes_only_so_many_texts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_claude_door, "BURST", 3)
    register(tmp_path)
    its = door(tmp_path)

    async def main() -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_unix_server(take, tmp_path / "in.sock"):
            for _ in range(3):
                assert its.pause() == 0
                await its.offer(OFFER)
            assert 0 < its.pause() <= _claude_door.REFILL

    asyncio.run(main())


def test_only_what_the_model_got_counts_as_told(tmp_path: Path) -> None:
    its = door(tmp_path)

    def told(**entry: object) -> bool:
        return OFFER.mark in its.told(json.dumps(entry).encode())

    assert told(type="user", message={"role": "user", "content": f"x {TEXT}"})
    assert told(type="user", message={"role": "user", "content": [{"type": "text", "text": TEXT}]})
    assert told(type="attachment", attachment={"type": "queued_command", "prompt": TEXT})
    assert not told(type="queue-operation", operation="enqueue", content=TEXT)
    assert not told(type="assistant", message={"content": [{"type": "text", "text": TEXT}]})
    assert its.told(b'{"type": "user", "message": "[/relay 3f9a41c7] cut') == ""


def test_a_change_of_the_setting_counts_though_not_every_question_reads_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.0
    monkeypatch.setattr("relay.agents.door.time", SimpleNamespace(monotonic=lambda: now))
    its = door(tmp_path)
    assert its.held() == ""
    (tmp_path / "settings.json").write_text('{"crossSessionInbound": "hold"}')
    assert its.held() == ""
    now += SETTING_LOOK_EVERY
    assert its.held() == "you have set crossSessionInbound to hold"


@pytest.mark.parametrize("name", ["user", "project", "local"])
def test_the_strictest_setting_for_messages_of_other_sessions_counts(tmp_path: Path, name: str) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    files = {
        "user": home / ".claude" / "settings.json",
        "project": work / ".claude" / "settings.json",
        "local": work / ".claude" / "settings.local.json",
    }
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"crossSessionInbound": "accept"}')
    env = {"HOME": str(home), "PWD": str(work)}
    assert inbound(env) == "accept"
    files[name].write_text('{"crossSessionInbound": "hold"}')
    assert inbound(env) == "hold"
    for file in files.values():
        file.unlink()
    assert inbound(env) == ""


@pytest.mark.parametrize(
    ("version", "theirs", "ours"),
    [("2.1.332", {}, "accept"), ("2.1.332", {"crossSessionInbound": "hold"}, None), ("2.1.197", {}, None)],
)
def test_relay_accepts_messages_only_if_the_user_has_set_nothing(
    tmp_path: Path, version: str, theirs: dict[str, str], ours: str | None
) -> None:
    program = tmp_path / "package" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    manifest = {"name": "@anthropic-ai/claude-code", "version": version}
    (program.parent / "package.json").write_text(json.dumps(manifest))
    (tmp_path / "settings.json").write_text(json.dumps(theirs))
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path), "PWD": str(tmp_path), "PATH": "/usr/bin:/bin"}
    prepared = prepare("claude", [str(program)], env, str(tmp_path / "run" / "bridge"), "/nowhere/a.sock")
    settings = json.loads(Path(prepared.command[2]).read_text())
    assert settings.get("crossSessionInbound") == ours
