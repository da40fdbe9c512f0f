"""What a key with its echo, and a line, cost the shim in system calls; and that it sleeps otherwise."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

import debian
from support import wait_until

AGENT = "stty raw -echo; printf READY; cat {pipe} & exec cat"
"""Echoes keys itself, as programs in raw mode do, and prints what comes through a named pipe."""

KEY = ["read", "ioctl", "write", "poll", "read", "write", "write", "poll"]
"""The key; whether the terminal draws it, as a password must not leave the shim; to the agent. The echo; the
session is woken."""

LINE = ["read", "write", "write", "poll"]

PATIENT = """\
import runpy
from relay.shim import forward
forward.ECHO_TIMEOUT = 600.0
runpy.run_module("relay", run_name="__main__", alter_sys=True)
"""
"""Runs relay, whose shim waits for each echo, however slow the machine is, before it wakes the session."""

_CALL = re.compile(r"(\d+) +(\w+)\((.*)")


class ShimTrace:
    """The log of strace(1), which is the parent of everything and follows no program that is executed."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def calls(self) -> list[tuple[str, str]]:
        """Return (name, rest of the line) of the shim's calls so far, without messages of the session.

        Those come at any time, each with the poll(2) after it. The shim is the process that reads `A`.
        """
        lines = map(_CALL.match, self._log.read_text().splitlines())
        found = [line.groups() for line in lines if line]
        shim = next((pid for pid, name, rest in found if name == "read" and '"A"' in rest), None)
        calls: list[tuple[str, str]] = []
        message = False
        for pid, name, rest in found:
            if pid == shim and name != "recvmsg":
                if message and name == "poll":
                    calls.pop()
                calls.append((name, rest))
            if pid == shim:
                message = name == "recvmsg"
        return calls

    def sleeps(self) -> bool:
        """Return True while the shim waits for events, for any length of time."""
        calls = self.calls()
        return bool(calls) and calls[-1][0] == "poll" and calls[-1][1].endswith(", -1")

    def since(self, text: str, writes: int) -> list[str]:
        """Return the names of the calls from the first read of `text` to the poll(2) after its last write."""
        calls = self.calls()
        names = [name for name, _ in calls]
        with_text = [at for at, (_, rest) in enumerate(calls) if f'"{text}"' in rest][: 2 * writes]
        rest = names[with_text[-1] :] if len(with_text) == 2 * writes else []
        return names[with_text[0] : with_text[-1] + rest.index("poll") + 1] if "poll" in rest else []


@pytest.mark.real_exec
def test_the_shim_makes_no_system_call_too_many(terminal: Callable[..., Emulator], tmp_path: Path) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    strace = [str(debian.require("strace")), "-f", "-b", "execve", "-o", str(log)]
    relay = [sys.executable, "-c", PATIENT, "wrap", "-n", "Alice", "--"]
    user = terminal(*strace, *relay, "sh", "-c", AGENT.format(pipe=pipe))
    user.see("READY")
    user.type("A")
    user.see("A")
    trace = ShimTrace(log)
    wait_until(trace.sleeps)

    _try(KEY, trace, user, user.type, "{:03}", writes=2)
    with pipe.open("w", buffering=1) as agent:
        _try(LINE, trace, user, agent.write, "line {:03}\n", writes=1)


def _try(
    expected: list[str],
    trace: ShimTrace,
    user: Emulator,
    put: Callable[[str], object],
    form: str,
    *,
    writes: int,
) -> None:
    """Repeat an input until it costs what is `expected`: a session that is awake is not woken."""
    costs: list[list[str]] = []

    def met() -> bool:
        text = form.format(len(costs))
        put(text)
        user.see(text)
        costs.append(wait_until(lambda: trace.since(text.replace("\n", "\\n"), writes)))
        wait_until(trace.sleeps)
        return costs[-1] == expected

    wait_until(met, message=lambda: str(costs[-3:]))
