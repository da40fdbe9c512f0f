"""The sessions of a home: how to find them, and how to send them requests over their control sockets.

    RUN/sessions/TEAM/NAME.lock    held (flock) by the agent's shim for its whole life: the claim on the name
    RUN/sessions/TEAM/NAME.sock    the session's control socket: one JSON object per line, each way
    RUN/sessions/TEAM/NAME.shim    the shim's own socket, which answers even without a session
    RUN/sessions/TEAM/NAME.guards  what hooks must know while no session answers (relay.agents.hook_guards)
    RUN/sessions/TEAM/NAME.door    where relay's plug-in in the agent takes texts (relay.agents.door)

File names are lower case. A session describes itself on request; a claim contains only what `Claim.note`
writes, for use when the session does not answer. A name is taken while its claim is held, whether or not a
session answers: it may be starting, ending, busy, stopped, or have failed.
"""

from __future__ import annotations

import glob
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from relay import errors
from relay.control.name_claim import noted
from relay.control.team_choice import fleet_team
from relay.dataclass import dataclass, fields
from relay.errors import (
    ConfigError,
    ConfigMistakes,
    NoSuchSession,
    OutcomeUnknown,
    RelayError,
    SessionUnresponsive,
    UsageError,
)
from relay.home import Home
from relay.names import did_you_mean, key, same
from relay.peer import connect
from relay.storage.locks import try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECTING = "connecting"
"""The state of the bus until a session knows better."""

PROGRAM = "program"
"""In place of the profile of an agent: a program that has joined its team (`relay.connect`)."""

SESSION, SHIM = ".sock", ".shim"
"""The suffixes of the sockets of a session and of its shim."""

SHIM_TIMEOUT = 1.0
"""Seconds to wait for the answer of a shim, which is never busy."""

UNRESPONSIVE = "unresponsive"
"""The state of a session that holds its name but does not answer."""

MAX_LINE = 1 << 20
"""Maximum bytes of one control message: several times a message's body (64 KB) as JSON."""

SESSION_TIMEOUT = 10.0
"""Seconds that a command waits for a session that is starting or busy."""

FOLLOWS = 30.0
"""Seconds to wait for the next session after one ended during a request that changes something."""

EFFECTS = {
    "send": "`relay messages --from {}` lists its messages",
    "say": "`relay messages --from {}` lists its messages",
    "answer": "`relay answer {}` shows what it asks now",
    "join": "`relay channels` lists the members",
    "leave": "`relay channels` lists the members",
    "stop": "`relay ps` shows whether it is running",
    "restart": "`relay ps` shows its process",
    "hold": "`relay explain {}` shows whether it is held",
    "release": "`relay explain {}` shows whether it is held",
    "spawn": "`relay ps` shows whether it is running",
    "dismiss": "`relay ps` shows whether it is running",
    "reload_rules": "`relay hooks list {}` shows its rules",
    "switch_rules": "`relay hooks list {}` shows its rules",
}
"""The operations that change something, and how to check whether they did; {} is the agent's name."""

ONCE = frozenset({"answer", "restart"})
"""Operations that are not repeated at the next session: it could not know which keys were pressed, or whether
the agent has restarted by then."""

