"""The program that agents call as their hook: hand the event to the session, print its answer.

    PYTHON -I -S hook_client.py hook pretooluse SOCKET AGENT       observes: never prints
    PYTHON -I -S hook_client.py hook decide EVENT SOCKET AGENT     prints what the session answers

    stdin ──→ {"op": "hook", "agent": A, "event": E, "decide": bool, "payload": TEXT}
              " "                                 the session has taken the event, and thinks
              {"stdout": TEXT, "code": 0}    ──→ stdout
              {"op": "hook_printed"}              the agent has its answer

A session that is gone, frozen or not this agent's never disturbs the agent: nothing is printed, and the exit
code is 0.  If it ends over an event and another one follows, that is asked again.  An answer that cannot be
read, or that no session gives though one is there, denies a tool call, because a rule may forbid it; other
events go on.

Agents wait for this program at each of their steps, so it imports only what is built into the interpreter:
`json`, `socket` and `signal` would double its start-up time.
"""

import _signal  # type: ignore[import-not-found]  # typeshed does not have it
import posix
import sys
from _json import encode_basestring, make_scanner
from _socket import AF_UNIX, SOCK_STREAM, socket
from time import sleep

TAKEN = 3.0
"""Seconds for the session to take the event; a session that is gone or frozen costs the agent no more."""

ANSWER = 90.0
"""Seconds for the session's answer after that: a rule may run for a minute (docs/NATIVE.md)."""

AGAIN = 10.0
"""Seconds for another session to take an event over which one has ended."""

TRIES = 3
"""Sessions that are asked, if each ends over the event."""

MAX_PAYLOAD = 24 << 20
"""Bytes of an event, such as a Write with the whole file in it. A longer one is sent without its payload."""

UNREADABLE = (
    "relay could not read what its session answered about this tool call, so the call is denied: a rule may "
    "forbid it. Ask the user to run `relay explain`, to look into session.log, and to run `relay reload`."
)
"""The reason of a denial that the session did not decide."""

_FIRST = "SessionStart"
"""An agent's first event, which comes while its session is still loading."""

_POLL = 0.02  # seconds between two attempts to connect


class _Json:
    """The options of the interpreter's JSON scanner, as `json.JSONDecoder` sets them."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # NaN, Infinity


def main(argv: list[str]) -> None:
    """Run the command line `argv`, as in the module docstring; do nothing for any other."""
    match argv:
        case [_, "hook", "decide", event, path, agent]:
            hook(event, path, agent, decide=True)
        case [_, "hook", event, path, agent]:
            hook(event, path, agent, decide=False)


def hook(event: str, path: str, agent: str, *, decide: bool) -> None:
    """Send the event's JSON from standard input to the session that listens at `path`.

    With `decide`, print the session's answer.  Raise nothing.
    """
    answer, again = b"", False
    try:
        try:
            _signal.signal(_signal.SIGALRM, _expire)
            _signal.setitimer(_signal.ITIMER_REAL, TAKEN)
            text = _read().decode("utf-8", "replace")
            channel = _connect(path, patient=event == _FIRST)
            request = (
                f'{{"op": "hook", "agent": {encode_basestring(agent)}, "event": {encode_basestring(event)}, '
                f'"decide": {"true" if decide else "false"}, "payload": {encode_basestring(text)}}}\n'
            )
            for _ in range(TRIES):
                answer = b""
                channel.sendall(request.encode("utf-8", "replace"))
                while not answer.endswith(b"\n") and (more := channel.recv(1 << 16)):
                    if not answer:
                        _signal.setitimer(_signal.ITIMER_REAL, ANSWER)
                    answer += more
                if not decide or answer.endswith(b"\n"):
                    break
                # The session has ended over it; if another one follows, it is asked the same.
                again = False
                _signal.setitimer(_signal.ITIMER_REAL, AGAIN)
                channel = _connect(path, patient=False)
                again = True
        except BaseException:  # noqa: BLE001, S110 (what has arrived by then counts)
            pass
        if not decide or not (again or answer.strip(b" ")):
            return
        if not answer.strip(b" "):
            _print(_denial(event, agent))
            return
        try:
            verdict = _stdout(answer)
        except Exception:  # noqa: BLE001 (whatever is wrong with it, a guard was asked)
            _print(_denial(event, agent))
            return
        if verdict is not None:
            _print(verdict)
            channel.sendall(b'{"op": "hook_printed"}\n')
    except BaseException:  # noqa: BLE001, S110 (the agent must not be disturbed, by an interrupt neither)
        pass


def _stdout(answer: bytes) -> str | None:
    """Return the text that `answer` has for the agent; None if the session refuses to hear this agent.

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


def _denial(event: str, agent: str) -> str:
    """Return what denies the tool call that `event` is about; "" for another event.

    The forms are those of `relay.agents.hook_reply.render`.
    """
    reason = encode_basestring(UNREADABLE)
    name = event.lower()
    if name == "beforetool" or (name == "tool_pre" and agent == "gemini"):
        return f'{{"decision": "deny", "reason": {reason}}}'
    if name in ("pretooluse", "tool_pre"):
        return (
            '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", '
            f'"permissionDecisionReason": {reason}}}}}'
        )
    return ""


def _print(text: str) -> None:
    rest = text.encode("utf-8", "replace")
    while rest:
        rest = rest[posix.write(1, rest) :]


def _connect(path: str, *, patient: bool) -> socket:
    """Connect to the session; with `patient`, wait until it listens: agents start before their sessions."""
    while True:
        try:
            channel = socket(AF_UNIX, SOCK_STREAM)
            channel.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if not patient:
                raise
            sleep(_POLL)
        else:
            return channel


def _read() -> bytes:
    """Return standard input to its end, or nothing if it is longer than MAX_PAYLOAD."""
    parts: list[bytes] = []
    size = 0
    while data := posix.read(0, 1 << 20):
        size += len(data)
        if size > MAX_PAYLOAD:
            parts.clear()
        else:
            parts.append(data)
    return b"".join(parts)


def _expire(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    main(sys.argv)
    posix._exit(0)  # what the interpreter tidies at its end takes a millisecond
