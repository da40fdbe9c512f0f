"""The hook client that agents call: what it sends and prints, and that it never disturbs them."""

from __future__ import annotations

import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.agents import hook_client, hook_guards, hook_setup, kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Reply
from support import PATIENCE

Json = dict[str, Any]


class FakeSession:
    """Answers one event at `path` with `answers`, piece by piece, and records what it receives.

    exits: it ends as soon as it has answered.
    """

    def __init__(self, path: Path, *answers: bytes, exits: bool = False) -> None:
        self.path = str(path)
        self._exits = exits
        self.received: list[Json] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        channel, _ = self._listener.accept()
        with channel, channel.makefile("rb") as lines:
            self.received.append(json.loads(lines.readline()))
            for answer in self._answers:
                channel.sendall(answer)
            if self._exits:
                self._listener.close()  # no other session follows
            else:
                self.received += [json.loads(line) for line in lines]

    def end(self) -> list[Json]:
        """Return what it has received, once the client has exited."""
        self._thread.join(20)
        self._listener.close()
        return self.received


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "s.sock"


@functools.cache
def client(agent: str) -> str:
    """Return the path of the client as `relay wrap` writes it for a run of `agent`, but more patient."""
    path = Path(tempfile.mkdtemp(prefix="client-")) / "hook_client.py"
    path.write_text(hook_setup.client_for(agent).replace("\nTAKEN = 3.0\n", f"\nTAKEN = {PATIENCE}\n"))
    return str(path)


