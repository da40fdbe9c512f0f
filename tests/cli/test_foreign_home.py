"""Files planted by another user are refused before any byte or descriptor is sent (S3)."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from relay.control import sessions
from relay.errors import HomeError
from relay.home import Home
from relay.peer import connect
from support import Relay

OTHER_USER = 65534

only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")

LISTENER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setuid(int(sys.argv[2]))
listener.listen()
print("listening", flush=True)
while True:
    if data := listener.accept()[0].recv(1000):
        print(data, flush=True)
"""


class ForeignSocket:
    """A socket of another user, which records what is sent to it."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LISTENER, path, str(OTHER_USER)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"

    def close(self) -> str:
        """Close it, and return what it has received."""
        self._process.terminate()
        assert self._process.stdout is not None
        with self._process:
            return self._process.stdout.read()


@pytest.fixture
def sessions_of(home: Path) -> Path:
    folder = Home.from_env({"RELAY_HOME": str(home)}).ensure().run / "sessions" / "default"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def foreign_sockets(sessions_of: Path) -> Iterator[list[ForeignSocket]]:
    """Yield foreign sockets in the place of those of Bob's session and shim."""
    found = [ForeignSocket(sessions_of / f"bob{suffix}") for suffix in (sessions.SESSION, sessions.SHIM)]
    yield found
    os.chown(sessions_of.parents[1], os.getuid(), os.getgid())


COMMANDS = [
    ("ps",),
    ("answer", "Bob", "y"),
    ("explain", "Bob"),
    ("stop", "Bob"),
    ("stop", "--all"),
    ("restart", "Bob"),
    ("reload", "Bob"),
    ("send", "Bob", "hi"),
    ("join", "--name", "Bob", "ops"),
    ("hooks", "reload", "Bob"),
    ("wrap", "-d", "-n", "Bob", "cat"),
]


@only_root
def test_a_folder_of_another_user_is_refused(
    relay: Relay, home: Path, foreign_sockets: list[ForeignSocket], subtests: pytest.Subtests
) -> None:
    """Anyone may create a RELAY_HOME below /tmp."""
    os.chown(home / "run", OTHER_USER, OTHER_USER)
    for command in COMMANDS:
        with subtests.test(" ".join(command)):
            done = relay(*command, check=False)
            assert done.returncode == 1
            assert (
                f"{home}/run belongs to another user. Set RELAY_HOME to a directory you own." in done.stderr
            )
    assert [each.close() for each in foreign_sockets] == ["", ""]


@only_root
def test_a_symlink_of_another_user_is_refused(relay: Relay, home: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    home.mkdir(exist_ok=True)
    (home / "run").symlink_to(tmp_path / "ours")
    assert relay("ps").stdout.startswith("No session is running")
    os.chown(home / "run", OTHER_USER, OTHER_USER, follow_symlinks=False)
    assert "belongs to another user" in relay("ps", check=False).stderr
    (home / "run").unlink()


@only_root
@pytest.mark.parametrize("suffix", [sessions.SESSION, sessions.SHIM])
def test_nothing_is_sent_to_a_socket_of_another_user(
    sessions_of: Path, foreign_sockets: list[ForeignSocket], suffix: str
) -> None:
    with pytest.raises(HomeError, match="another user is listening"):
        sessions.call(sessions_of / f"bob{suffix}", {"op": "info"})
    assert [each.close() for each in foreign_sockets] == ["", ""]


@only_root
@pytest.mark.parametrize("arguments", [["attach", "Bob"], ["attach", "--view", "Bob"]], ids=" ".join)
def test_attach_passes_no_terminal_to_another_user(
    relay: Relay, sessions_of: Path, foreign_sockets: list[ForeignSocket], arguments: list[str]
) -> None:
    with open(sessions_of / "bob.lock", "w+") as claim:
        claim.write(f"{os.getpid()} {os.getpid()} Bob default {os.getpid()}\n")
        claim.flush()
        fcntl.flock(claim, fcntl.LOCK_EX)
        spawned = pexpect.spawn(
            sys.executable, ["-m", "relay", *arguments], env=relay.environment, encoding="utf-8", timeout=60
        )
        spawned.expect("another user is listening")
        spawned.expect(pexpect.EOF)
    assert [each.close() for each in foreign_sockets] == ["", ""]


@only_root
def test_a_hook_sends_nothing_to_another_user(
    sessions_of: Path, foreign_sockets: list[ForeignSocket]
) -> None:
    import relay.agents.hook_client as client

    subprocess.run(
        [sys.executable, "-I", "-S", client.__file__, "hook", "stop", sessions_of / "bob.sock", "claude"],
        input=b'{"hook_event_name": "Stop"}',
        check=True,
    )
    assert [each.close() for each in foreign_sockets] == ["", ""]


def test_every_user_checks_who_is_listening(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Home.from_env({"RELAY_HOME": str(home)}).ensure()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as channel:
        listener.bind(str(found.run / "socket"))
        listener.listen()
        monkeypatch.setattr(os, "getuid", lambda: OTHER_USER)
        with pytest.raises(HomeError, match="another user is listening"):
            connect(channel, found.run / "socket")
    with pytest.raises(HomeError, match="belongs to another user"):
        sessions.live(found)
