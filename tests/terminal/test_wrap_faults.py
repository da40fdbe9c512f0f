"""Terminals of agents whose session hangs or cannot start: everything works as with a session.

Tests of jobs, pipes and pastes run again here, with a fault instead of a session: with each in
`make test-long`, with one of them in `make test`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator import Emulator
from test_wrap_bytes import test_a_large_paste_is_exact  # noqa: F401
from test_wrap_jobs import (  # noqa: F401
    test_a_full_screen_program_in_the_background_is_stopped,
    test_a_resize_reaches_the_agent,
    test_an_agent_started_in_the_background_leaves_the_terminal_alone,
    test_an_agent_without_a_shell_is_not_left_stopped,
    test_bg_resumes_the_job_and_fg_returns_the_keyboard,
    test_ctrl_c_and_ctrl_backslash_end_the_agent,
    test_ctrl_z_stops_the_job_and_fg_resumes_it,
    test_signals_to_relay_are_passed_on_to_the_agent,
    test_sigtstp_sent_to_relay_stops_the_job,
    test_the_agent_can_handle_ctrl_c,
    test_the_agents_terminal_has_the_modes_of_the_users_terminal,
)
from test_wrap_pipes import (  # noqa: F401
    _run,
    test_binary_output_into_a_pipe_is_exact,
    test_ignored_signals_stay_ignored,
)

from relay.control.sessions import call
from support import LONG, Relay, processes_of, session_patch, wait_until

Open = Callable[..., Emulator]

STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
FAULTS = {
    "hangs at startup": STOP,
    "hangs": (
        "from relay.terminal.shim_link import ShimLink\n"
        "    ready = ShimLink.ready\n"
        f"    ShimLink.ready = lambda self: (ready(self), {STOP})"
    ),
    "fails": "raise SystemExit('broken')",
}


def _sessions(relay: Relay) -> list[int]:
    return [pid for pid, line in processes_of(relay.home).items() if "relay/session/__main__.py" in line]


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Fault:
    """A fault in all sessions of a home, until it is fixed."""

    def __init__(self, relay: Relay, kind: str) -> None:
        self.kind = kind
        self._relay = relay
        self._fixed = relay.home / "fixed"
        code = f"import os, signal\nif not os.path.exists({str(self._fixed)!r}):\n    {FAULTS[kind]}\n"
        relay.environment |= session_patch(code)

    def wait(self, name: str) -> None:
        """Return when the fault has occurred, and no session is available."""
        shim = self._relay.home / "run" / "sessions" / "default" / f"{name.lower()}.shim"

        def occurred() -> bool:
            if self.kind == "fails":
                return shim.exists() and bool(call(shim, {"op": "status"}, 60)["failed"])
            return any(map(_stopped, _sessions(self._relay)))

        wait_until(occurred, timeout=60)

    def fix(self) -> None:
        self._fixed.touch()

    def end(self) -> None:
        self.fix()
        for pid in _sessions(self._relay):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if processes_of(self._relay.home):
            self._relay("stop", "--all", "--now", check=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds, function = [*FAULTS], metafunc.function
    if function.__module__ != __name__ and not LONG:
        kinds = [kinds[len(function.__name__) % len(kinds)]]
    metafunc.parametrize("fault", kinds, indirect=True)


@pytest.fixture(autouse=True)
def fault(request: pytest.FixtureRequest, relay: Relay) -> Iterator[Fault]:
    made = Fault(relay, request.param)
    yield made
    made.end()


@pytest.fixture
def shared(relay: Relay) -> Relay:
    """Return a separate home for each of these tests."""
    return relay


def entry(relay: Relay) -> dict[str, Any]:
    (row,) = json.loads(relay("ps", "--json").stdout)
    return dict(row)


ECHO = "while read line; do echo got $line; done; exit 5"


def test_the_agent_works_without_a_session_until_a_reload_starts_one(
    wrap: Open, relay: Relay, fault: Fault
) -> None:
    """S6: keys echo, `ps` lists it as unresponsive with its pids, and `reload` ends the fault."""
    outer = wrap("-n", "Alice", "sh", "-c", f"stty -echo; echo up; {ECHO}")
    outer.see("up\r\n")
    fault.wait("Alice")
    outer.type("one\r")
    outer.see("got one\r\n")
    row = entry(relay)
    assert (row["name"], row["state"]) == ("Alice", "unresponsive")
    agent = row["agent_pid"]
    assert agent in processes_of(relay.home)
    assert row["terminal_pid"] in processes_of(relay.home)
    fault.fix()
    assert "Alice has a new session" in relay("reload", "Alice").stdout
    wait_until(lambda: entry(relay)["state"] != "unresponsive")
    assert entry(relay)["agent_pid"] == agent
    outer.type("two\r")
    outer.see("got two\r\n")
    outer.type("\x04")
    assert outer.end() == 5


def test_stop_ends_the_agent(wrap: Open, relay: Relay, home: Path, fault: Fault) -> None:
    outer = wrap("-n", "Alice", "sh", "-c", f"trap '' HUP TERM; echo up; {ECHO}")
    outer.see("up\r\n")
    fault.wait("Alice")
    assert "Alice has ended" in relay("stop", "--now", "Alice").stdout
    assert outer.end() == 137
    assert outer.restored()
    wait_until(lambda: not processes_of(home), message=lambda: str(processes_of(home)))


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_terminal_that_disappears_ends_the_agent(
    ignoring: bool, wrap: Open, home: Path, fault: Fault
) -> None:
    """An agent that ignores the hang-up finds its terminal gone, as without relay."""
    trap = "trap '' HUP" if ignoring else "trap 'echo hung up > end; exit' HUP"
    outer = wrap(
        *("-n", "Alice", "sh", "-c"),
        f"{trap}; echo up; while read line; do :; done; test -e end || echo eof > end",
    )
    outer.see("up\r\n")
    fault.wait("Alice")
    outer.hang_up()
    outer.end()
    wait_until(lambda: (home / "end").exists() and (home / "end").read_text())
    assert (home / "end").read_text() == ("eof\n" if ignoring else "hung up\n")


def test_closing_the_output_early_ends_the_agent(relay: Relay) -> None:
    run = _run(relay, "relay wrap yes | head -1; echo ${PIPESTATUS[@]}")
    assert run.stdout == b"y\n141 0\n"


def test_the_agent_can_be_detached_and_attached_again(
    wrap: Open, terminal: Open, relay: Relay, fault: Fault
) -> None:
    outer = wrap("-n", "Alice", "sh", "-c", f"stty -echo; echo up; {ECHO}")
    outer.see("up\r\n")
    fault.wait("Alice")
    outer.type("\x1dd")
    assert outer.end() == 0
    assert outer.restored()
    again = terminal(sys.executable, "-m", "relay", "attach", "Alice")
    again.wait(again.raw)
    again.see("up\r\n")
    again.type("one\r")
    again.see("got one\r\n")
    again.type("\x04")
    assert again.end() == 5
