"""What a key with its echo, and a line, cost the shim in system calls; and that it sleeps otherwise."""

from __future__ import annotations

import os
import re
import string
import sys
from pathlib import Path

import debian
import pytest
from conftest import Open

from support import Relay, wait_until

AGENT = "stty raw -echo; printf READY; cat {pipe} & exec cat"
"""Echoes keys itself, as programs in raw mode do, and prints what comes through a named pipe."""

KEY = ["read", "ioctl", "write", "poll", "read", "write", "write", "poll"]
"""The key, whether it is drawn (else it must not get into the ring), to the agent; its echo; the session's wake."""

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
        self._shim = ""

    def calls(self) -> list[tuple[str, str]]:
        """Return (name, rest of the line) of the shim's calls so far, without messages of the session.

        Those come at any time, each with the poll(2) after it. The shim is the process that reads `A`.
        """
        lines = [found.groups() for line in self._log.read_text().splitlines() if (found := _CALL.match(line))]
        readers = (pid for pid, name, rest in lines if name == "read" and '"A"' in rest)
        self._shim = self._shim or next(readers, "")
        calls: list[tuple[str, str]] = []
        message = False
        for pid, name, rest in lines:
            if pid == self._shim:
                if name != "recvmsg" and not (message and name == "poll"):
                    calls.append((name, rest))
                elif name == "poll":
                    calls[-1] = name, rest
                message = name == "recvmsg"
        return calls

    def sleeps(self) -> bool:
        """Return True while the shim waits for events, for any length of time."""
        calls = self.calls()
        return bool(calls) and calls[-1][0] == "poll" and calls[-1][1].endswith(", -1")

    def after(self, text: str, writes: int) -> list[str]:
        """Return the names of the calls from the first that reads `text`.

        They end with the first poll(2) after `text` was written `writes` times; [] if there is none yet.
        """
        calls = self.calls()
        with_text = [at for at, (name, rest) in enumerate(calls) if f'"{text}"' in rest]
        if len(with_text) < 2 * writes:
            return []
        names = [name for name, _ in calls]
        first, last = with_text[0], with_text[2 * writes - 1]
        return names[first : names.index("poll", last) + 1] if "poll" in names[last:] else []


@pytest.mark.real_exec
def test_the_shim_makes_no_system_call_too_many(terminal: Open, relay: Relay, tmp_path: Path) -> None:
    """A slow session may still be awake, and needs no waking: one try that finds it asleep is enough."""
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    strace = [str(debian.require("strace")), "-f", "-b", "execve", "-o", str(log)]
    argv = [*strace, sys.executable, "-c", PATIENT, "wrap", "-n", "Alice", "--"]
    user = terminal(*argv, "sh", "-c", AGENT.format(pipe=pipe))
    trace = ShimTrace(log)
    user.see("READY")
    user.type("A")
    user.see("A")
    wait_until(trace.sleeps)

    with pipe.open("w", buffering=1) as agent:
        for name, expected, writes, put in (
            ("key", KEY, 2, user.type),
            ("line", LINE, 1, agent.write),
        ):
            seen: list[list[str]] = []
            for letter in string.ascii_uppercase[1:]:
                text = letter if name == "key" else f"{letter.lower()}\\r\\n"
                put(text.encode().decode("unicode_escape"))
                user.see(text.encode().decode("unicode_escape"))
                seen.append(wait_until(lambda text=text: trace.after(text, writes)))
                wait_until(trace.sleeps)
                if seen[-1] == expected:
                    break
            assert expected in seen, (name, seen[:3])