def call(agent: str, path: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-S", client(agent), "hook", *words, path, agent]


def run(
    path: Path | str, *words: str, payload: bytes = b"{}", agent: str = "claude"
) -> subprocess.CompletedProcess[bytes]:
    command = call(agent, str(path), *words)
    return subprocess.run(command, input=payload, capture_output=True, timeout=60, check=False)


def silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


def line(answer: Json) -> bytes:
    return json.dumps(answer).encode() + b"\n"


VERDICT = '{"decision": "block", "reason": "no “way”\\n"}'


def test_a_decider_prints_what_the_session_answers(path: Path) -> None:
    session = FakeSession(path, b" ", line({"stdout": VERDICT, "code": 0}))
    done = run(path, "decide", "PreToolUse", payload='{"prompt": "“x”\\n"}'.encode())
    assert (done.stdout.decode(), done.stderr, done.returncode) == (VERDICT, b"", 0)
    assert session.end() == [
        {
            "op": "hook",
            "agent": "claude",
            "event": "PreToolUse",
            "decide": True,
            "payload": '{"prompt": "“x”\\n"}',
        },
        {"op": "hook_printed"},
    ]


def test_an_observer_prints_nothing_whatever_the_answer(path: Path) -> None:
    """R92"""
    session = FakeSession(path, b" ", line({"stdout": VERDICT, "code": 0}))
    assert silent(run(path, "pretooluse"))
    (received,) = session.end()
    assert (received["event"], received["decide"]) == ("pretooluse", False)


TOOL = {
    agent: next(own for own, name in kinds.find(agent).events.items() if name is NativeName.TOOL_PRE)
    for agent in kinds.hooked()
}
"""By agent, its name for the event at which a guard can refuse a tool call."""

FIELDS = {"stdout": VERDICT, "code": 0, "note": [1.5, None, {"stdout": "not this"}]}

READABLE = {
    **{
        f"keys {' '.join(order)}": line({key: FIELDS[key] for key in order})
        for order in itertools.permutations(FIELDS)
    },
    "no blanks": json.dumps(FIELDS, separators=(",", ":")).encode() + b"\n",
    "many blanks": b" \t " + json.dumps(FIELDS, indent=4).replace("\n", "\r").encode() + b" \r\n",
    "written as UTF-8": json.dumps(FIELDS, ensure_ascii=False).encode() + b"\n",
    "an escaped key": line({"code": 0}).replace(
        b"{", b'{"std\\u006fut": ' + json.dumps(VERDICT).encode() + b", "
    ),
    "a key twice": line(FIELDS).replace(b"{", b'{"stdout": "an older one", ', 1),
    "NaN": line(FIELDS | {"code": float("nan")}),
    "without a line feed": json.dumps(FIELDS).encode(),
}
UNREADABLE = {
    "not JSON": b"Traceback (most recent call last):\n",
    "a string cut off": b'{"code": 0, "stdout": "cut o',
    "an object cut off": b'{"stdout": "{}", "code": 0',
    "one byte": b"{",
    "an empty line": b"\n",
    "followed by more": b'{"stdout": "{}"} {"stdout": "{}"}\n',
    "a bad escape": b'{"stdout": "\\x"}\n',
    "not UTF-8": b"\xff\xfe\n",
    "a control character": b'{"stdout": "\x01"}\n',
    "a number": b'{"stdout": 7}\n',
    "null": b'{"stdout": null}\n',
    "a list": b'{"stdout": ["{}"]}\n',
    "an object": b'{"stdout": {"stdout": "{}"}}\n',
    "no stdout": b'{"code": 0}\n',
    "another case": b'{"Stdout": "{}"}\n',
    "not an object": b'["stdout", "{}"]\n',
    "a string": b'"stdout"\n',
    "nested too deeply": b'{"x": ' + b"[" * 100_000 + b"\n",
    "a failure": line({"error": "the session failed to do that", "type": "RelayError"}),
}


def answers(kind: dict[str, bytes]) -> list[Any]:
    """Return each answer for claude, and one for each other agent: they differ in what they deny."""
    others = [agent for agent in TOOL if agent != "claude"]
    found = [("claude", name) for name in kind] + [(agent, next(iter(kind))) for agent in others]
    return [pytest.param(agent, kind[name], id=f"{agent}-{name}") for agent, name in found]


@pytest.mark.parametrize(("agent", "answer"), answers(READABLE))
def test_an_answer_is_read_in_any_json_formatting(path: Path, agent: str, answer: bytes) -> None:
    """Other fields and text around the verdict do not change it."""
    session = FakeSession(path, b" ", answer, exits=not answer.endswith(b"\n"))
    done = run(path, "decide", TOOL[agent], agent=agent)
    assert (done.stdout.decode(), done.stderr, done.returncode) == (VERDICT, b"", 0)
    assert len(session.end()) == 1 + answer.endswith(b"\n")


@pytest.mark.parametrize(("agent", "answer"), answers(UNREADABLE))
def test_an_unreadable_answer_denies_a_tool_call(path: Path, agent: str, answer: bytes) -> None:
    session = FakeSession(path, b" ", answer, exits=not answer.endswith(b"\n"))
    done = run(path, "decide", TOOL[agent], agent=agent)
    event = NativeEvent(NativeName.TOOL_PRE, agent, event=TOOL[agent])
    denial = json.loads(kinds.find(agent).render(event, Reply(deny=hook_client.UNREADABLE)))
    assert (json.loads(done.stdout), done.stderr, done.returncode) == (denial, b"", 0)
    assert "relay explain" in done.stdout.decode()
    assert "session.log" in done.stdout.decode()
    assert len(session.end()) == 1, "the session's answer is not reported as printed"


@pytest.mark.parametrize("event", ["pretooluse", "tool_pre", "BEFORETOOL"])
def test_a_tool_call_is_recognised_by_each_of_its_names(path: Path, event: str) -> None:
    """A user's own entry may omit the kind of agent and spell the event in any way."""
    session = FakeSession(path, b" ", b"?\n")
    assert hook_client.UNREADABLE in run(path, "decide", event, agent="").stdout.decode()
    session.end()


def test_an_incomplete_answer_denies_a_tool_call(path: Path) -> None:
    """The session starts to answer, then freezes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        code = FROZEN.format("ANSWER", str(path)).replace("Stop", "PreToolUse")
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        channel, _ = listener.accept()
        with channel:
            channel.sendall(b' {"stdout": ')
            printed, _ = process.communicate(timeout=60)
    assert b'"deny"' in printed


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (agent, name)
        for agent in TOOL
        for name in (NativeName if agent == "claude" else hook_guards.GUARDED)  # the clients know only these
        if name is not NativeName.TOOL_PRE
    ],
)
def test_an_unreadable_answer_does_not_affect_other_events(path: Path, agent: str, name: NativeName) -> None:
    """If nothing is printed for a permission, the agent asks the user."""
    for event in (own for own, each in kinds.find(agent).events.items() if each is name):
        session = FakeSession(path, b" ", b'{"code": 0}\n', exits=True)
        assert silent(run(path, "decide", event, agent=agent))
        assert len(session.end()) == 1
        path.unlink()


@pytest.mark.parametrize("agent", TOOL)
@pytest.mark.parametrize(
    "answers",
    [
        (),
        (b" ",),
        (b" ", line({"error": "not for you", "type": "NotAllowed"})),
    ],
    ids=["closed", "taken and closed", "refused"],
)
def test_nothing_is_printed_without_an_answer(path: Path, agent: str, answers: tuple[bytes, ...]) -> None:
    """The session has ended, or does not control this agent."""
    session = FakeSession(path, *answers, exits=True)
    assert silent(run(path, "decide", TOOL[agent], agent=agent))
    assert len(session.end()) == 1


@pytest.mark.parametrize("partial", [b"", b" ", b' {"stdout": '])
def test_an_event_passes_to_the_next_session_if_one_ends(path: Path, partial: bytes) -> None:
    """The shim keeps the socket: the next session gets the same event and answers it."""
    received = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        command = call("claude", str(path), "decide", "PreToolUse")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for answer in (partial, b" " + line({"stdout": VERDICT, "code": 0})):
            channel, _ = listener.accept()
            with channel, channel.makefile("rb") as lines:
                received.append(json.loads(lines.readline()))
                channel.sendall(answer)
        printed, _ = process.communicate(timeout=60)
    assert printed.decode() == VERDICT
    assert received[0] == received[1]


def test_nothing_is_printed_without_a_session(path: Path) -> None:
    """R92: there is no socket, or no process listens on it."""
    assert silent(run(path, "decide", "Stop"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        assert silent(run(path, "decide", "Stop"))
    assert silent(run("x" * 500, "decide", "Stop"))


def test_the_first_event_waits_until_its_session_listens(path: Path) -> None:
    """R91: agents start before their sessions do."""
    process = subprocess.Popen(
        call("claude", str(path), "decide", "SessionStart"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(str(path))  # no process listens on it yet
        assert process.stdin is not None
        process.stdin.write(b"{}")
        process.stdin.flush()
    path.unlink()
    session = FakeSession(path, b" ", line({"stdout": "hello", "code": 0}))
    assert process.communicate(timeout=60)[0] == b"hello"
    assert session.end()[0]["event"] == "SessionStart"


def test_the_first_event_waits_no_longer_than_any_other(path: Path) -> None:
    code = FROZEN.format("TAKEN", str(path)).replace("Stop", "SessionStart")
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"", capture_output=True, timeout=60, check=False
    )
    assert silent(done)


FROZEN = (
    "from relay.agents import hook_client; hook_client.{} = 0.01; "
    "hook_client.hook('Stop', {!r}, 'claude', lambda: "
    + repr(hook_setup.refusals("claude")).replace("{", "{{").replace("}", "}}")
    + ", decide=True)"
)


@pytest.mark.parametrize("limit", ["TAKEN", "ANSWER"])
def test_a_frozen_session_does_not_block_the_agent(path: Path, limit: str) -> None:
    """R92: one session never takes the event, another never answers it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        code = FROZEN.format(limit, str(path))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.close()
        channel, _ = listener.accept()
        with channel:
            if limit == "ANSWER":
                channel.sendall(b" ")
            assert process.wait(timeout=60) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            assert process.stdout.read() + process.stderr.read() == b""


GUARDED = [
    (agent, event, name)
    for agent in kinds.hooked()
    for event, name in kinds.find(agent).events.items()
    if name in hook_guards.GUARDED
]
"""Each agent's names for the events that may be guarded."""


def unanswered(path: Path, event: str, agent: str, *, taken: float = 0.01, patch: str = "") -> str:
    """Return what is printed for `event` if no session answers in time. patch: code that runs first."""
    rows = hook_setup.refusals(agent)
    code = (
        "from relay.agents import hook_client\n"
        f"hook_client.TAKEN, hook_client.GUARDED_TIMEOUT = {taken}, 0.05\n"
        f"{patch}\n"
        f"hook_client.hook({event!r}, {str(path)!r}, {agent!r}, lambda: {rows!r}, decide=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"{}", capture_output=True, timeout=60, check=False
    )
    assert (done.stderr, done.returncode) == (b"", 0)
    return done.stdout.decode()


@pytest.mark.parametrize("listens", [False, True], ids=["given up", "stopped"])
@pytest.mark.parametrize(("agent", "event", "name"), GUARDED)
def test_a_guarded_event_asks_or_is_denied_if_no_session_answers(
    path: Path, agent: str, event: str, name: NativeName, listens: bool
) -> None:
    """The answer has the reason and the next step, in the agent's own format."""
    hook_guards.write(str(path), "Zoë", {name})
    reason = hook_client.UNANSWERED.format("Zoë")
    native = NativeEvent(name, agent, event=event)
    can_ask = agent in {"claude", "copilot"} and name is NativeName.TOOL_PRE
    asks = Reply(ask=reason) if can_ask else Reply(deny=reason)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
        session.bind(str(path))
        if listens:
            session.listen()
        printed = unanswered(path, event, agent)
    assert json.loads(printed) == json.loads(kinds.find(agent).render(native, asks))
    assert "`relay reload Zoë`" in reason


@pytest.mark.parametrize("agent", kinds.hooked())
def test_without_a_client_only_a_guard_is_answered(
    path: Path, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an exit code nor a word on standard error: the agent would take them for an answer.

    The client's Python has gone, then the client itself, then the folder of the run.
    """
    for name in ("executable", "_base_executable"):
        monkeypatch.setattr(sys, name, str(tmp_path / "it's gone"))
    folder = tmp_path / "a run"
    hook_setup.prepare(agent, [agent], dict(os.environ), str(folder), str(path))

    def ask(*words: str) -> subprocess.CompletedProcess[bytes]:
        payload = b'{"x": "' + b"a" * (1 << 17) + b'"}'  # more than a pipe holds
        command = hook_setup.call(str(folder), *words)
        return subprocess.run(command, input=payload, capture_output=True, timeout=60, check=False)

    def check() -> None:
        hook_guards.write(str(path), "Ann", hook_guards.GUARDED)
        for event, name in kinds.find(agent).events.items():
            done = ask("decide", event)
            assert (done.stderr, done.returncode) == (b"", 0)
            if name in hook_guards.GUARDED:
                asks = agent in {"claude", "copilot"} and name is NativeName.TOOL_PRE
                reply = Reply(ask=hook_setup.GONE) if asks else Reply(deny=hook_setup.GONE)
                native = NativeEvent(name, agent, event=event)
                assert json.loads(done.stdout) == json.loads(kinds.find(agent).render(native, reply)), event
                hook_guards.write(str(path), "Ann", hook_guards.GUARDED - {name})
                assert silent(ask("decide", event))
                hook_guards.write(str(path), "Ann", hook_guards.GUARDED)
                assert silent(ask("pretooluse"))
            else:
                assert done.stdout == b"", event
        Path(hook_guards.path_of(str(path))).unlink()
        assert all(silent(ask("decide", event)) for event in kinds.find(agent).events)

    check()
    monkeypatch.undo()
    hook_setup.prepare(agent, [agent], dict(os.environ), str(folder), str(path))
    (folder / "hook_client.py").unlink()
    check()
    hook_setup.remove(str(folder))
    assert all(silent(ask("decide", event)) for event in kinds.find(agent).events)


@pytest.mark.parametrize(("agent", "event", "name"), GUARDED)
def test_an_unguarded_event_proceeds_if_no_session_answers(
    path: Path, agent: str, event: str, name: NativeName
) -> None:
    """R92: only other events are guarded, or none, or this run of relay is over."""
    hook_guards.write(str(path), "Ann", hook_guards.GUARDED - {name})
    assert unanswered(path, event, agent) == ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(str(path))
        stopped.listen()
        assert unanswered(path, event, agent) == ""
        hook_guards.write(str(path), "Ann", ())
        assert unanswered(path, event, agent) == ""
        hook_guards.write(str(path), "Ann", hook_guards.GUARDED)
        assert unanswered(path, "Stop", agent) == ""
        Path(hook_guards.path_of(str(path))).unlink()
        assert unanswered(path, event, agent) == ""


def test_a_time_limit_that_a_system_call_misses_is_enforced_again(path: Path) -> None:
    """The signal may come right before recv(2) blocks, or while the guards are read."""
    missed = """
signal, calls = hook_client._signal.signal, []
def miss_one(number, handler):
    signal(number, lambda *a: handler(*a) if calls else calls.append(a))
hook_client._signal.signal = miss_one
"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(str(path))
        stopped.listen()
        assert unanswered(path, "PreToolUse", "claude", patch=missed) == ""
    slow = """
class Slow:
    def __getattr__(self, name):
        if name == "O_RDONLY":
            hook_client.sleep(0.2)
        return getattr(posix, name)
posix, hook_client.posix = hook_client.posix, Slow()
"""
    path.unlink()
    hook_guards.write(str(path), "Zoë", hook_guards.GUARDED)
    assert "`relay reload Zoë`" in unanswered(path, "PreToolUse", "claude", patch=slow)


def test_an_unreadable_note_counts_as_a_guard(path: Path) -> None:
    Path(hook_guards.path_of(str(path))).mkdir()
    assert "`relay reload s`" in unanswered(path, "PreToolUse", "claude")


def test_a_guarded_event_is_answered_by_the_next_session(path: Path) -> None:
    """The event waits until a session listens, which then answers it once."""
    hook_guards.write(str(path), "Ann", {NativeName.TOOL_PRE})
    process = subprocess.Popen(
        call("claude", str(path), "decide", "PreToolUse"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(str(path))  # no process listens on it yet
    path.unlink()
    session = FakeSession(path, b" ", line({"stdout": VERDICT, "code": 0}))
    assert process.communicate(timeout=60)[0].decode() == VERDICT
    assert [each["op"] for each in session.end()] == ["hook", "hook_printed"]


@pytest.mark.parametrize("partial", [b"", b" "])
def test_a_guarded_event_asks_if_its_session_ends_without_a_successor(path: Path, partial: bytes) -> None:
    hook_guards.write(str(path), "Ann", {NativeName.TOOL_PRE})
    session = FakeSession(path, partial, exits=True)
    assert '"ask"' in unanswered(path, "PreToolUse", "claude", taken=20.0)
    assert len(session.end()) == 1


def test_a_guarded_event_asks_if_it_is_taken_but_never_answered(path: Path) -> None:
    hook_guards.write(str(path), "Ann", {NativeName.TOOL_PRE})
    session = FakeSession(path, b" ")
    code = FROZEN.format("ANSWER", str(path)).replace("Stop", "PreToolUse")
    done = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, timeout=60)
    assert b'"ask"' in done.stdout
    assert len(session.end()) == 1


def test_endless_standard_input_does_not_block_the_agent(path: Path) -> None:
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", FROZEN.format("TAKEN", str(path))],
            stdin=read,
            capture_output=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(read)
        os.close(write)
    assert silent(done)


def test_a_payload_of_five_megabytes_arrives(path: Path) -> None:
    text = "“line” \\ \x01\n" * 400_000
    payload = json.dumps({"tool_input": {"content": text}}, ensure_ascii=False).encode()
    session = FakeSession(path, b" ", line({"stdout": "{}", "code": 0}))
    assert run(path, "decide", "PreToolUse", payload=payload).stdout == b"{}"
    assert json.loads(session.end()[0]["payload"])["tool_input"]["content"] == text


def test_an_oversized_payload_is_sent_as_an_empty_one(path: Path) -> None:
    """R36: no tool call evades rules by its length."""
    session = FakeSession(path, b'{"stdout": "{}"}\n')
    assert (
        run(path, "decide", "PreToolUse", payload=b'{"x": "' + b"a" * hook_client.MAX_PAYLOAD + b'"}').stdout
        == b"{}"
    )
    assert session.end()[0]["payload"] == ""


def test_invalid_utf8_is_sent_with_replacement_characters(path: Path) -> None:
    """R87"""
    session = FakeSession(path, b" ", line({"stdout": "", "code": 0}))
    assert silent(run(path, "decide", "Stop", payload=b'\xff{"a"\x00'))
    assert session.end()[0]["payload"] == '\ufffd{"a"\x00'


def test_a_reply_that_the_agent_cannot_read_is_not_confirmed(path: Path) -> None:
    session = FakeSession(path, b" ", line({"stdout": "x" * 100_000, "code": 0}))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            call("claude", str(path), "decide", "Stop"),
            input=b"{}",
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(session.end()) == 1, "a lost reply is not reported as printed"


@pytest.mark.parametrize("words", [(), ("decide",), ("a", "b", "c")])
def test_an_invalid_command_line_prints_nothing(path: Path, words: tuple[str, ...]) -> None:
    assert silent(run(path, *words))


def test_the_client_imports_only_built_in_modules() -> None:
    """R97, and the speed of `relay hook`: no json, socket, os, re or site."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", hook_client.__file__],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "_json" in loaded
    assert not loaded & {"json", "socket", "os", "re", "site", "enum", "signal", "asyncio", "relay"}
