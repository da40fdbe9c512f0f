"""The program that agents call as their hook: hands the event to the session, prints the verdict.

    PYTHON -I -S client.py hook pretooluse SOCKET AGENT            observes: never prints
    PYTHON -I -S client.py hook decide EVENT SOCKET AGENT          prints what the session answers

    stdin ──→ {"op": "hook", "agent": A, "event": E, "decide": bool, "payload": TEXT}
              " "                                 the session has it, and thinks
              {"stdout": TEXT, "code": 0}    ──→ stdout
              {"op": "hook_printed"}              the agent has been told

Whatever goes wrong, an agent is never disturbed: nothing is printed and the exit code is 0.  Agents wait for
this program at each of their steps, so it starts with what is built into the interpreter alone (`json`,
`socket` and `signal` would double its time).
"""

import _signal  # type: ignore[import-not-found]  # typeshed does not have it
import posix
import sys
from _json import encode_basestring, scanstring
from _socket import AF_UNIX, SOCK_STREAM, socket
from time import sleep

TAKEN = 3.0
"""Seconds until the session has taken the event. One that is gone or frozen costs the agent no more."""

ANSWER = 90.0
"""Seconds that the session then has for its verdict: a rule may run for a minute (docs/NATIVE.md)."""

MAX_PAYLOAD = 24 << 20
"""Bytes of one event, such as a Write with the whole file in it; of a longer one only that it was."""

_FIRST = "SessionStart"
"""An agent's first event, which comes while its session is still loading."""

_POLL = 0.02  # seconds between two tries

_BEGINNING = '{"stdout": '


def main(argv: list[str]) -> None:
    """Run `argv` as in the module docstring."""
    match argv:
        case [_, "hook", "decide", event, path, agent]:
            hook(event, path, agent, decide=True)
        case [_, "hook", event, path, agent]:
            hook(event, path, agent, decide=False)


def hook(event: str, path: str, agent: str, *, decide: bool) -> None:
    """Take the event's JSON from standard input to the session that listens at `path`."""
    try:
        _signal.signal(_signal.SIGALRM, _expire)
        _signal.setitimer(_signal.ITIMER_REAL, TAKEN)
        payload = _read()
        channel = _connect(path, patient=event == _FIRST)
        text = payload.decode("utf-8", "replace")
        fields = (
            f'{{"op": "hook", "agent": {encode_basestring(agent)}, "event": {encode_basestring(event)}, '
            f'"decide": {"true" if decide else "false"}, "payload": {encode_basestring(text)}}}\n'
        )
        channel.sendall(fields.encode("utf-8", "replace"))
        if not (answer := channel.recv(1 << 16)):
            return
        _signal.setitimer(_signal.ITIMER_REAL, ANSWER)
        while not answer.endswith(b"\n"):
            if not (more := channel.recv(1 << 16)):
                return
            answer += more
        said = answer.decode().lstrip()
        if not decide or not said.startswith(_BEGINNING + '"'):
            return
        verdict, _ = scanstring(said, len(_BEGINNING) + 1, True)
        rest = verdict.encode("utf-8", "replace")
        while rest:
            rest = rest[posix.write(1, rest) :]
        channel.sendall(b'{"op": "hook_printed"}\n')
    except BaseException:  # noqa: BLE001, S110 (the agent must not be disturbed, by an interrupt neither)
        pass


def _connect(path: str, *, patient: bool) -> socket:
    """A connection to the session. `patient`: it may be about to listen, for agents start before it does."""
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
    """Standard input to its end; nothing of what is longer than MAX_PAYLOAD."""
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
