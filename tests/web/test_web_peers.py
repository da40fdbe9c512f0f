"""Whose process has connected: found by its socket, and unknown if that cannot be seen."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.home import Home
from relay.web import peers
from relay.web.peers import TcpPeer, Whose, peer_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="relay.web.peers needs Linux's /proc")

_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
_NOBODY = 65534


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def whose(home: Path, listener: socket.socket, client: tuple[str, int] | socket.socket) -> TcpPeer:
    own = Home.from_env({"RELAY_HOME": str(home)})
    return peer_of(own, client if isinstance(client, tuple) else place(client), place(listener))


def place(end: socket.socket) -> tuple[str, int]:
    """Return the end's own address, as an IPv4 one."""
    host, port, *_ = end.getsockname()
    return host.removeprefix("::ffff:"), port


def test_a_process_of_the_users_is_found_by_its_socket(home: Path, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        assert whose(home, listener, client) == TcpPeer(Whose.USER, os.getpid())
    with socket.socket() as unconnected:
        assert whose(home, listener, unconnected).whose is Whose.UNKNOWN


def test_a_process_may_come_from_another_address(home: Path, listener: socket.socket) -> None:
    """Of this machine's, or as IPv6: this is in another table of the kernel's."""
    with socket.create_connection(listener.getsockname(), source_address=("127.0.0.2", 0)) as client:
        assert client.getsockname()[0] == "127.0.0.2"
        assert whose(home, listener, client) == TcpPeer(Whose.USER, os.getpid())
    with socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        assert whose(home, listener, client) == TcpPeer(Whose.USER, os.getpid())


def test_a_process_that_has_closed_its_end_is_unknown(home: Path, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        before = place(client)
    assert whose(home, listener, before).whose is Whose.UNKNOWN


def test_one_agent_among_those_that_hold_the_socket_is_enough(home: Path, listener: socket.socket) -> None:
    """Its environment says so, though its home is another one."""
    with socket.create_connection(listener.getsockname()) as client:
        holder = subprocess.Popen(
            [sys.executable, "-S", "-c", "input()"],
            env={"RELAY_SOCKET": "/nowhere"},
            pass_fds=[client.fileno()],
            stdin=subprocess.PIPE,
        )
        try:
            found = whose(home, listener, client)
            assert (found.whose, found.pid) == (Whose.AGENT, holder.pid)
            assert f"(pid {holder.pid}), which belongs to an agent of another home" in found.why
        finally:
            holder.communicate()
        assert whose(home, listener, client).whose is Whose.USER


def test_a_process_whose_ancestors_are_not_all_known_is_unknown(
    home: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ancestors", lambda pid: [pid])
    with socket.create_connection(listener.getsockname()) as client:
        assert whose(home, listener, client).whose is Whose.UNKNOWN


def as_an_ordinary_user(check: Callable[[], None]) -> None:
    """Run `check` in a process that may not see everything, as root may."""
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
                ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
            check()
            os._exit(0)
        except BaseException:  # noqa: BLE001 (told by the exit code)
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def hidden(listener: socket.socket) -> tuple[int, tuple[str, int]]:
    """Start a process that connects, and hides its descriptors; return its id, and its address."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
        client = socket.create_connection(listener.getsockname())
        os.write(write, str(client.getsockname()[1]).encode())
        os.read(os.pipe()[0], 1)  # until it is killed
    return child, ("127.0.0.1", int(os.read(read, 10)))


def test_a_process_that_hides_is_the_users_unless_an_agents_process_hides_too(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of sshd that forwards a port hides its descriptors."""

    def check() -> None:
        home = Path("/nowhere")
        own = {os.getpid()}
        monkeypatch.setattr(peers, "_is_own", lambda pid: int(pid) in own)
        child, client = hidden(listener)
        own.add(child)
        try:
            assert whose(home, listener, client) == TcpPeer(Whose.USER, child)
            agent = subprocess.Popen(
                ["/bin/sh", "-c", "read x"], env={"RELAY_SOCKET": "/nowhere"}, stdin=subprocess.PIPE
            )
            own.add(agent.pid)
            assert whose(home, listener, client) == TcpPeer(
                Whose.USER, child
            )  # the agent's is seen not to hold it
            monkeypatch.setattr(peers, "belongs_to_an_agent", lambda pid: pid == child)
            assert whose(home, listener, client).whose is Whose.UNKNOWN
            agent.communicate()
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)

    as_an_ordinary_user(check)


def test_a_process_of_another_user_is_unknown(home: Path, listener: socket.socket) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, for a process of another user")
    with socket.create_connection(listener.getsockname()) as client:
        os.fchown(client.fileno(), _NOBODY, _NOBODY)  # as socket(2) would for that user
        assert whose(home, listener, client).whose is Whose.UNKNOWN
