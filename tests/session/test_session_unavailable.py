"""Sessions that cannot start: the agent keeps running, this is reported, and `relay reload` retries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from relay.control.sessions import call
from relay.session.launch import LARGE_LOG
from session.fake_agent import FakeAgent, ps
from session.test_session_replaced import entry
from support import PATIENCE, Relay, session_patch, wait_until

FAULTS = {
    "a ring of another version": "from relay.shim import ring; ring.MAGIC += 1",
    "no memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 25, 1 << 25))",
    "broken code": "sys.modules['asyncio'] = None",
}
LOGGED = {
    "a ring of another version": "another version of relay",
    "no memory": "",  # the first failure is random
    "broken code": "asyncio",
}


def shim_status(relay: Relay, name: str) -> dict[str, Any]:
    """Return the status of an agent's shim, which it reports even without a session."""
    path = relay.home / "run" / "sessions" / "default" / f"{name.lower()}.shim"
    return dict(call(path, {"op": "status"}, 60))


@pytest.mark.real_exec  # the fault must come before any import
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_session_is_reported_and_reload_retries(relay: Relay, fault: str) -> None:
    broken = relay.home / "broken"
    patch = session_patch(f"import os, sys\nif os.path.exists({str(broken)!r}):\n    {FAULTS[fault]}\n")
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap(env=patch)
    before = entry(relay)
    broken.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.say("@relay:Bob sent without a session\n")
    wait_until(lambda: shim_status(relay, "Alice")["failed"], timeout=60)
    patience = f"from relay.cli import reload\nreload.STARTS = {PATIENCE}\n"
    assert "session failed" in _run(relay, patience, "reload", "Alice", check=False).stderr
    (row,) = [row for row in ps(relay) if row["name"] == "Alice"]
    assert (row["state"], row["agent_pid"]) == ("unresponsive", before["agent_pid"])
    assert LOGGED[fault] in (relay.home / "state" / "session.log").read_text()
    broken.unlink()
    relay("reload", "Alice")
    bob.receives("sent without a session")
    assert entry(relay)["agent_pid"] == before["agent_pid"]


def test_no_more_sessions_start_after_many_died_once_ready(relay: Relay) -> None:
    """They hold no output, and could have been killed. After many in a row, no more are started."""
    broken = relay.home / "broken"
    patch = session_patch(
        f"import os\nif os.path.exists({str(broken)!r}):\n"
        "    from failpoints import Failpoint, Point, When, arm\n"
        "    arm(Failpoint(Point('relay.terminal.shim_link:ShimLink.ready'), When('after')))\n"
    )
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap(env=patch)
    before = entry(relay)
    broken.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.say("@relay:Bob sent without a session\n")
    failed = wait_until(lambda: shim_status(relay, "Alice")["failed"], timeout=300)
    assert "it ended 20 times" in failed
    broken.unlink()
    relay("reload", "Alice")
    bob.receives("sent without a session")
    assert entry(relay)["agent_pid"] == before["agent_pid"]


