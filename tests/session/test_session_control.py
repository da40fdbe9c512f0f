"""The control socket: whatever one connection sends, other connections are served."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from relay.control import server
from relay.control.server import OWN, USER, Answer, ControlServer, Request
from relay.control.sessions import MAX_LINE, call
from relay.errors import NotAllowed, RelayError
from support import listening

WAITING = asyncio.Event()


async def _answer(request: Request) -> Answer:
    match request.fields["op"]:
        case "wait":
            await WAITING.wait()
            return {}
        case "echo":
            return {"said": request.fields.get("text")}
        case "forbidden":
            raise NotAllowed("not for you.")
        case _:
            raise ZeroDivisionError("a relay bug")


def _talk(path: Path, *lines: bytes) -> list[list[dict[str, Any]]]:
    """Send each of `lines` on a separate connection, one after another; return the answers to each."""

    def ask(line: bytes) -> list[dict[str, Any]]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(20)
            channel.connect(str(path))
            channel.sendall(line)
            channel.shutdown(socket.SHUT_WR)
            with channel.makefile("rb") as stream:
                return [json.loads(answer) for answer in stream]

    async def run() -> list[list[dict[str, Any]]]:
        serving = asyncio.create_task(ControlServer(listening(path), _answer).run())
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
def test_an_invalid_request_is_refused_and_others_are_served(line: bytes, home: Path) -> None:
    refused, answered = _talk(home / "s", line, ECHO)
    assert [(answer["type"], "JSON lines" in answer["error"]) for answer in refused] == [("UsageError", True)]
    assert answered == [{"said": "hi"}]


def test_an_internal_error_is_logged_and_reported(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed, answered = _talk(home / "s", b'{"op": "fail"}\n' + ECHO, ECHO)
    assert failed[0]["type"] == "RelayError" and "ZeroDivisionError" in failed[0]["error"]
    assert failed[1:] == answered == [{"said": "hi"}]
    assert len(caplog.records) == 1


def _use_up_descriptors() -> list[int]:
    highest = max(int(fd.name) for fd in Path("/dev/fd").iterdir())
    return [os.dup(0) for _ in range(highest)]


def test_a_client_waits_while_no_descriptor_is_free(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def run() -> tuple[str, bytes]:
        control_server = ControlServer(listening(path), _answer)
        warnings: asyncio.Queue[str] = asyncio.Queue()
        listener = logging.Handler()
        listener.emit = lambda record: warnings.put_nowait(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("relay.control.server").addHandler(listener)
        serving = asyncio.create_task(control_server.run())
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            spare = _use_up_descriptors()
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, limits[1]))
            try:
                channel.connect(str(path))
                channel.sendall(b'{"op": "echo", "text": "late"}\n')
                async with asyncio.timeout(20):
                    warning = await warnings.get()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for fd in spare:
                    os.close(fd)
                logging.getLogger("relay.control.server").removeHandler(listener)
            channel.setblocking(False)
            async with asyncio.timeout(20):
                answer = await asyncio.get_running_loop().sock_recv(channel, 1000)
        serving.cancel()
        await asyncio.wait({serving})
        return warning, answer

    warning, answer = asyncio.run(run())
    assert warning.startswith("the control socket accepts no connections for now")
    assert answer == b'{"said": "late"}\n'


def test_a_connection_just_as_the_session_ends_is_harmless(tmp_path: Path) -> None:
    path, errors = tmp_path / "s", list[object]()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        serving = asyncio.create_task(ControlServer(listening(path), _answer).run())
        ended, end = socket.socketpair()
        with ended, end, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late:
            loop.add_reader(ended, serving.cancel)
            await asyncio.sleep(0)
            end.send(b"x")  # the loop sees this in the same iteration as the connection, and before it
            late.connect(str(path))
            await asyncio.wait({serving})
            loop.remove_reader(ended)

    asyncio.run(run())
    assert errors == []


def test_a_long_request_is_accepted_only_from_the_sessions_own_agent(home: Path) -> None:
    """S11: no other process can fill the session's memory with an endless hook request."""
    start = b'{"op": "hook", "payload": "' + b"x" * (2 * MAX_LINE)

    def refused(is_agents: bool) -> bytes:
        async def run() -> bytes:
            control_server = ControlServer(
                listening(home / f"s{is_agents}"), _answer, lambda fds: [OWN if is_agents else USER]
            )
            serving = asyncio.create_task(control_server.run())
            reader, writer = await asyncio.open_unix_connection(str(home / f"s{is_agents}"))
            writer.write(start)
            if is_agents:
                writer.write(b'"}\n')
            line = await reader.readline()
            writer.close()
            serving.cancel()
            await asyncio.wait({serving})
            return line

        return asyncio.run(run())

    assert b"too long" in refused(False)
    assert b"too long" not in refused(True)


OPENED: list[asyncio.StreamWriter] = []


