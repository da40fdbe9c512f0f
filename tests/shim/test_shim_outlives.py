"""A shim outlives an update of relay, and its own bugs; so does its agent."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.session.launch import LOADED
from relay.shim.loop import MAX_LOGGED, Loop
from session.fake_agent import FakeAgent, events, ps
from support import LONG, Relay, wait_until
from terminal.emulator import Emulator

RELAY = re.compile(r"relay(\.|$)").match

ROOT = Path(__file__).parent.parent.parent

PARTS = ("relay", "config", "patterns")
"""What an installation consists of."""


class Installed:
    """A copy of relay that runs the agent Alice; an update replaces its files."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.folder = relay.home / "installed"
        self.install()
        self.environment = {"PYTHONPATH": str(self.folder)}

    def install(self) -> None:
        for name in PARTS:
            shutil.copytree(ROOT / name, self.folder / name, dirs_exist_ok=True)

    def replace(self) -> None:
        """Replace every module with one that does not fit those in the shim's memory."""
        for path in (self.folder / "relay").rglob("*.py"):
            path.write_text("raise ImportError('another version')\n")

    def remove(self) -> None:
        for name in PARTS:
            shutil.rmtree(self.folder / name)


def status(relay: Relay) -> dict[str, Any]:
    return ask(relay, op="status")


def ask(relay: Relay, **request: Any) -> dict[str, Any]:
    """Send a request to Alice's shim, and return the answer."""
    with connect(relay) as channel:
        return answer(channel, **request)


def connect(relay: Relay) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(60)
    channel.connect(str(relay.home / "run" / "sessions" / "default" / "alice.shim"))
    return channel


def answer(channel: socket.socket, **request: Any) -> dict[str, Any]:
    channel.sendall(json.dumps(request).encode() + b"\n")
    with channel.makefile("rb") as stream:
        return dict(json.loads(stream.read()))  # until the shim has closed it


def test_a_shim_outlives_an_update(relay: Relay) -> None:
    """The shim needs nothing from the disk, whatever is requested."""
    installed = Installed(relay)
    alice = FakeAgent(relay, "Alice").wrap(env=installed.environment)
    before = wait_until(lambda: (found := status(relay))["ready"] and found)
    installed.replace()

    # No session starts, so the shim does what it can without one.
    assert "the new session failed" in relay("reload", "Alice", check=False).stderr
    alice.say("still here")
    terminal = Emulator([*relay.command, "attach", "Alice"], relay.environment)
    try:
        terminal.see("still here")
        terminal.type(b"\x1d?")
        help_ = terminal.see("detach; the agent keeps running")
        terminal.type(b"x")
        terminal.see("still here", after=help_)
        terminal.type(b"to the agent\r")
        alice.receives("to the agent")
        terminal.type(b"\x1dd")
        assert terminal.end() == 0
    finally:
        terminal.close()

    installed.install()
    relay("reload", "Alice")
    relay("send", "--wait", "60", "Alice", "to the new session")
    alice.receives("to the new session")
    after = status(relay)
    assert (after["agent_pid"], after["terminal_pid"]) == (before["agent_pid"], before["terminal_pid"])