def test_a_failed_fork_is_reported_and_reload_retries(relay: Relay) -> None:
    """For example, at the process limit (fork: EAGAIN)."""
    full = relay.home / "full"
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
    alice = FakeAgent(relay, "Alice")
    full.touch()
    wrapped = subprocess.run(
        [sys.executable, "-c", main, "wrap", "-d", "-n", "Alice", *map(str, alice.command())],
        env=relay.environment, cwd=relay.home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cannot start a process" in wrapped.stdout + wrapped.stderr
    wait_until(lambda: (alice.folder / "strings").exists())
    alice.say("@relay:you sent without a session\n")
    full.unlink()
    assert "Alice has a new session" in relay("reload", "Alice").stdout
    wait_until(lambda: alice.events("directive"))


def test_the_session_log_is_rotated(relay: Relay) -> None:
    log = relay.home / "state" / "session.log"
    log.parent.mkdir(mode=0o700)
    log.write_bytes(b"x" * (LARGE_LOG + 1))
    FakeAgent(relay, "Bob").wrap()
    assert log.stat().st_size < LARGE_LOG
    assert log.with_name("session.log.1").stat().st_size == LARGE_LOG + 1


def test_an_agent_whose_sessions_failed_is_stopped_gracefully(relay: Relay) -> None:
    patch = session_patch("raise SystemExit('broken')")
    log = relay.home / "said"
    program = f"trap 'echo bye > {log}; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    relay("wrap", "-d", "-n", "Alice", "sh", "-c", program, env=relay.environment | patch)
    wait_until(lambda: shim_status(relay, "Alice")["failed"])
    assert "keeps running without a session" in relay("explain", "Alice", check=False).stderr
    assert _stop(relay, "Alice", patience=600).stdout == "Alice has ended.\n"
    assert log.read_text() == "bye\n"


def test_an_agent_whose_session_never_became_ready_is_stopped_gracefully(relay: Relay) -> None:
    """The shim waits for it at the start, as it may be slow, but not again at the end."""
    patch = session_patch("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    log = relay.home / "said"
    program = f"trap 'echo bye > {log}; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    limits = "from relay.shim import shim\nshim.FIRST_SESSION = shim.LAST_STEPS = 0.1\n"
    _run(relay, limits, "wrap", "-d", "-n", "Alice", "sh", "-c", program, env=patch)
    assert _stop(relay, "Alice", patience=3).stdout == "Alice has ended.\n"
    assert log.read_text() == "bye\n"


def _stop(relay: Relay, name: str, patience: float) -> subprocess.CompletedProcess[str]:
    """Stop an agent, with `patience` seconds for its session."""
    return _run(relay, f"from relay.cli import stop\nstop.PATIENCE = {patience}\n", "stop", name)


def _run(
    relay: Relay, patch: str, *arguments: str, env: dict[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the command with `patch` applied."""
    main = f"import sys\n{patch}from relay.__main__ import main\nsys.exit(main())\n"
    return subprocess.run(
        [sys.executable, "-c", main, *arguments],
        env=relay.environment | (env or {}), cwd=relay.home, capture_output=True, text=True, check=check,
        timeout=2 * PATIENCE,
    )  # fmt: skip


def test_wrap_returns_even_if_the_session_of_a_detached_agent_hangs(relay: Relay) -> None:
    patch = session_patch("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    limit = "from relay.shim import shim\nshim.FIRST_SESSION = 0.1\n"
    program = "while :; do sleep 0.01; done"
    wrapped = _run(relay, limit, "wrap", "-d", "-n", "Alice", "sh", "-c", program, env=patch)
    assert "its session is not ready yet" in wrapped.stderr
    assert "Alice has ended" in relay("stop", "--now", "Alice").stdout


FAILS = """
from relay.readers.auto import AutoReader
feed = AutoReader.feed
def failing(self, data, *rest):
    if b"BOOM" in data:
        raise IndexError("string index out of range")
    return feed(self, data, *rest)
AutoReader.feed = failing
"""


def test_nothing_is_typed_into_an_agent_with_an_unreadable_screen(relay: Relay) -> None:
    """It may show a dialog by now."""
    alice = FakeAgent(relay, "Alice").wrap(env=session_patch(FAILS))
    alice.say("BOOM")
    alice.notice("types nothing into it until `relay restart`")
    wait_until(lambda: ps(relay)[0]["state"] == "unsafe")
    relay("send", "Alice", "hello")
    alice.notice("relay can no longer read its screen")
    assert "hello" not in alice.received
    explained = relay("explain", "Alice").stdout
    assert "relay can no longer read its screen, so it types nothing into it" in explained


def test_a_session_starts_even_if_its_directory_was_removed(relay: Relay) -> None:
    """And when it was created again, as a worktree may be."""
    work = relay.home / "work"
    work.mkdir()
    bob = FakeAgent(relay, "Bob").wrap()
    alice = FakeAgent(relay, "Alice").wrap(cwd=work, env={"PWD": str(work)})
    for created in (False, True):
        if created:
            work.mkdir()
        else:
            work.rmdir()
        before = entry(relay)["session_pid"]
        relay("reload", "Alice")
        assert entry(relay)["session_pid"] != before
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
