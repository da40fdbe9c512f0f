"""Test helpers: waiting for an event, a clean environment, the processes of a home."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar
from unittest import mock

import forkserver
from relay.cli.main import dispatch
from relay.errors import RelayError

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds until a test gives up waiting. Only a broken program takes that long."""

_TICK, _LAST_TICK = 0.01, 0.1  # seconds between two polls, at first and after a few seconds

LONG = "RELAY_LONG" in os.environ
"""True in `make test-long`."""


def many(count: int) -> int:
    """Return `count`, of examples or of an attack, in `make test-long`; otherwise a fifth of it."""
    return count if LONG else max(count // 5, 10)


def _pause(waited: float) -> float:
    """Return how long to wait until the next poll, after having waited for so many seconds."""
    return min(max(_TICK, waited / 40), _LAST_TICK)


def wait_until(
    condition: Callable[[], T], timeout: float = PATIENCE, message: str | Callable[[], str] = ""
) -> T:
    """Poll `condition` until it is true, and return its value. Raise AssertionError on timeout.

    timeout: seconds. message: what it waits for.
    """
    first = time.monotonic()
    deadline = first + timeout
    never = threading.Event()
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > deadline:
            said = message() if callable(message) else message
            raise AssertionError(f"waited {timeout:g} seconds in vain: {said or condition}")
        never.wait(max(_pause(began - first), 2 * (now - began)))  # leave the processor to what it waits for


async def eventually(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Poll `condition` until it holds, for what no event reports. Raise TimeoutError if it never does."""
    first = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while True:
            began = time.monotonic()
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            now = time.monotonic()
            await asyncio.sleep(max(_pause(now - first), 2 * (now - began)))


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of a user with `home` as RELAY_HOME, without the developer's own variables."""
    kept = {"PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START"}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    return environment | {
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "RELAY_HOME": str(home),
        "SHELL": "/bin/sh",
        "TERM": "xterm-256color",
    }


_IN_PROCESS = {
    *("answer", "audit", "channels", "drop", "events", "explain", "forget", "hold", "inbox", "join", "leave"),
    *("logs", "messages", "peek", "ps", "release", "reload", "retry", "send", "stop", "trust", "usage"),
}
"""Commands that start no process, and leave nothing behind in their own."""


_OF_ALL_TEAMS = {"channels", "inbox", "next", "ps", "usage"}
"""Commands that look at all teams, unless told otherwise."""


class Relay:
    """Runs the `relay` command in one home: `relay("ps", "--json").stdout`.

    Most commands run in the test's process, which costs 2 ms instead of 20.

    team: that of a test that shares its home with others; its commands, and what the helpers of
    session.fake_agent find in the home, leave out those. began, earlier: the time, and the sessions before.
    """

    def __init__(self, home: Path, team: str | None = None) -> None:
        self.home = home
        self.team = team
        self.began = time.time()
        self.earlier = _sessions_of(home) if team is not None else frozenset[str]()
        self.environment = clean_environment(home)
        if team is not None:
            self.environment["RELAY_TEAM"] = team
        self.command = [*forkserver.COMMAND]

    def __call__(
        self,
        *arguments: str | Path,
        input: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command and return it finished.

        check: raise AssertionError, with what it printed, unless it exits with 0. env: added to the
        environment. cwd: by default the home, so that no project's files count. timeout: of a process.
        """
        words = list(map(str, arguments))
        if self.team is not None and words[0] in _OF_ALL_TEAMS and "-t" not in words:
            words[1:1] = ["-t", self.team]
        if env is None and self._can_be_called(words):
            run = self._call(words, input, cwd or self.home)
        else:
            run = subprocess.run(
                [*self.command, *words],
                input=input,
                env={**self.environment, **(env or {})},
                cwd=cwd or self.home,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=timeout,
                check=False,
            )
        assert not check or run.returncode == 0, (
            f"relay {' '.join(map(str, arguments))} exited with {run.returncode}\n{run.stdout}{run.stderr}"
        )
        return run

    def _can_be_called(self, words: list[str]) -> bool:
        """Return True if a command can run in this process, whose directory and variables it changes."""
        variables = [os.fsencode(f"{name}={value}") for name, value in self.environment.items()]
        return (
            words[0] in _IN_PROCESS
            and forkserver.warm([*self.command, *words], variables)
            and threading.current_thread() is threading.main_thread()
            and asyncio._get_running_loop() is None
        )

    def _call(self, words: list[str], input: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command as `relay.__main__` does."""
        given = io.TextIOWrapper(io.BytesIO(input.encode("utf-8", "surrogateescape")), "utf-8")
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.object(sys, "stdin", given),
            contextlib.redirect_stdout(out),
            mock.patch.object(sys, "__stdout__", out),  # whose terminal has a width
            contextlib.redirect_stderr(err),
            contextlib.chdir(cwd),
        ):
            try:
                code = dispatch(words)
            except RelayError as error:
                print(f"relay: {error}", file=err)
                code = error.exit_code
            except SystemExit as end:  # argparse
                code = int(end.code or 0)
        return subprocess.CompletedProcess([*self.command, *words], code, out.getvalue(), err.getvalue())


def _sessions_of(home: Path) -> frozenset[str]:
    """Return the ids of the sessions in the journal of `home`."""
    journal = home / "state" / "events.jsonl"
    return frozenset(re.findall(r'"session": "(\w+)"', journal.read_text()) if journal.exists() else ())


def processes_of(home: Path) -> dict[int, str]:
    """Return the command lines of the living processes of `home` by process id (Linux; elsewhere none).

    These are the processes with `home` as RELAY_HOME or with a path below it in their command line.
    """
    found = {}
    marks = (b"RELAY_HOME=" + os.fsencode(home) + b"\0", os.fsencode(home) + b"/")
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if not name.isdigit() or int(name) == os.getpid():
            continue
        command = _proc(name, "cmdline")  # empty: a kernel's thread, or it has ended
        if command and (marks[1] in command or marks[0] in _proc(name, "environ") + b"\0"):
            found[int(name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def _proc(pid: str, name: str) -> bytes:
    """Return a file of /proc; nothing if its process has ended, or is another user's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def await_end(pids: Iterable[int], timeout: float = PATIENCE) -> None:
    """Wait until these processes (of Linux) have ended, or for `timeout` seconds."""
    deadline = time.monotonic() + timeout
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            os.close(fd)


def listening(path: Path) -> int:
    """Return the descriptor of a socket listening at `path`, as a shim hands it to its session."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener.detach()


def session_patch(code: str) -> dict[str, str]:
    """Return an environment in which session processes run `code` before anything else."""
    folder = Path(__file__).parent / "fakes" / "session_patch"
    paths = [str(folder), str(Path(__file__).parent), str(Path(__file__).parent / "messaging")]
    return {"PYTHONPATH": os.pathsep.join(paths), "RELAY_TEST_PATCH": code}
