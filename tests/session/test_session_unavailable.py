"""Sessions that cannot start: the agent keeps running, this is reported, and `relay reload` retries."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import forkserver
from relay.__main__ import main
from relay.cli import reload, stop
from relay.control.sessions import call
from relay.session.log import LARGE_LOG
from session.fake_agent import FakeAgent, ps
from session.test_session_replaced import entry
from support import PATIENCE, Relay, session_patch, wait_until

FAULTS = {
    "a ring of another version": "from relay.shim import ring_reader; ring_reader.MAGIC += 1",
    "no memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 25, 1 << 25))",
    "broken code": "sys.modules['asyncio'] = None",
}
COLD = {"no memory", "broken code"}
"""Faults that must come before any import."""
LOGGED = {
    "a ring of another version": "another version of relay",
    "no memory": "",  # the first failure is random
    "broken code": "asyncio",
}


_numbers = itertools.count(1)


def shim_status(relay: Relay, name: str) -> dict[str, Any]:
    """Return the status of an agent's shim, which it reports even without a session."""
    path = relay.home / "run" / "sessions" / "default" / f"{name.lower()}.shim"
    return dict(call(path, {"op": "status"}, 60))


@pytest.fixture(scope="module")
def bob(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Bob").wrap()


@pytest.fixture
def alice(shared: Relay) -> Iterator[FakeAgent]:
    """Yield an agent of the shared home, which the test wraps; it is stopped afterwards."""
    agent = FakeAgent(shared, f"Alice{next(_numbers)}")
    yield agent
    shared("stop", "--now", agent.name, check=False)


def in_process(monkeypatch: pytest.MonkeyPatch, relay: Relay, *arguments: str) -> int:
    """Run a command in this process, where its limits can be changed; return its exit code."""
    monkeypatch.setenv("RELAY_HOME", str(relay.home))
    return main([*arguments])


@pytest.mark.parametrize("cold", [True, False])
def test_a_broken_session_is_reported_and_reload_retries(
    bob: FakeAgent,
    alice: FakeAgent,
    subtests: pytest.Subtests,
    cold: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    relay, broken = alice.relay, alice.folder / "broken"
    patch = session_patch(
        f"import os, sys\nif os.path.exists({str(broken)!r}):\n    exec(open({str(broken)!r}).read())\n"
    )
    with forkserver.real_exec() if cold else contextlib.nullcontext():
        alice.wrap(env=patch)
    monkeypatch.setattr(reload, "STARTS", PATIENCE)
    for fault in [each for each in FAULTS if (each in COLD) is cold]:
        with subtests.test(fault):
            before = entry(relay, alice.name)
            broken.write_text(FAULTS[fault])
            os.kill(before["session_pid"], signal.SIGKILL)
            alice.say(f"@relay:Bob sent without a session: {fault}\n")
            wait_until(lambda: shim_status(relay, alice.name)["failed"])
            assert in_process(monkeypatch, relay, "reload", alice.name) == 1
            assert "session failed" in capsys.readouterr().err
            (row,) = [row for row in ps(relay) if row["name"] == alice.name]
            assert (row["state"], row["agent_pid"]) == ("unresponsive", before["agent_pid"])
            assert LOGGED[fault] in (relay.home / "state" / "session.log").read_text()
            broken.unlink()
            relay("reload", alice.name)
            bob.receives(f"sent without a session: {fault}")
            assert entry(relay, alice.name)["agent_pid"] == before["agent_pid"]


def test_no_more_sessions_start_after_many_died_once_ready(bob: FakeAgent, alice: FakeAgent) -> None:
    """They hold no output, and could have been killed. After many in a row, no more are started."""
    relay, broken = alice.relay, alice.folder / "broken"
    patch = session_patch(
        "import os, signal\n"
        "from relay.terminal.shim_link import ShimLink\n"
        "ready = ShimLink.ready\n"
        "def dies(self, *arguments):\n"
        "    ready(self, *arguments)\n"
        f"    if os.path.exists({str(broken)!r}):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "ShimLink.ready = dies\n"
    )
    alice.wrap(env=patch)
    before = entry(relay, alice.name)
    broken.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.say("@relay:Bob sent before many deaths\n")
    failed = wait_until(lambda: shim_status(relay, alice.name)["failed"], timeout=300)
    assert "it ended 20 times" in failed
    broken.unlink()
    relay("reload", alice.name)
    bob.receives("sent before many deaths")
    assert entry(relay, alice.name)["agent_pid"] == before["agent_pid"]


def test_a_failed_fork_is_reported_and_reload_retries(alice: FakeAgent) -> None:
    """For example, at the process limit (fork: EAGAIN)."""
    relay, full = alice.relay, alice.folder / "full"
    main = (
        "import errno, os, sys\n"
        "from relay.session import launch\n"
        "start = launch._start_session\n"
        "def try_(*arguments):\n"
        f"    if os.path.exists({str(full)!r}):\n"
        "        raise BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "    return start(*arguments)\n"
        "launch._start_session = try_\n"
        "from relay.__main__ import main\n"
        "sys.exit(main())\n"
    )
    full.touch()
    wrapped = subprocess.run(
        [sys.executable, "-c", main, "wrap", "-d", "-n", alice.name, *map(str, alice.command())],
        env=relay.environment, cwd=relay.home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cannot start a process" in wrapped.stdout + wrapped.stderr
    wait_until(lambda: (alice.folder / "strings").exists())
    alice.say("@relay:you sent without a session\n")
    full.unlink()
    assert f"{alice.name} has a new session" in relay("reload", alice.name).stdout
    wait_until(lambda: alice.events("directive"))


def test_the_session_log_is_rotated(relay: Relay) -> None:
    log = relay.home / "state" / "session.log"
    log.parent.mkdir(mode=0o700)
    log.write_bytes(b"x" * (LARGE_LOG + 1))
    FakeAgent(relay, "Bob").wrap()
    assert log.stat().st_size < LARGE_LOG
    assert log.with_name("session.log.1").stat().st_size == LARGE_LOG + 1


def test_an_agent_whose_sessions_failed_is_stopped_gracefully(
    alice: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    relay, log = alice.relay, alice.folder / "said"
    patch = session_patch("raise SystemExit('broken')")
    program = f"trap 'echo bye > {log}; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    relay("wrap", "-d", "-n", alice.name, "sh", "-c", program, env=patch)
    wait_until(lambda: shim_status(relay, alice.name)["failed"])
    assert "keeps running without a session" in relay("explain", alice.name, check=False).stderr
    monkeypatch.setattr(stop, "SESSION_TIMEOUT", 600)
    assert in_process(monkeypatch, relay, "stop", alice.name) == 0
    assert capsys.readouterr().out == f"{alice.name} has ended.\n"
    assert log.read_text() == "bye\n"


def test_an_agent_whose_session_never_became_ready_is_stopped_gracefully(
    alice: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shim waits for it at the start, as it may be slow, but not again at the end."""
    relay, log = alice.relay, alice.folder / "said"
    patch = session_patch("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    program = f"trap 'echo bye > {log}; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    limits = "from relay.shim import shim\nshim.FIRST_SESSION = shim.LAST_STEPS = 0.1\n"
    _run(relay, limits, "wrap", "-d", "-n", alice.name, "sh", "-c", program, env=patch)
    monkeypatch.setattr(stop, "SESSION_TIMEOUT", 3)
    assert in_process(monkeypatch, relay, "stop", alice.name) == 0
    assert capsys.readouterr().out == f"{alice.name} has ended.\n"
    assert log.read_text() == "bye\n"


def _run(relay: Relay, patch: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command with `patch` applied."""
    main = f"import sys\n{patch}from relay.__main__ import main\nsys.exit(main())\n"
    return subprocess.run(
        [sys.executable, "-c", main, *arguments],
        env=relay.environment | env, cwd=relay.home, capture_output=True, text=True, check=True,
        timeout=2 * PATIENCE,
    )  # fmt: skip


def test_wrap_returns_even_if_the_session_of_a_detached_agent_hangs(alice: FakeAgent) -> None:
    patch = session_patch("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    limit = "from relay.shim import shim\nshim.FIRST_SESSION = 0.1\n"
    program = "while :; do sleep 0.1; done"
    wrapped = _run(alice.relay, limit, "wrap", "-d", "-n", alice.name, "sh", "-c", program, env=patch)
    assert "its session is not ready yet" in wrapped.stderr
    assert f"{alice.name} has ended" in alice.relay("stop", "--now", alice.name).stdout


FAILS = """
from relay.readers.auto import AutoReader
feed = AutoReader.feed
def failing(self, data, *rest):
    if b"BOOM" in data:
        raise IndexError("string index out of range")
    return feed(self, data, *rest)
AutoReader.feed = failing
"""


def test_nothing_is_typed_into_an_agent_with_an_unreadable_screen(alice: FakeAgent) -> None:
    """It may show a dialog by now."""
    relay = alice.relay
    alice.wrap(env=session_patch(FAILS))
    alice.say("BOOM")
    alice.notice("types nothing into it until `relay restart`")
    wait_until(lambda: alice.state() == "unsafe")
    relay("send", alice.name, "hello")
    alice.notice("relay can no longer read its screen")
    assert "hello" not in alice.received
    explained = relay("explain", alice.name).stdout
    assert "relay can no longer read its screen, so it types nothing into it" in explained


def test_a_session_starts_even_if_its_directory_was_removed(bob: FakeAgent, alice: FakeAgent) -> None:
    """And when it was created again, as a worktree may be."""
    relay, work = alice.relay, alice.folder / "work"
    work.mkdir()
    alice.wrap(cwd=work, env={"PWD": str(work)})
    for created in (False, True):
        if created:
            work.mkdir()
        else:
            work.rmdir()
        before = entry(relay, alice.name)["session_pid"]
        relay("reload", alice.name)
        assert entry(relay, alice.name)["session_pid"] != before
        alice.say(f"@relay:Bob created again: {created}")
        bob.receives(f"created again: {created}")


@pytest.mark.parametrize(
    "command", [("wrap", "cat"), ("wrap", "-d", "cat"), ("up",), ("doctor",)], ids=" ".join
)
def test_a_removed_current_directory_is_reported(relay: Relay, command: tuple[str, ...]) -> None:
    work = relay.home / "work"
    work.mkdir()
    script = 'rmdir "$PWD"; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *relay.command, *command],
        cwd=work, env=relay.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == "relay: the current directory was removed. Change into one that exists.\n"
    assert done.returncode == 1
