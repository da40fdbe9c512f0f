"""The control socket: whatever one connection says, the others are served."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from relay.errors import NotAllowed
from relay.session.control import Answer, ControlServer, Request
from relay.session.directory import MAX_LINE


async def _answer(request: Request) -> Answer:
    match request.fields["op"]:
        case "echo":
            return {"said": request.fields.get("text")}
        case "forbidden":
            raise NotAllowed("not for you.")
        case _:
            raise ZeroDivisionError("a fault of ours")


def _talk(path: Path, *lines: bytes) -> list[list[dict[str, Any]]]:
    """What each of `lines` is answered, every one on a connection of its own, one after another."""

    def ask(line: bytes) -> list[dict[str, Any]]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(20)
            channel.connect(str(path))
            channel.sendall(line)
            channel.shutdown(socket.SHUT_WR)
            with channel.makefile("rb") as stream:
                return [json.loads(answer) for answer in stream]

    async def run() -> list[list[dict[str, Any]]]:
        server = ControlServer(str(path), _answer)
        server.listen()
        serving = asyncio.create_task(server.run())
        try:
            return [await asyncio.to_thread(ask, line) for line in lines]
        finally:
            serving.cancel()
            await asyncio.wait({serving})

    return asyncio.run(run())


ECHO = b'{"op": "echo", "text": "hi"}\n'


def test_requests_of_one_connection_are_answered_in_order(home: Path) -> None:
    assert _talk(home / "s", ECHO + b'{"op": "forbidden"}\n' + ECHO) == [
        [{"said": "hi"}, {"error": "not for you.", "type": "NotAllowed"}, {"said": "hi"}]
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000 + b"\n",
        b'{"a":' * 100_000 + b"\n",
        b"no JSON\n",
        b"\xff\xfe\n",
        b"[1]\n",
        b"\0" * (MAX_LINE + 1),
    ],
    ids=["lists", "objects", "words", "bytes", "a list", "endless"],
)
def test_what_is_no_request_is_refused_and_others_are_served(line: bytes, home: Path) -> None:
    refused, answered = _talk(home / "s", line, ECHO)
    assert [(answer["type"], "JSON lines" in answer["error"]) for answer in refused] == [("UsageError", True)]
    assert answered == [{"said": "hi"}]


def test_a_fault_in_answering_is_logged_and_told(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed, answered = _talk(home / "s", b'{"op": "fail"}\n' + ECHO, ECHO)
    assert failed[0]["type"] == "RelayError" and "ZeroDivisionError" in failed[0]["error"]
    assert failed[1:] == answered == [{"said": "hi"}]
    assert len(caplog.records) == 1
