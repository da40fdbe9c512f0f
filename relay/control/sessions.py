"""The live sessions of a home: where their sockets are, who they are, and how to ask them something.

    RUN/sessions/TEAM/NAME.lock    held (flock) by the session for its whole life: the claim on the name
    RUN/sessions/TEAM/NAME.sock    its control socket: one JSON object a line, each way

Names in paths are lower case.  A session's answers are its own words; nothing is cached in files.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from relay import errors
from relay.errors import NoSuchSession, RelayError
from relay.home import Home
from relay.names import key, same, suggest

CONNECTING = "connecting"
"""What a session says of the bus before it knows better."""

MAX_LINE = 1 << 20
"""Bytes of one control message; a message's body (64 KB) as JSON fits several times."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a live session says of itself.

    since:         when it entered `state`, seconds since the epoch.
    bus:           "connected", "connecting", or why it is not connected; empty: an older relay.
    held, waiting: how many of its messages are held, and how many are stored for it; None: not known.
    """

    name: str
    team: str
    agent: str
    pid: int
    agent_pid: int
    state: str
    prompt: str | None
    since: float
    cwd: str
    id: str
    socket: Path
    bus: str = ""
    held: int | None = None
    waiting: int | None = None

    def public(self) -> dict[str, Any]:
        """The JSON object of `relay ps --json`."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "socket"}


def live(home: Home, team: str | None = None, timeout: float = 2.0) -> list[SessionInfo]:
    """The sessions that answer, by team and name. What dead ones left behind is removed."""
    found = []
    for path in sorted((home.run / "sessions").glob(f"{key(team) if team else '*'}/*.sock")):
        try:
            answer = call(path, {"op": "info"}, timeout)
        except NoSuchSession:
            _sweep(path)
        except RelayError:
            continue  # it lives and is not ready to speak, or is busy dying
        else:
            found.append(SessionInfo(**answer["info"], socket=path))
    return found


def find(home: Home, name: str, team: str | None = None) -> SessionInfo:
    """The live session called `name`; NoSuchSession, with advice, if there is none or more than one."""
    sessions = live(home, team)
    found = [session for session in sessions if key(session.name) == key(name)]
    if len(found) == 1:
        return found[0]
    if found:
        teams = ", ".join(session.team for session in found)
        raise NoSuchSession(
            f"sessions called {name!a} run in several teams ({teams}). Say which with --team."
        )
    meant = suggest(name, [session.name for session in sessions])
    hint = f"Did you mean {meant}? " if meant else ""
    raise NoSuchSession(f"no session is called {name!a}. {hint}`relay ps` lists those that run.")


def socket_of(home: Home, team: str, name: str) -> Path:
    """Where the session of `name` in `team` listens, if there is one."""
    return home.run / "sessions" / key(team) / f"{key(name)}.sock"


def call(path: Path, request: dict[str, Any], timeout: float = 5.0) -> dict[str, Any]:
    """Send one request to the session at `path` and return its answer.

    Raises NoSuchSession if nobody listens there, the error that the session names in its answer, or
    RelayError if it does not answer within `timeout` seconds.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(timeout)
        try:
            channel.connect(os.fspath(path))
            channel.sendall(json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as stream:
                line = stream.readline(MAX_LINE)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoSuchSession("that session has ended. `relay ps` lists those that run.") from None
        except OSError as error:
            raise RelayError(f"the session at {path} does not answer ({error}). Try again.") from None
    try:
        answer = json.loads(line)
    except ValueError:
        raise RelayError(f"the session at {path} ended before it answered. Try again.") from None
    if "error" in answer:
        raise error_from(answer)
    return dict(answer)


def have_carried(home: Home, team: str, sender: str) -> bool:
    """Whether a live session of `team` was told that there is something of `sender`'s to publish."""
    for session in sorted(live(home, team), key=lambda session: not same(session.name, sender)):
        try:
            call(session.socket, {"op": "drain"})
        except RelayError:
            continue  # it has just ended, or hangs
        return True
    return False


def error_from(answer: dict[str, Any]) -> RelayError:
    """The error that a session described as `{"error": MESSAGE, "type": CLASS}`."""
    kind = getattr(errors, str(answer.get("type")), RelayError)
    if not (isinstance(kind, type) and issubclass(kind, RelayError)):
        kind = RelayError
    return kind(str(answer["error"]))


def _sweep(path: Path) -> None:
    """Remove a dead session's socket, unless its name has just been claimed anew."""
    lock = path.with_suffix(".lock")
    try:
        with open(lock, "rb") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
    except FileNotFoundError:
        path.unlink(missing_ok=True)
    except OSError:
        return  # held: it is starting
