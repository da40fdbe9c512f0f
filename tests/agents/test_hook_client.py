"""The program that agents call: what it sends and prints, and that it never disturbs them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.agents import hook_client
from relay.agents.hook_setup import call

Json = dict[str, Any]


class FakeSession:
    """Answers one event at `path` with `answers`, piece by piece, and keeps what it was told.

    leaves: it ends as soon as it has answered.
    """

    def __init__(self, path: Path, *answers: bytes, leaves: bool = False) -> None:
        self.path = str(path)
        self._leaves = leaves
        self.told: list[Json] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        channel, _ = self._listener.accept()
        with channel, channel.makefile("rb") as lines:
            self.told.append(json.loads(lines.readline()))
            for answer in self._answers:
                channel.sendall(answer)
            if not self._leaves:
                self.told += [json.loads(line) for line in lines]

    def end(self) -> list[Json]:
        """What it was told, once the client has gone."""
        self._thread.join(20)
        self._listener.close()
        return self.told


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "s.sock"


def run(path: Path | str, *words: str, payload: bytes = b"{}") -> subprocess.CompletedProcess[bytes]:
    command = call("claude", str(path), *words)
    return subprocess.run(command, input=payload, capture_output=True, timeout=60, check=False)


def silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


def line(answer: Json) -> bytes:
    return json.dumps(answer).encode() + b"\n"


VERDICT = '{"decision": "block", "reason": "no “way”\\n"}'


def test_a_decider_prints_what_the_session_answers(path: Path) -> None:
    session = FakeSession(path, b" ", line({"stdout": VERDICT, "code": 0}))
    done = run(path, "decide", "PreToolUse", payload='{"prompt": "“x”\\n"}'.encode())
    assert (done.stdout.decode(), done.stderr, done.returncode) == (VERDICT, b"", 0)
    assert session.end() == [
        {
            "op": "hook",
            "agent": "claude",
            "event": "PreToolUse",
            "decide": True,
            "payload": '{"prompt": "“x”\\n"}',
        },
        {"op": "hook_printed"},
    ]


def test_an_observer_prints_nothing_whatever_it_is_answered(path: Path) -> None:
    """R92"""
    session = FakeSession(path, b" ", line({"stdout": VERDICT, "code": 0}))
    assert silent(run(path, "pretooluse"))
    (told,) = session.end()
    assert (told["event"], told["decide"]) == ("pretooluse", False)


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (b" ",),
        (b" ", b'{"stdout": "cut off'),
        (b" ", line({"error": "not for you", "type": "NotAllowed"})),
        (b" ", b'{"stdout": 7}\n'),
        (b" ", b'{"stdout": "\\x"}\n'),
        (b"\xff\xfe\n",),
    ],
    ids=["closed", "taken and closed", "cut off", "refused", "a number", "bad escape", "not UTF-8"],
)
def test_no_answer_is_nothing_printed(path: Path, answers: tuple[bytes, ...]) -> None:
    session = FakeSession(path, *answers, leaves=True)
    assert silent(run(path, "decide", "Stop"))
    assert len(session.end()) == 1


def test_a_session_that_has_gone_costs_nothing(path: Path) -> None:
    """R92: no socket, or one at which nobody listens."""
    assert silent(run(path, "decide", "Stop"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        assert silent(run(path, "decide", "Stop"))
    assert silent(run("x" * 500, "decide", "Stop"))


def test_the_first_event_waits_for_a_session_that_is_about_to_listen(path: Path) -> None:
    """R91: agents start before their sessions do."""
    process = subprocess.Popen(
        call("claude", str(path), "decide", "SessionStart"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(str(path))  # nobody listens at it yet
        assert process.stdin is not None
        process.stdin.write(b"{}")
        process.stdin.flush()
    path.unlink()
    session = FakeSession(path, b" ", line({"stdout": "hello", "code": 0}))
    assert process.communicate(timeout=60)[0] == b"hello"
    assert session.end()[0]["event"] == "SessionStart"


def test_the_first_event_waits_no_longer_than_any_other(path: Path) -> None:
    code = FROZEN.format("TAKEN", str(path)).replace("Stop", "SessionStart")
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"", capture_output=True, timeout=60, check=False
    )
    assert silent(done)


FROZEN = (
    "from relay.agents import hook_client; hook_client.{} = 0.01; "
    "hook_client.hook('Stop', {!r}, 'claude', decide=True)"
)


@pytest.mark.parametrize("limit", ["TAKEN", "ANSWER"])
def test_a_frozen_session_is_not_waited_for(path: Path, limit: str) -> None:
    """R92: one that never takes the event, and one that never answers it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        code = FROZEN.format(limit, str(path))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.close()
        channel, _ = listener.accept()
        with channel:
            if limit == "ANSWER":
                channel.sendall(b" ")
            assert process.wait(timeout=60) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            assert process.stdout.read() + process.stderr.read() == b""


def test_standard_input_that_never_ends_is_not_waited_for(path: Path) -> None:
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", FROZEN.format("TAKEN", str(path))],
            stdin=read,
            capture_output=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(read)
        os.close(write)
    assert silent(done)


def test_a_payload_of_five_megabytes_arrives(path: Path) -> None:
    text = "“line” \\ \x01\n" * 400_000
    payload = json.dumps({"tool_input": {"content": text}}, ensure_ascii=False).encode()
    session = FakeSession(path, b" ", line({"stdout": "{}", "code": 0}))
    assert run(path, "decide", "PreToolUse", payload=payload).stdout == b"{}"
    assert json.loads(session.end()[0]["payload"])["tool_input"]["content"] == text


def test_of_what_is_too_long_the_session_hears_that_it_was(path: Path) -> None:
    """R36: no call of a tool gets around rules by its length."""
    session = FakeSession(path, b'{"stdout": "{}"}\n')
    assert (
        run(path, "decide", "PreToolUse", payload=b'{"x": "' + b"a" * hook_client.MAX_PAYLOAD + b'"}').stdout
        == b"{}"
    )
    assert session.end()[0]["payload"] == ""


def test_bytes_that_are_no_text_are_sent_as_what_can_be_read(path: Path) -> None:
    """R87"""
    session = FakeSession(path, b" ", line({"stdout": "", "code": 0}))
    assert silent(run(path, "decide", "Stop", payload=b'\xff{"a"\x00'))
    assert session.end()[0]["payload"] == '\ufffd{"a"\x00'


def test_an_agent_that_reads_no_more_is_not_told(path: Path) -> None:
    session = FakeSession(path, b" ", line({"stdout": "x" * 100_000, "code": 0}))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            call("claude", str(path), "decide", "Stop"),
            input=b"{}",
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(session.end()) == 1, "a reply that went nowhere is not reported as printed"


@pytest.mark.parametrize("words", [(), ("decide",), ("a", "b", "c")])
def test_a_wrong_command_line_disturbs_nobody(path: Path, words: tuple[str, ...]) -> None:
    assert silent(run(path, *words))


def test_it_starts_with_what_is_built_in() -> None:
    """R97, and the speed of `relay hook`: no json, socket, os, re or site."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", hook_client.__file__],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "_json" in loaded
    assert not loaded & {"json", "socket", "os", "re", "site", "enum", "signal", "asyncio", "relay"}
