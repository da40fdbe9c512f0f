"""The program that agents call as their hook: hand the event to the session, print its answer.

    PYTHON -I -S hook_client.py hook pretooluse SOCKET AGENT       observes: never prints
    PYTHON -I -S hook_client.py hook decide EVENT SOCKET AGENT     prints what the session answers

    stdin ──→ {"op": "hook", "agent": A, "event": E, "decide": bool, "payload": TEXT}
              " "                                 the session has taken the event, and thinks
              {"stdout": TEXT, "code": 0}    ──→ stdout
              {"op": "hook_printed"}              the agent has its answer

A session that is gone, frozen or not this agent's never disturbs the agent: nothing is printed, and the exit
code is 0.  If a session ends over an event, the next one, if any, is asked the same.  An unreadable answer
denies a tool call, because a rule may forbid it; other events continue.

If a guard is in force for the event (relay.agents.hook_guards), the client waits for a session.  If none
answers, the agent has to ask its user; where its protocol has no such answer, the event is refused.

Agents wait for this program at each of their steps, so it imports only what is built into the interpreter:
`json`, `socket` and `signal` would double its start-up time.
"""

import _signal  # type: ignore[import-not-found]  # typeshed does not have it
import _socket
import posix
import sys
from _json import encode_basestring, make_scanner
from _socket import AF_UNIX, SOCK_STREAM, SOL_SOCKET, socket
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Refusal = tuple[str, str, str, str]
    """An event by the agent's own name and relay's, the reply that denies it, and one that asks the user."""

TAKEN = 3.0
"""Seconds for the session to take the event; a session that is gone or frozen costs the agent no more."""

AGAIN = 10.0
"""Seconds for a session to take an event that is guarded, or that another session ended over."""

ANSWER = 90.0
"""Seconds for the session's answer after that: a rule may run for a minute (docs/AGENTS.md)."""

LONGEST = AGAIN + ANSWER
"""Maximum seconds to wait for sessions, regardless of how many have ended over the event."""

TRIES = 3
"""Maximum sessions asked, if each ends over the event."""

MAX_PAYLOAD = 24 << 20
"""Maximum bytes of an event, such as a Write with a whole file. A longer one is sent without its payload."""

UNREADABLE = (
    "relay could not read its session's answer about this tool call, so it denies the call: a rule may "
    "forbid it. Ask the user to run `relay explain`, to check session.log, and to run `relay reload`."
)
"""The reason for a denial that the session did not decide."""

UNANSWERED = (
    "No relay session answers for {0}, and a rule may forbid this. The user can start a new session with "
    "`relay reload {0}`."
)
"""The reason for a decision if no session answers."""

REFUSALS: "list[Refusal]" = []
"""How the agent is refused what a guard may forbid: hook_setup writes it into each run's copy."""

REASON = "{reason}"
"""The place of the reason in a refusal."""

_PEERCRED = getattr(_socket, "SO_PEERCRED", None)  # Linux
_TOOL = "tool_pre"

_FIRST = "SessionStart"
"""An agent's first event, sent while its session is still loading; hook_setup writes its kind's name."""

_POLL = 0.02  # seconds between two attempts to connect

_REPEAT = 0.1
"""Seconds after which a time limit is enforced again: a system call that begins at that moment misses it."""


class _Expired(BaseException):
    """A time limit is over.  No handler of errors takes it for an error."""


