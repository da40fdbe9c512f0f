"""A session that is starting, slow or stopped keeps its name: commands wait, and never call it unknown."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.cli import stop
from relay.cli.main import dispatch
from relay.control import sessions
from relay.control.claiming import claim
from relay.control.name_claim import Claim
from relay.errors import NoSuchSession, SessionUnresponsive
from relay.home import Home
from support import Relay


@pytest.fixture
def stopped(relay: Relay) -> Iterator[dict[str, Any]]:
    """Stop Alice's session, and yield its earlier entry in `relay ps`."""
    relay("wrap", "-d", "-n", "Alice", "cat")
    (row,) = json.loads(relay("ps", "--json").stdout)
    os.kill(row["session_pid"], signal.SIGSTOP)
    yield row
    os.kill(row["session_pid"], signal.SIGCONT)


def test_a_stopped_session_is_listed_as_unresponsive(
    relay: Relay,
    stopped: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """S13"""
    home = Home.from_env(relay.environment)
    (row,) = json.loads(relay("ps", "--json").stdout)
    pids = {key: stopped[key] for key in ("session_pid", "agent_pid", "terminal_pid")}
    known = {"name": "Alice", "team": "default", **pids}
    assert row.keys() == stopped.keys()
    assert {key: value for key, value in row.items() if value} == known | {"state": "unresponsive"}
    assert relay("ps").stdout.splitlines()[1].split() == [
        "Alice",
        "default",
        str(stopped["agent_pid"]),
        "unresponsive",
    ]
    with pytest.raises(
        SessionUnresponsive, match=rf"^Alice does not answer.* `kill -CONT {row['session_pid']}`"
    ):
        sessions.find(home, "alice", timeout=0.1)
    assert sessions.have_carried(home, "default", "you"), "the message is sent once the session continues"
    monkeypatch.setenv("RELAY_HOME", str(relay.home))
    monkeypatch.setattr(stop, "SESSION_TIMEOUT", 0.1)
    assert dispatch(["stop", "--all"]) == 1
    assert capsys.readouterr().err.startswith("relay: Alice does not answer. ")
    os.kill(stopped["session_pid"], signal.SIGCONT)
    assert sessions.find(home, "alice").pid == stopped["session_pid"]


@pytest.fixture
def starting(relay: Relay) -> Iterator[Claim]:
    """Yield the claim of Late, a session that does not listen yet."""
    taken = claim(Home.from_env(relay.environment), "default", "Late")
    taken.note(os.getpid(), os.getpid())
    yield taken
    taken.release()


@pytest.fixture
def at_the_second_poll(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that schedules an action between the first and the second poll for a session."""

    def schedule(action: Callable[[], object]) -> None:
        todo = [action]
        monkeypatch.setattr(sessions.time, "sleep", lambda _: todo.pop()() if todo else None)

    return schedule


@pytest.mark.parametrize("left_behind", [False, True], ids=["no socket", "a stale socket"])
def test_a_session_whose_socket_appears_late_is_found(
    relay: Relay,
    starting: Claim,
    at_the_second_poll: Callable[[Callable[[], object]], None],
    left_behind: bool,
) -> None:
    if left_behind:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(starting.socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def serve() -> None:
        channel, _ = listener.accept()
        with channel, channel.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"op": "info"}
            info = dict.fromkeys(("team", "agent", "state", "cwd", "id"), "x") | {"name": "Late"}
            info |= {"pid": 1, "agent_pid": 1, "since": time.time(), "prompt": None}  # type: ignore[dict-item]
            channel.sendall(json.dumps({"info": info}).encode() + b"\n")

    server = threading.Thread(target=serve)

    def listen() -> None:
        Path(starting.socket).unlink(missing_ok=True)
        listener.bind(starting.socket)
        listener.listen()
        server.start()

    at_the_second_poll(listen)
    with listener:
        found = sessions.find(Home.from_env(relay.environment), "LATE")
        server.join()
    assert (found.name, found.state) == ("Late", "x")


def test_a_session_that_ends_during_the_wait_is_not_found(
    relay: Relay, starting: Claim, at_the_second_poll: Callable[[Callable[[], object]], None]
) -> None:
    at_the_second_poll(lambda: os.close(starting.fd))
    with pytest.raises(NoSuchSession, match="there is no session called 'Late'"):
        sessions.find(Home.from_env(relay.environment), "Late")
    starting.fd = os.open(os.devnull, os.O_RDONLY)  # for `release`


def test_a_session_that_never_listens_keeps_its_name(relay: Relay, starting: Claim) -> None:
    home = Home.from_env(relay.environment)
    with pytest.raises(SessionUnresponsive, match="Late does not answer"):
        sessions.find(home, "late", timeout=0)
    (late,) = sessions.live(home, timeout=0)
    assert (late.name, late.state, late.pid) == ("Late", "unresponsive", os.getpid())
    with pytest.raises(NoSuchSession, match="Did you mean Late"):
        sessions.find(home, "Lats")