def test_an_agent_outlives_an_upgrade_from_earlier_versions(relay: Relay, subtests: pytest.Subtests) -> None:
    """D18: from each of the last fifty commits in `make test-long`, else from the first of them."""
    command = ["git", "rev-list", "--max-count=50", "HEAD", "--", "relay"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    versions = log.stdout.split()
    if len(versions) < 50:
        pytest.skip("THE GIT HISTORY IS NOT HERE: no upgrade from an earlier version was tested")
    installed = Installed(relay)
    for version in versions if LONG else versions[-1:]:
        with subtests.test(version[:9]):
            installed.remove()
            archive = subprocess.run(
                ["git", "archive", version, *PARTS], cwd=ROOT, capture_output=True, check=True
            )
            subprocess.run(["tar", "-x"], cwd=installed.folder, input=archive.stdout, check=True)
            alice = FakeAgent(relay, "Alice").wrap(env=installed.environment)
            before = wait_until(lambda: (found := status(relay))["ready"] and found)
            installed.remove()
            installed.install()
            relay("reload", "Alice", env=installed.environment)
            alice.say(f"@relay:you from {version}")
            journal = relay.home / "state" / "events.jsonl"
            wait_until(lambda: f"from {version}" in journal.read_text())  # noqa: B023 (called at once)
            after = status(relay)
            assert (after["agent_pid"], after["terminal_pid"]) == (
                before["agent_pid"],
                before["terminal_pid"],
            )
            alice.exit()
            wait_until(alice.ended)


def test_an_agent_may_not_exploit_an_update(relay: Relay) -> None:
    """Even without relay's files, the shim knows its agent's descendants, and notes its refusal."""
    installed = Installed(relay)
    asked = relay.home / "asked"
    path = relay.home / "run" / "sessions" / "default" / "alice.shim"
    (relay.home / "ask.py").write_text(
        "import socket\n"
        "channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\n"
        f"channel.connect({str(path)!r})\n"
        'channel.sendall(b\'{"op": "reload"}\\n\')\n'
        "print(channel.makefile().readline())\n"
    )
    os.mkfifo(relay.home / "updated")
    script = f"read line < updated; {sys.executable} ask.py > answer; mv answer asked; cat"
    relay("wrap", "-d", "-n", "Alice", "sh", "-c", script, env=installed.environment)
    before = wait_until(lambda: (found := status(relay))["ready"] and found)
    installed.remove()
    (relay.home / "updated").write_text("\n")
    wait_until(asked.exists)
    answered = json.loads(asked.read_text())
    assert answered["type"] == "NotAllowed"
    assert answered["error"].startswith("an agent may not request 'reload'.")
    assert "which belongs to Alice" in answered["error"]
    refused = next(e for e in events(relay) if e["event"] == "refused")
    assert (refused["operation"], refused["name"]) == ("reload", "Alice")
    assert refused["session"] == next(e for e in events(relay) if e["event"] == "session_start")["session"]
    assert status(relay)["agent_pid"] == before["agent_pid"]


ORDERS = re.findall(
    r'^ {12}"(\w+)": (?!self.ended|.*_say_over)',
    "".join((ROOT / "relay" / "shim" / name).read_text() for name in ("session_process.py", "shim.py")),
    re.MULTILINE,
)

SPEAKS_OTHERWISE = f"""
import json, socket, sys
shim = socket.socket(fileno=int(sys.argv[1]))
shim.recv(1)
lines = [{{"do": name, **fields}} for name in {ORDERS} for fields in (
    {{"of_another_version": 1}}, {{"data": 7}}, {{"id": None, "data": None}}, {{"text": [], "key": 1}}
)]
lines += [{{"do": "of another version"}}, {{"do": 7}}, {{"ask": "look"}}, {{"ask": "?", "group": "x"}}, {{}}]
for line in lines:
    shim.sendall(json.dumps(line).encode() + b"\\n")
sys.exit(3)
"""


def test_a_shim_outlives_sessions_of_another_version(relay: Relay) -> None:
    """They may give orders that it does not know, or with other arguments."""
    assert {"write", "keep", "start", "pause", "aside", "notice"} <= {*ORDERS}
    installed = Installed(relay)
    alice = FakeAgent(relay, "Alice").wrap(env=installed.environment)
    before = wait_until(lambda: (found := status(relay))["ready"] and found)
    (installed.folder / "relay" / "session" / "__main__.py").write_text(SPEAKS_OTHERWISE)
    assert "the new session failed" in relay("reload", "Alice", check=False).stderr
    assert "TypeError" in (relay.home / "state" / "session.log").read_text()
    alice.say("still here")
    installed.install()
    relay("reload", "Alice")
    alice.say("@relay:you still here")
    wait_until(lambda: [e for e in events(relay) if e["event"] == "message_sent"])
    after = status(relay)
    assert (after["agent_pid"], after["terminal_pid"]) == (before["agent_pid"], before["terminal_pid"])


NEVER_LATE = {
    *("wrap", "_report", "_enter_worktree", "_be_shim", "bridged", "_note_guards", "_wants_mcp"),
    "_import_kind",  # earlier
    "_ending",  # in whoever claims a name
    "_start_session",  # in a child process
    "_note_failure",  # which catches everything
}
"""Functions that may import modules which are not loaded."""


def test_late_imports_are_loaded_at_startup() -> None:
    """Of all modules that a shim has, not only of its own package."""
    code = "from relay.session import launch; launch._load(); import sys; print(*sys.modules)"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {word: importlib.import_module(word) for word in words.split() if RELAY(word)}
    assert {*LOADED} <= loaded.keys()
    late = {
        (function.name, name)
        for module in loaded.values()
        for function in ast.walk(ast.parse(Path(module.__file__ or "").read_text()))
        if isinstance(function, ast.FunctionDef) and function.name not in NEVER_LATE
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or node.names[0].name]
        if RELAY(name)
    }
    assert {each for each in late if each[1] not in loaded} == set()


