"""The setup of a benchmark: a relay home of its own, and the commands to compare."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.terminal import Terminal

PROGRAMS = Path(__file__).parent / "programs"


SETTINGS = "runaway_rate = 100000\n"
"""A benchmark sends more messages per minute than an agent would; the guard still counts them."""


class Bench:
    """A fresh home in `directory`; `quick` asks for fewer and smaller runs."""

    def __init__(self, directory: Path, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        kept = {"PATH", "LANG", "TMPDIR", "PYTHONPATH"}
        self.env = {name: value for name, value in os.environ.items() if name in kept} | {
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "RELAY_HOME": str(directory),
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
            "TMUX_TMPDIR": str(directory),
        }
        settings = directory / "config" / "relay.toml"
        settings.parent.mkdir(mode=0o700)
        settings.write_text(SETTINGS, encoding="utf-8")
        script = Path(sys.executable).with_name("relay")
        self.command = [str(script)] if script.exists() else [sys.executable, "-m", "relay"]

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` in a session with this terminal."""
        return [*self.command, "wrap", "--", *argv]

    def start(self, name: str, argv: Sequence[str], *options: str) -> None:
        """Start `argv` in a session without a terminal."""
        self.relay("wrap", "-d", "-n", name, *options, "--", *argv)

    def session(self, name: str) -> int:
        """Return the process id of the session `name`."""
        listed = json.loads(self.relay("ps", "--json"))
        return next(int(each["session_pid"]) for each in listed if each["name"] == name)

    def program(self, name: str, *arguments: object) -> list[str]:
        """Return the command line of one of our own small programs; -S -E makes Python start fast."""
        return [sys.executable, "-S", "-E", str(PROGRAMS / f"{name}.py"), *map(str, arguments)]

    def terminal(self, argv: Sequence[str]) -> Terminal:
        return Terminal(argv, self.env, self.directory)

    def relay(self, *arguments: str, timeout: float = 30) -> str:
        """Return what the `relay` command prints. Raise RuntimeError if it fails."""
        run = subprocess.run(
            [*self.command, *arguments],
            env=self.env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if run.returncode:
            raise RuntimeError(f"relay {' '.join(arguments)}: {(run.stderr or run.stdout).strip()}")
        return run.stdout

    @contextlib.contextmanager
    def detached(self, name: str, argv: Sequence[str], *options: str) -> Iterator[None]:
        """Run `argv` in a session without a terminal for the duration of the block."""
        self.start(name, argv, *options)
        try:
            yield
        finally:
            self.relay("stop", name)


def scripted(argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` under script(1), without keeping the typescript."""
    return ["script", "-qfec", " ".join(argv), "/dev/null"]


def tmuxed(argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` in a separate tmux server, without a status line."""
    return ["tmux", "-f", "/dev/null", "new-session", " ".join(argv), ";", "set", "status", "off"]


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(0.01)


@contextlib.contextmanager
def bench(quick: bool) -> Iterator[Bench]:
    """Yield a bench, then remove its home and processes. The path is short because a socket's must be."""
    directory = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp")).resolve()
    own = Bench(directory, quick)
    try:
        own.relay("broker", "start")
        yield own
    finally:
        for command in (("stop", "--all"), ("broker", "stop")):
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                own.relay(*command)
        for pid, command in processes_of(directory).items():
            print(f"benchmarks: left behind, and killed now: {pid} {command}", file=sys.stderr)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


def processes_of(directory: Path) -> dict[int, str]:
    """Return the living processes with `directory` as RELAY_HOME or in their command line, by process id."""
    marks = (f"RELAY_HOME={directory}\0".encode(), f"{directory}/".encode())
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes() + b"\0"
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # ended, or another user's
        if int(entry.name) != os.getpid() and (marks[0] in environment or marks[1] in command):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found
