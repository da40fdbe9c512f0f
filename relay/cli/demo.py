"""Watch two wrapped agents greet each other.

Starts two small programs, Alice and Bob, under relay. Alice prints a line that begins with `@relay:Bob`;
relay reads it from her terminal, carries it over its own MQTT broker and types it into Bob's terminal; Bob
answers. The demo fails unless both programs report the other's greeting. It uses a temporary home and leaves
nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from relay.cli.arguments import seconds
from relay.data import directory
from relay.dataclass import dataclass
from relay.errors import RelayError
from relay.home import PYTHON
from relay.text import visible

_DEMO_TIMEOUT = 30.0  # seconds for the whole conversation, which takes less than one
_TICK = 0.01  # seconds between two reads of the agents' log
_COLOURS = {"Alice": "36", "Bob": "35", "relay": "2"}  # SGR (ECMA-48 8.3.117): cyan, magenta, faint


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the agents' log. did: "said" or "read". time: seconds since the epoch."""

    agent: str
    did: str
    text: str
    time: float


def configure(parser: argparse.ArgumentParser) -> None:
    help = "give up after (default: %(default)g)"
    parser.add_argument("--timeout", type=seconds, default=_DEMO_TIMEOUT, metavar="SECONDS", help=help)


def run(args: argparse.Namespace) -> int:
    # Keep the home's path short: the length of a socket's path is limited.
    temporary = tempfile.TemporaryDirectory(prefix="relay-demo-", ignore_cleanup_errors=True)
    with _terminable(), temporary as folder:
        home = Path(folder)
        relay = _Relay(home)
        print(
            "Two small programs, Bob and Alice, each run by relay. They only print and read lines, and\n"
            "neither knows where the other is. A line that begins with @relay:NAME is a message.\n"
        )
        try:
            log = home / "log.jsonl"
            log.touch()
            greeter = [sys.executable, str(directory("examples") / "greeter.py"), "--log", str(log)]
            relay("wrap", "-d", "-n", "Bob", *greeter)
            relay("wrap", "-d", "-n", "Alice", *greeter, "Bob")
            greetings = _watch(log, args.timeout)
            if len(greetings) < 2:
                raise RelayError(
                    f"only {len(greetings)} of 2 greetings arrived within {args.timeout:g} seconds. This is "
                    f"what relay knows about its sessions, messages and events:\n{relay.report()}"
                )
            broker = json.loads(relay("broker", "status", "--json"))
        finally:
            relay.end()
        print(
            "\nrelay found each message in what one program printed, carried it through its own MQTT broker\n"
            f"({broker['host']}:{broker['port']}), and typed it into the other program's terminal:"
        )
        for sender, to, delay in greetings:
            print(f"  {to} received {sender}'s greeting after {delay * 1000:.0f} ms.")
        print("\nBoth programs and the broker have stopped. Now try your own agents, in two terminals:")
        print("  relay wrap -n Alice claude\n  relay wrap -n Bob codex")
    return 0


class _Relay:
    """The `relay` command in the demo's home, without the caller's RELAY_ variables."""

    def __init__(self, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        self._environment = {**kept, "RELAY_HOME": str(home)}
        self._home = home

    def __call__(self, *arguments: str) -> str:
        """Run the command and return what it printed. Raise RelayError, with its message, if it failed."""
        run = self._run(*arguments)
        if run.returncode != 0:
            raise RelayError(f"`relay {' '.join(arguments[:4])} ...` failed: {run.stderr.strip()}")
        return run.stdout

    def report(self) -> str:
        runs = map(self._run, ("ps", "messages", "events"))
        return "\n".join((run.stdout + run.stderr).strip() for run in runs)

    def end(self) -> None:
        """Stop the agents and the broker. Raise RelayError if that fails."""
        stopped = [self._run("stop", "--all"), self._run("broker", "stop")]
        if failed := [run.stderr.strip() for run in stopped if run.returncode != 0]:
            raise RelayError(f"the demo could not stop what it started in {self._home}: {' '.join(failed)}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PYTHON, "-m", "relay", *arguments],
            env=self._environment, cwd=self._home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip


def _watch(log: Path, timeout: float) -> list[tuple[str, str, float]]:
    """Show the log as it grows, until both agents have read what the other printed, or for `timeout` seconds.

    Return the messages that arrived: sender, receiver, and the seconds in between.
    """
    seen: list[LogLine] = []
    greetings: list[tuple[str, str, float]] = []
    deadline = time.monotonic() + timeout
    with log.open(encoding="utf-8") as file:
        rest = ""
        while len(greetings) < 2 and time.monotonic() < deadline:
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                logged = LogLine(**json.loads(line))
                _show(logged)
                if logged.did == "read":
                    greetings += _received(logged, seen)
                seen.append(logged)
            time.sleep(_TICK)
    return greetings


def _received(read: LogLine, before: list[LogLine]) -> Iterator[tuple[str, str, float]]:
    """Yield the messages, printed before for this reader, that are in the text it read."""
    for line in before:
        directive = re.match(r"@relay:(\w+) (.+)", line.text) if line.did == "said" else None
        if directive and directive[1] == read.agent and directive[2] in read.text:
            yield line.agent, read.agent, read.time - line.time


def _show(line: LogLine) -> None:
    who = f"{line.agent:>5} {'prints' if line.did == 'said' else 'reads':<6}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):  # no-color.org
        who = f"\x1b[{_COLOURS.get(line.agent, '0')}m{who}\x1b[0m"
    print(f"{who} │ {visible(line.text)}", flush=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: it stops what it started."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