GAPS = 8
"""More than the unused numbers between a shim's descriptors."""


def patched(relay: Relay, code: str) -> FakeAgent:
    """Start Alice in a shim that runs `code` first."""
    changed = Relay(relay.home)
    changed.command[1:] = ["-c", f"{code}\nimport sys\nfrom relay.__main__ import main\nsys.exit(main())"]
    alice = FakeAgent(changed, "Alice").wrap()
    wait_until(lambda: status(relay)["ready"])
    return alice


BUGS = """
from relay.shim.session_process import SessionProcess
from relay.shim.terminals import TerminalServer

def broken(self, *arguments):
    raise RuntimeError("a bug")

SessionProcess.replace = TerminalServer._ask_repaint = broken
"""


def test_a_bug_is_reported_and_logged(relay: Relay) -> None:
    alice = patched(relay, BUGS)
    before = status(relay)
    result = relay("reload", "Alice", check=False)
    assert result.returncode == 1
    assert "reload failed (RuntimeError: a bug). See session.log." in result.stderr
    assert "RuntimeError: a bug" in (relay.home / "state" / "session.log").read_text()
    terminal = Emulator([*relay.command, "attach", "Alice"], relay.environment)
    try:
        terminal.see("attach failed (RuntimeError: a bug). See session.log.")
        terminal.end()
        assert terminal.restored()
    finally:
        terminal.close()
    alice.say("still here")
    assert status(relay)["agent_pid"] == before["agent_pid"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit(2)")
def test_a_shim_outlives_a_lack_of_descriptors(relay: Relay) -> None:
    """The only free one is for the connection: none is left to see who asks, or to start a session."""
    alice = FakeAgent(relay, "Alice").wrap()
    before = wait_until(lambda: (found := status(relay))["ready"] and found)
    shim = before["terminal_pid"]

    def used() -> set[int]:
        return {int(path.name) for path in Path(f"/proc/{shim}/fd").iterdir()}

    limits = resource.prlimit(shim, resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:

        def hold() -> tuple[socket.socket, int]:
            """Return an idle connection, and the number that it has in the shim."""
            before = used()
            channel = stack.enter_context(connect(relay))
            return channel, min(wait_until(lambda: used() - before))

        for _ in range(GAPS):  # they take the free numbers below that of the last one
            channel, number = hold()
        resource.prlimit(shim, resource.RLIMIT_NOFILE, (number, limits[1]))
        failed = "reload failed (OSError: [Errno 24] Too many open files"
        assert failed in answer(channel, op="reload")["error"]
        os.kill(before["pid"], signal.SIGKILL)
        # Now the last session's descriptor is free, and then that of its listener.
        wait_until(lambda: "Too many open files" in status(relay)["failed"])
        hold()
        assert failed in ask(relay, op="reload")["error"]
    resource.prlimit(shim, resource.RLIMIT_NOFILE, limits)
    alice.say("still here")
    relay("reload", "Alice")
    assert [row["agent_pid"] for row in ps(relay)] == [before["agent_pid"]]


def fail(*_: object) -> None:
    raise RuntimeError("a bug")


def test_a_failing_callback_delays_no_other(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.shim.loop.RESPITE", 0.0)
    loop, called = Loop(), list[str]()
    calls: list[Callable[[object], None]] = [fail, lambda _: called.append("ready")]
    pipes = [os.pipe() for _ in calls]
    for (read, write), call in zip(pipes, calls, strict=True):
        loop.add(read, select.POLLIN, call)
        os.write(write, b"x")
    loop.later(0.0, lambda: fail())
    loop.later(0.0, lambda: called.append("due"))
    while "due" not in called:
        loop.turn()
    assert called[0] == "ready"
    shown = capfd.readouterr().err
    assert shown.count("RuntimeError: a bug") >= 2 and "in fail" in shown
    for _ in range(MAX_LOGGED):
        loop.turn()
    assert capfd.readouterr().err.count("RuntimeError: a bug") < MAX_LOGGED
    for fd in (fd for pair in pipes for fd in pair):
        os.close(fd)