_CONNECT_EVERY = 0.01  # seconds between two tries to reach a session that does not listen yet
_AT_ONCE = 64  # sessions asked at the same time


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it describes itself or, if it does not answer, as its claim describes it.

    The man page shows these lines (`make man`). Times are in seconds since the epoch.
    None: unknown, or it does not apply.

    name, team:     the agent.
    id:             this run of the session.
    agent:          the profile, such as `claude`; `generic` for an unknown one; `program` for one that has
                    joined by `relay.connect`.
    pid:            the session process.
    agent_pid:      the agent's process (PID in the table).
    terminal_pid:   the shim, which owns the agent's terminal.
    state:          `starting`, `working`, `ready`, `prompting`, ...; `relay ps --help` has all.
    prompt:         the kind of question, if it asks one: `permission`, `plan_approval`, `question`, `other`.
    since:          when the state began.
    cwd:            the folder in which it was started.
    socket:         where the session listens.
    bus:            `connected`, `connecting`, or why it is not connected; empty if unknown.
    held, waiting:  the number of its messages that are held, and of those that wait for it.
    restarts:       how often it was restarted under its name.
    viewers:        how many terminals view it (`relay attach --view`).
    tokens, cost:   used by this run; the cost is in US dollars.
    exit_code:      the exit code of its last process.
    reason:         why it is in its state, or how it ended.
    next_try:       when it restarts by itself.
    wanted:         `up`, or the state that the user wants instead.
    session_id:     the agent's own id of the conversation.
    question, last_line: what it asks, and the last line that it said, without secrets; empty for none.
    account_hold:   why its account is held; empty if it is not.
    escalation:     what its supervision needs you for, until you react; empty for nothing.
    parent:         the agent that started it; empty for none.
    apart:          as in relay.control.name_claim.Claim; known only from the claim.
    """

    name: str
    team: str
    agent: str
    pid: int | None
    agent_pid: int | None
    state: str
    prompt: str | None
    since: float | None
    cwd: str
    id: str
    socket: Path
    bus: str = ""
    held: int | None = None
    waiting: int | None = None
    terminal_pid: int | None = None
    restarts: int | None = None
    viewers: int | None = None
    tokens: int | None = None
    cost: float | None = None
    exit_code: int | None = None
    reason: str = ""
    next_try: float | None = None
    wanted: str = ""
    session_id: str | None = None
    question: str = ""
    last_line: str = ""
    account_hold: str = ""
    escalation: str = ""
    parent: str = ""
    apart: bool = False

    @property
    def is_program(self) -> bool:
        """True for a program that has joined the team by itself: it has no terminal, and no shim."""
        return self.pid is not None and self.terminal_pid is None

    @property
    def shim(self) -> Path:
        return self.socket.with_suffix(SHIM)

    def public(self) -> dict[str, Any]:
        """Return the JSON object of `relay ps --json`. No `pid`: it would not say whose."""
        return {
            "session_pid" if each.name == "pid" else each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in {"socket", "apart"}
        }

    def ask(self, request: dict[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        """Send one request to the session and return its answer, as `call` does."""
        if self.state == UNRESPONSIVE:
            raise _unresponsive(self)
        return call(self.socket, request, timeout)


def failure(session: SessionInfo) -> str:
    """Return why the shim no longer starts sessions for the agent; "" if it does, or does not say."""
    try:
        return str(call(session.shim, {"op": "status"}, SHIM_TIMEOUT)["failed"])
    except (RelayError, KeyError):
        return ""


def works(session: SessionInfo) -> bool:
    """Return False if the shim says that the agent's present session, if any, was never able to work."""
    try:
        return bool(call(session.shim, {"op": "status"}, SHIM_TIMEOUT)["ready"])
    except (RelayError, KeyError):
        return True


def live(home: Home, team: str | None = None, timeout: float = 1.0) -> list[SessionInfo]:
    """Return the sessions that hold their names, sorted by team and name, and clean up after dead ones.

    A session that does not answer within `timeout` seconds is UNRESPONSIVE; without a wait if its shim no
    longer starts sessions.
    """
    return _ask_all(_sockets(home, team), timeout)


def find(home: Home, name: str, team: str | None = None, timeout: float = SESSION_TIMEOUT) -> SessionInfo:
    """Return the session called `name`, waiting up to `timeout` seconds if it is starting or slow.

    team: None means that of relay.control.team_choice.

    Raise SessionUnresponsive if it holds its name but does not answer, and NoSuchSession, with advice, if
    no session holds that name, or sessions of several teams do.
    """
    team = team or fleet_team(home, name)
    found = _only(home, name, team, _ask_all(_sockets(home, team, name), timeout))
    if found.state == UNRESPONSIVE:
        raise _unresponsive(found)
    return found


def _only(home: Home, name: str, team: str | None, found: list[SessionInfo]) -> SessionInfo:
    if len(found) > 1 and (own := os.environ.get("RELAY_TEAM")):
        found = [session for session in found if same(session.team, own)] or found
    if len(found) > 1:
        teams = ", ".join(session.team for session in found)
        raise NoSuchSession(
            f"sessions called {name!r} run in several teams ({teams}). Choose one with --team."
        )
    if not found:
        hint = did_you_mean(name, [claim.name for claim in claims(home, team)])
        where = f" in team {team}" if team else ""
        raise NoSuchSession(
            f"there is no session called {name!r}{where}. {hint}`relay ps` lists the running ones."
        )
    return found[0]


