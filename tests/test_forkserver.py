"""A process from the fork server is like one that execve(2) started, in all that tests look at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import forkserver
from support import Relay, processes_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")


@pytest.fixture(params=["forked", "executed"])
def following(request: pytest.FixtureRequest, relay: Relay) -> Iterator[subprocess.Popen[str]]:
    """Yield `relay events -f` once it follows the journal."""
    journal = relay.home / "state" / "events.jsonl"
    journal.parent.mkdir(mode=0o700)
    journal.write_text('{"time": 0, "event": "notice", "session": "s", "name": "A", "text": "started"}\n')
    with ExitStack() as stack:
        if request.param == "executed":
            stack.enter_context(forkserver.real_exec())
        process = stack.enter_context(
            subprocess.Popen(
                [*relay.command, "events", "-f"],
                env={**relay.environment, "LEFT": "é=1"},
                cwd=relay.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdout is not None
        assert "started" in process.stdout.readline()
        yield process
        process.kill()


def test_a_process_has_its_own_command_line_environment_and_directory(
    relay: Relay, following: subprocess.Popen[str]
) -> None:
    shown = Path("/proc", str(following.pid))
    assert (shown / "cmdline").read_bytes().split(b"\0")[:-1] == [
        os.fsencode(word) for word in (*relay.command, "events", "-f")
    ]
    variables = (shown / "environ").read_bytes().split(b"\0")
    assert {"LEFT=é=1".encode(), f"RELAY_HOME={relay.home}".encode()} <= set(variables)
    assert not any(name.startswith(b"PYTEST") for name in variables)
    assert (shown / "cwd").readlink() == relay.home
    assert f"\nPPid:\t{os.getpid()}\n" in (shown / "status").read_text()
    assert following.pid in processes_of(relay.home)


def test_a_process_inherits_only_its_standard_descriptors(following: subprocess.Popen[str]) -> None:
    opened = {path.name: str(path.readlink()) for path in Path("/proc", str(following.pid), "fd").iterdir()}
    assert opened["0"] == "/dev/null" and opened["1"].startswith("pipe:")
    ours = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    assert not ours & {name for number, name in opened.items() if int(number) > 2}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_process_ends_by_signals_as_it_should(
    following: subprocess.Popen[str], number: int, code: int
) -> None:
    following.send_signal(number)
    assert following.wait(60) == code


@pytest.mark.parametrize("arguments", [["ps"], ["bogus"], ["send"], ["--version"]])
def test_output_and_exit_code_are_the_same(relay: Relay, arguments: list[str]) -> None:
    forked = relay(*arguments, check=False)
    with forkserver.real_exec():
        executed = relay(*arguments, check=False)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        executed.returncode,
        executed.stdout,
        executed.stderr,
    )


def test_a_session_is_forked_too_and_looks_executed(relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Alice", "cat")
    session = [sys.executable, "-P", str(forkserver.ROOT / "relay" / "session" / "__main__.py")]
    commands = [command.split()[:3] for command in processes_of(relay.home).values()]
    assert session in commands  # more than once while the session starts its broker


def test_a_command_that_python_would_start_differently_is_executed(relay: Relay) -> None:
    assert forkserver.warm(relay.command, [b"LC_ALL=C.UTF-8", b"RELAY_HOME=/x"])
    for variable in (b"PYTHONPATH=/x", b"PYTHONUTF8=0", b"COVERAGE_PROCESS_START=x"):
        assert not forkserver.warm(relay.command, [b"LC_ALL=C.UTF-8", variable])
    assert not forkserver.warm(relay.command, [b"LC_ALL=C"])
    assert not forkserver.warm([sys.executable, "-c", "pass"], [b"LC_ALL=C.UTF-8"])
    with forkserver.real_exec():
        assert not forkserver.warm(relay.command, [b"LC_ALL=C.UTF-8"])


FLEET = """
[agents.Ann]
run = ["cat"]
[agents.Bob]
run = ["no-such-program"]
"""


def test_what_relay_starts_is_the_same(relay: Relay) -> None:
    """`relay up` starts `relay wrap`: one agent runs, and one fails."""
    (relay.home / "relay.toml").write_text(FLEET)
    relay("trust", "relay.toml")
    forked = relay("up", check=False)
    rows = [row["name"] for row in json.loads(relay("ps", "--json").stdout)]
    relay("down")
    with forkserver.real_exec():
        executed = relay("up", check=False)
    assert rows == ["Ann"]
    assert forked.returncode == executed.returncode == 1
    outputs = {re.sub(r"\d+", "PID", run.stdout + run.stderr) for run in (forked, executed)}
    assert len(outputs) == 1
    assert "Ann is running" in min(outputs)