class _Json:
    """The options of the interpreter's JSON scanner, as `json.JSONDecoder` sets them."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # NaN, Infinity


def main(argv: list[str]) -> None:
    """Run the command line `argv`, as in the module docstring; ignore any other."""
    match argv:
        case [_, "hook", "decide", event, path, agent]:
            hook(event, path, agent, lambda: REFUSALS, decide=True)
        case [_, "hook", event, path, agent]:
            hook(event, path, agent, lambda: REFUSALS, decide=False)


def hook(event: str, path: str, agent: str, refusals: "Callable[[], list[Refusal]]", *, decide: bool) -> None:
    """Send the event's JSON from standard input to the session that listens at `path`.

    With `decide`, print the session's answer.  refusals: called only if no session answers.  Raise nothing.
    """
    answer = b""
    begun = monotonic()
    waits = False  # longer, because of a guard
    expired = False

    def expire(*_: object) -> None:
        nonlocal waits, expired
        if expired:
            return
        if decide and not waits and not answer and _guarded(event, path, refusals):
            waits = True
            limit(AGAIN - TAKEN)
            return
        expired = True
        raise _Expired

    def limit(seconds: float) -> None:
        left = max(min(seconds, begun + LONGEST - monotonic()), 0.001)
        _signal.setitimer(_signal.ITIMER_REAL, left, _REPEAT)

    try:
        try:
            _signal.signal(_signal.SIGALRM, expire)
            limit(TAKEN)
            text = _read().decode("utf-8", "replace")
            channel = _connect(event, path, refusals, decide=decide)
            request = (
                f'{{"op": "hook", "agent": {encode_basestring(agent)}, "event": {encode_basestring(event)}, '
                f'"decide": {"true" if decide else "false"}, "payload": {encode_basestring(text)}}}\n'
            )
            for _ in range(TRIES):
                answer = b""
                channel.sendall(request.encode("utf-8", "replace"))
                while not answer.endswith(b"\n") and (more := channel.recv(1 << 16)):
                    if not answer:
                        limit(ANSWER)
                    answer += more
                if not decide or answer.endswith(b"\n"):
                    break
                # The session has ended over the event; ask the next one, if any, the same.
                waits = True
                limit(AGAIN)
                channel = _connect(event, path, refusals, decide=decide)
        except BaseException:  # noqa: BLE001 (what has arrived so far counts)
            expired = True
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        if not decide:
            return
        if not answer.strip(b" "):
            if name := _guarded(event, path, refusals):
                _print(refusal(_known(event, refusals)[3], UNANSWERED.replace("{0}", name)))
            return
        try:
            verdict = _stdout(answer)
        except Exception:  # noqa: BLE001 (whatever is wrong with the answer, a guard was asked)
            _, kind, denial, _ = _known(event, refusals)
            if kind == _TOOL:
                _print(refusal(denial, UNREADABLE))
            return
        if verdict is not None:
            _print(verdict)
            channel.sendall(b'{"op": "hook_printed"}\n')
    except BaseException:  # noqa: BLE001, S110 (the agent must not be disturbed, even by an interrupt)
        pass


def _guarded(event: str, path: str, refusals: "Callable[[], list[Refusal]]") -> str:
    """Return the agent's name if `event` is guarded; "" if it is not, or the agent's session is over."""
    guarded = None
    try:
        file = posix.open(path.removesuffix(".sock") + ".guards", posix.O_RDONLY)
        name, *guarded = posix.read(file, 1 << 12).decode().split()
        posix.close(file)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except Exception:  # noqa: BLE001 (whatever is wrong with it, there is a file of guards)
        name = path.rpartition("/")[2].removesuffix(".sock")
    kind = _known(event, refusals)[1]
    return name if kind and (guarded is None or kind in guarded) else ""


def _known(event: str, refusals: "Callable[[], list[Refusal]]") -> "Refusal":
    """Return the row of `event`, by the agent's own name in any case, or relay's; empty if it has none."""
    for row in refusals():
        if event.lower() in (row[0].lower(), row[1]):
            return row
    return "", "", "", ""


def _stdout(answer: bytes) -> str | None:
    """Return the text that `answer` has for the agent; None if the session does not accept this agent.

    Raise an exception for anything but a JSON object with a text `stdout`.
    """
    line = answer.decode().strip(" \t\r\n")
    fields, end = make_scanner(_Json)(line, 0)  # type: ignore[arg-type]  # typeshed asks for a scanner there
    if end == len(line) and type(fields) is dict:
        if type(text := fields.get("stdout")) is str:
            return text
        if fields.get("type") == "NotAllowed":
            return None
    raise ValueError


def refusal(reply: str, reason: str) -> str:
    """Return the rendered `reply` with `reason` in place of REASON."""
    return reply.replace(REASON, encode_basestring(reason)[1:-1])


def _print(text: str) -> None:
    rest = text.encode("utf-8", "replace")
    while rest:
        rest = rest[posix.write(1, rest) :]


def _connect(event: str, path: str, refusals: "Callable[[], list[Refusal]]", *, decide: bool) -> socket:
    """Connect to the session; wait until it listens, for an agent's first event or because of a guard."""
    while True:
        try:
            channel = socket(AF_UNIX, SOCK_STREAM)
            channel.connect(path)
            _check_peer(channel)
        except (FileNotFoundError, ConnectionRefusedError):
            if event != _FIRST and not (decide and _guarded(event, path, refusals)):
                raise
            sleep(_POLL)
        else:
            return channel


def _check_peer(channel: socket) -> None:
    """Raise OSError if another user is listening (unix(7), SO_PEERCRED: pid, uid, gid)."""
    if _PEERCRED is not None:
        uid = int.from_bytes(channel.getsockopt(SOL_SOCKET, _PEERCRED, 12)[4:8], sys.byteorder)
        if uid != posix.getuid():
            raise PermissionError("another user is listening")


def _read() -> bytes:
    """Return all of standard input, or nothing if it is longer than MAX_PAYLOAD."""
    parts: list[bytes] = []
    size = 0
    while data := posix.read(0, 1 << 20):
        size += len(data)
        if size > MAX_PAYLOAD:
            parts.clear()
        else:
            parts.append(data)
    return b"".join(parts)


if __name__ == "__main__":
    main(sys.argv)
    posix._exit(0)  # skips the interpreter's clean-up, which takes a millisecond