def find_claim(home: Home, name: str, team: str | None = None) -> SessionInfo:
    """Return the session called `name`, as its claim describes it.

    Raise NoSuchSession as `find` does, and UsageError for a program, which has no terminal.
    """
    team = team or fleet_team(home, name)
    found = _only(home, name, team, [*filter(None, map(_claim, _sockets(home, team, name)))])
    if found.is_program and found.pid is not None:
        raise not_an_agent(found.name, found.pid)
    return found


def not_an_agent(name: str, pid: int) -> UsageError:
    """Return the error if a program is asked for what only an agent can do."""
    return UsageError(f"{name} is a program without a terminal; it ends by itself (process {pid}).")


def claims(home: Home, team: str | None = None) -> Iterator[SessionInfo]:
    """Yield each session as its claim describes it, in any order, without asking the session."""
    yield from filter(None, map(_claim, _sockets(home, team)))


def socket_of(home: Home, team: str, name: str) -> Path:
    """Return the path where the session of `name` in `team` listens, if there is such a session."""
    return home.run / "sessions" / key(team) / f"{key(name)}.sock"


def call(path: Path, request: dict[str, Any], timeout: float = 5.0) -> dict[str, Any]:
    """Send one request to the session at `path` and return its answer, both within `timeout` seconds.

    Wait for a session that does not listen yet. If the session ends during the request, repeat the request at
    the next one, with `again`; if it changes something, it may then take up to FOLLOWS. Raise NoSuchSession
    if no session holds the name, SessionUnresponsive if its holder does not answer in time, OutcomeUnknown if
    the session ended during one of ONCE, and the error that the session answers with.
    """
    operation, deadline = str(request.get("op")), time.monotonic() + timeout
    line = _exchange(path, request, deadline)
    if line is None and operation in ONCE:
        raise OutcomeUnknown(f"the session ended before it answered. {_unknown(path, operation)}")
    if line is None and operation in EFFECTS:
        deadline = max(deadline, time.monotonic() + FOLLOWS)
    while line is None and time.monotonic() < deadline:
        time.sleep(_CONNECT_EVERY)
        line = _exchange(path, {**request, "again": True}, deadline)
    if line is None:
        raise RelayError(f"the session at {path} ended before it answered. {_unknown(path, operation)}")
    try:
        answer = json.loads(line, object_hook=_Fields)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, _Fields):
        raise _malformed()
    if "error" in answer:
        raise error_from(answer)
    return answer


class _Fields(dict[str, "Any"]):
    """An object in an answer."""

    def __missing__(self, key: str) -> Any:
        raise _malformed()


def _malformed() -> RelayError:
    return RelayError(
        "relay does not understand the session's answer. It may run another version: `relay reload --all` "
        "starts new sessions."
    )


