"""The shim's own socket: whatever is sent to it, the agent's terminal and other clients are served."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.shim import control
from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to count open descriptors")


class Alice:
    """An agent, and its shim."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.fake = FakeAgent(relay, "Alice").wrap()
        self.row: dict[str, Any] = wait_until(
            lambda: next((row for row in ps(relay) if row["state"] != "unresponsive"), None)
        )
        self.path = relay.home / "run" / "sessions" / "default" / "alice.shim"

    def descriptors(self) -> int:
        """Return the number of the shim's open file descriptors."""
        return len(list(Path(f"/proc/{self.row['terminal_pid']}/fd").iterdir()))

    def status(self) -> dict[str, Any]:
        with self.connect() as channel, channel.makefile("rb") as stream:
            channel.sendall(b'{"op": "status"}\n')
            return dict(json.loads(stream.readline()))

    def connect(self) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(60)
        channel.connect(str(self.path))
        return channel

    def assert_working(self) -> None:
        """Check that its terminal is served, and `status` and `reload` are answered."""
        self.fake.say("still here")
        assert self.status()["agent_pid"] == self.row["agent_pid"]
        self.relay("reload", "Alice")


@pytest.fixture
def alice(relay: Relay) -> Iterator[Alice]:
    yield Alice(relay)


def test_unfinished_requests_are_limited_in_number_and_size(alice: Alice) -> None:
    """S11: the shim keeps MOST connections, each of which may send MAX_REQUEST bytes."""
    before, opened = alice.descriptors(), list[socket.socket]()
    try:
        for _ in range(4 * control.MOST):
            opened.append(alice.connect())
            opened[-1].sendall(b'{"op": "status", "x": "' + b"x" * 1000)
        alice.assert_working()
        wait_until(lambda: alice.descriptors() <= before + control.MOST + 4)
        with alice.connect() as endless, pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                endless.sendall(b"x" * control.MAX_REQUEST)
    finally:
        for channel in opened:
            channel.close()
    wait_until(lambda: alice.descriptors() <= before + 2)
    alice.assert_working()


def test_a_flood_of_descriptors_is_closed(alice: Alice) -> None:
    before = alice.descriptors()
    with alice.connect() as channel:
        with contextlib.suppress(OSError):
            for _ in range(50):
                socket.send_fds(channel, [b" "], [0] * 8)
        with contextlib.suppress(ConnectionResetError):
            assert channel.recv(1) == b""
        wait_until(lambda: alice.descriptors() <= before + 2)
        alice.assert_working()


def test_a_connection_gets_only_one_answer(alice: Alice) -> None:
    with alice.connect() as channel, channel.makefile("rb") as stream:
        channel.sendall(b'{"op": "status"}\n' * 3)
        assert [json.loads(line)["terminal_pid"] for line in stream] == [alice.row["terminal_pid"]]
    with alice.connect() as channel, pytest.raises((BrokenPipeError, ConnectionResetError)):
        while True:
            channel.sendall(b'{"op": "status"}\n' * 1000)
    alice.assert_working()


def test_another_users_connection_is_closed(relay: Relay) -> None:
    """Not a byte of it is read. (Only root can test this.)"""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    alice = Alice(relay)
    for folder in (alice.path.parent, *alice.path.parent.parents[:4]):
        if folder.is_relative_to(relay.home):
            folder.chmod(0o755)
    alice.path.chmod(0o666)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            channel.connect(str(alice.path))
            with contextlib.suppress(OSError):
                channel.sendall(b'{"op": "status"}\n')
            with contextlib.suppress(ConnectionResetError):
                code = 0 if channel.recv(1000) == b"" else 2
                os._exit(code)
            code = 0
        finally:
            os._exit(code)
    channel.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    alice.assert_working()


def test_a_client_that_dies_while_attaching_does_not_end_the_shim(alice: Alice) -> None:
    """It used to end the shim, and so the agent: found by a soak test that killed clients."""
    shim, open_before = alice.row["terminal_pid"], alice.descriptors()
    for number in range(3):
        main, terminal = os.openpty()
        os.kill(shim, signal.SIGSTOP)
        with alice.connect() as channel:
            line = json.dumps({"op": "attach", "saved": None, "interactive": True, "takeover": number > 0})
            socket.send_fds(channel, [line.encode() + b"\n"], [terminal, terminal])
        os.kill(shim, signal.SIGCONT)
        alice.assert_working()
        os.close(main)
        os.close(terminal)
    wait_until(lambda: alice.descriptors() == open_before)