async def _open(path: Path, *sent: bytes) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection for each of `sent`, and send it."""
    opened = [await asyncio.open_unix_connection(str(path)) for _ in sent]
    OPENED.extend(writer for _, writer in opened)
    for (_, writer), data in zip(opened, sent, strict=True):
        writer.write(data)
        await writer.drain()
    return opened


def _serving(
    path: Path, test: Callable[[], Coroutine[Any, Any, None]], *, owners: Sequence[str] = (USER,)
) -> None:
    """Run `test` while a server serves. owners: of the connections, in turn."""
    turn = itertools.cycle(owners)

    async def run() -> None:
        global WAITING
        WAITING = asyncio.Event()
        control = ControlServer(listening(path), _answer, lambda fds: [next(turn) for _ in fds])
        serving = asyncio.create_task(control.run())
        try:
            async with asyncio.timeout(60):
                await test()
        finally:
            while OPENED:
                OPENED.pop().close()
            serving.cancel()
            await asyncio.wait({serving})

    asyncio.run(run())


def test_unfinished_requests_share_one_memory_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S11: the limit is for all connections together, and for the session's own agent as well."""
    monkeypatch.setattr(server, "MAX_HELD", 3 * MAX_LINE)
    path, start = home / "s", b'{"op": "hook", "payload": "' + b"x" * (2 * MAX_LINE)

    async def test() -> None:
        # Together, the two exceed the limit by one byte.
        opened = await _open(path, start, start[: 3 * MAX_LINE + 1 - len(start)])
        lines = [asyncio.create_task(reader.readline()) for reader, _ in opened]
        done, _ = await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
        refused = json.loads(done.pop().result())
        assert "too much is being sent at once" in refused["error"]
        for _, writer in opened:
            writer.close()
        for line in lines:
            line.cancel()
        ((reader, writer),) = await _open(path, start + b'"}\n')
        assert "ZeroDivisionError" in json.loads(await reader.readline())["error"], "the limit is free again"
        writer.close()

    _serving(path, test, owners=[OWN])


SAID = b'{"said": "hi"}\n'
WAIT = b'{"op": "wait"}\n'


def test_beyond_the_maximum_an_idle_connection_is_closed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S11: the oldest one; if there is none, the new one waits."""
    monkeypatch.setattr(server, "MOST", 3)
    path = home / "s"

    async def test() -> None:
        _, (old, _), (new, _) = await _open(path, WAIT, ECHO, ECHO)
        assert [await old.readline(), await new.readline()] == [SAID, SAID]
        await _open(path, WAIT)
        assert await old.read() == b""
        await _open(path, WAIT)
        assert await new.read() == b""
        ((late, _),) = await _open(path, ECHO)
        await asyncio.sleep(0)
        WAITING.set()
        assert await late.readline() == SAID

    _serving(path, test)


def test_the_agent_with_the_most_connections_gives_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user nor the session's own agent has to wait for it."""
    monkeypatch.setattr(server, "MOST", 6)
    monkeypatch.setattr(server, "SHARE", 2)
    path = home / "s"

    async def test() -> None:
        (own, _), (user, _) = await _open(path, ECHO, ECHO)
        assert [await own.readline(), await user.readline()] == [SAID, SAID]
        (first, _), *_, (idle, _) = await _open(path, WAIT, WAIT, WAIT, ECHO)
        assert await idle.readline() == SAID
        for gives_way in (idle, first):
            ((reader, _),) = await _open(path, ECHO)
            assert await reader.readline() == SAID
            assert await gives_way.read() == b""
        assert not own.at_eof() and not user.at_eof()

    _serving(path, test, owners=[OWN, USER, *["web/Eve"] * 4, USER])


@pytest.mark.parametrize("sent", [b'{"op": ', ECHO], ids=["unfinished", "answered"])
def test_a_client_that_sends_no_request_is_disconnected(
    home: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """S11"""
    monkeypatch.setattr(server, "IDLE", 0.5)
    path = home / "s"

    async def test() -> None:
        ((reader, writer),) = await _open(path, sent)
        assert await reader.read() == (SAID if sent == ECHO else b"")
        writer.close()

    _serving(path, test)


def test_another_users_process_is_disconnected(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "peer", lambda fd: (0, os.getuid() + 1))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):  # closed without being read
        _talk(home / "s", ECHO)


def test_too_many_descriptors_are_refused(home: Path) -> None:
    path = home / "s"

    async def test() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.connect(str(path))
            socket.send_fds(channel, [b"{"], [0] * 6)
            socket.send_fds(channel, [b'"'], [0] * 6)
            channel.setblocking(False)
            assert b"too many descriptors" in await loop.sock_recv(channel, 1000)

    _serving(path, test)


@pytest.mark.parametrize(
    "answer", [b'{"info": {}}', b"{}", b"[]", b"5", b"no JSON", b"[" * 5000, b'{"error": 1}']
)
def test_a_malformed_answer_is_a_relay_error(home: Path, answer: bytes) -> None:
    """S13: it is never a KeyError."""
    path = home / "s"
    listener = socket.socket(fileno=listening(path))

    def serve() -> None:
        channel, _ = listener.accept()
        with channel:
            channel.recv(1000)
            channel.sendall(answer + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, pytest.raises(RelayError):
        call(path, {"op": "info"})["info"]["id"]
    thread.join()