def _exchange(path: Path, request: dict[str, Any], deadline: float) -> bytes | None:
    """Send one request and return the answer's line; None if the session ended during it."""
    with reach(path, deadline) as channel:
        try:
            channel.settimeout(max(deadline - time.monotonic(), _CONNECT_EVERY))
            channel.sendall(json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as stream:
                line = stream.readline(MAX_LINE)
        except ConnectionError:
            return None
        except OSError:
            raise _unresponsive(_claim(path), str(request.get("op"))) from None
    return line if line.endswith(b"\n") or len(line) == MAX_LINE else None


def _unknown(path: Path, operation: str) -> str:
    """Return a sentence that says how to check the outcome of a request."""
    if operation not in EFFECTS:
        return "Try again."
    claim = _claim(path)
    name = path.stem if claim is None else claim.name
    return f"It may or may not have done what you asked: {EFFECTS[operation].format(name)}."


def have_carried(home: Home, team: str, sender: str) -> bool:
    """Notify a session of `team`, preferably the sender's own, of what the ledger now has from `sender`.

    Return False if there is no session that could publish it.
    """
    from relay.messaging.doorbell import ring  # `relay ps` does without

    sessions = sorted(live(home, team), key=lambda session: not same(session.name, sender))
    return any(ring(home, team, session.name) for session in sessions)


def error_from(answer: dict[str, Any]) -> RelayError:
    """Return the error that a session described as `{"error": MESSAGE, "type": CLASS}`."""
    kind = getattr(errors, str(answer.get("type")), RelayError)
    if not (isinstance(kind, type) and issubclass(kind, RelayError)):
        kind = RelayError
    return ConfigError(str(answer["error"])) if kind is ConfigMistakes else kind(str(answer["error"]))


def _sockets(home: Home, team: str | None, name: str | None = None) -> list[Path]:
    """Return the socket paths of the sessions that may be running, sorted by team and name.

    The sockets may not exist. Raise HomeError if another user has created their directory.
    """
    home.check_owner()
    pattern = "/".join("*" if each is None else glob.escape(key(each)) for each in (team, name))
    folder = home.run / "sessions"
    found = (*folder.glob(f"{pattern}.lock"), *folder.glob(f"{pattern}.sock"))
    return sorted({path.with_suffix(".sock") for path in found})


def _ask_all(paths: list[Path], timeout: float) -> list[SessionInfo]:
    from threading import Thread  # concurrent.futures would also load logging, 8 ms

    waiting, answers = iter(paths), {}

    def ask() -> None:
        for path in waiting:
            answers[path] = _ask(path, timeout)

    threads = [Thread(target=ask) for _ in paths[1:_AT_ONCE]]
    for thread in threads:
        thread.start()
    ask()
    for thread in threads:
        thread.join()
    return [*filter(None, map(answers.get, paths))]


def _ask(path: Path, timeout: float) -> SessionInfo | None:
    try:
        return SessionInfo(**call(path, {"op": "info"}, timeout)["info"], socket=path)
    except NoSuchSession:
        _sweep(path)
        return None
    except (RelayError, KeyError, TypeError):
        return _claim(path)  # it may have ended meanwhile


def _claim(path: Path) -> SessionInfo | None:
    """Return the session as the claim beside the socket `path` describes it, None if nobody holds it."""
    claim = noted(str(path.with_suffix(".lock")))
    if claim is None:
        return None
    return SessionInfo(
        *(claim.name, claim.team, "", claim.session or None, claim.agent or None, UNRESPONSIVE),
        *(None, None, "", "", path),
        terminal_pid=claim.shim or None,
        apart=claim.apart,
    )


def reach(path: Path, deadline: float) -> socket.socket:
    """Return a connection to `path`; wait until `deadline` for a claimed name, unless its shim gave up."""
    while True:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(max(deadline - time.monotonic(), _CONNECT_EVERY))
        try:
            connect(channel, path)
            return channel
        except (FileNotFoundError, ConnectionRefusedError):
            channel.close()
        except OSError:  # its backlog is full
            channel.close()
            raise _unresponsive(_claim(path)) from None
        if (claim := _claim(path)) is None or time.monotonic() >= deadline or _given_up(claim):
            raise _unresponsive(claim)
        time.sleep(_CONNECT_EVERY)


def _given_up(claim: SessionInfo) -> bool:
    """Return True if the shim, which listens from its start, no longer starts sessions for the agent."""
    return claim.socket.suffix == SESSION and claim.shim.exists() and bool(failure(claim))


def _unresponsive(session: SessionInfo | None, operation: str = "") -> RelayError:
    """Return the error if `session` (None: it has ended) does not answer the requested `operation`."""
    if session is None:
        return NoSuchSession("that session has ended. `relay ps` lists the running ones.")
    advice = _unknown(session.socket, operation)
    if session.socket.suffix == SESSION and (why := failure(session)):
        return SessionUnresponsive(
            f"{session.name} keeps running without a session: {why}. {advice} `relay reload {session.name}` "
            f"starts a new one; `relay stop {session.name}` ends the agent."
        )
    if pid := session.pid:
        advice += (
            f" If it was stopped, `kill -CONT {pid}` continues it; `relay reload {session.name}` starts a "
            f"new one for the agent; `relay stop --now {session.name}` ends both."
        )
    return SessionUnresponsive(f"{session.name} does not answer. Its session may be busy. {advice}")


def _sweep(path: Path) -> None:
    """Remove a dead session's socket, unless its name has just been claimed again."""
    lock = path.with_suffix(".lock")
    try:
        with open(lock, "rb") as claim:
            if not try_lock(claim.fileno()):
                return  # it is starting
            for each in (path, *map(path.with_suffix, (".shim", ".guards", ".door")), lock):
                each.unlink(missing_ok=True)
    except FileNotFoundError:
        path.unlink(missing_ok=True)
    except OSError:
        return
