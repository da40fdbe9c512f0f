"""What `relay top` costs with many agents: its processor time when nothing happens, and the time to draw.

python -m benchmarks.top [--agents N] [--seconds N]

The agents are simulated: one process answers for all of them, so that its time does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from benchmarks.bench import Bench, bench
from benchmarks.footprint import cpu_seconds
from benchmarks.terminal import Terminal
from relay.control.claiming import claim
from relay.control.sessions import SessionInfo
from relay.home import Home

STATES = ("ready", "working", "prompting", "ready")
SETTLED = 5.0  # seconds until all is drawn
QUIET = 0.15  # seconds without output after which a drawing is complete
KEYS = 40


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Home.from_env().ensure(), options.agents)
        return
    with bench(quick=False) as own:
        measure(own, options.agents, options.seconds)


def measure(own: Bench, agents: int, seconds: float) -> None:
    command = [sys.executable, "-m", "benchmarks.top", "--serve", "--agents", str(agents)]
    with subprocess.Popen(command, env=own.env, stdout=subprocess.PIPE, cwd=Path.cwd()) as fleet:
        assert fleet.stdout is not None
        fleet.stdout.readline()
        try:
            with Terminal([*own.command, "top"], own.env, own.directory) as top:
                top.skip(SETTLED)
                before = cpu_seconds(top.pid)
                top.skip(seconds)
                idle = (cpu_seconds(top.pid) - before) / seconds * 100
                times = sorted(_redraw(top, b"j" if at % 20 < 10 else b"k") for at in range(KEYS))
        finally:
            fleet.kill()
    print(f"{agents} agents: {idle:.1f} % of a core when nothing happens")
    print(f"from a key to the drawn row: median {statistics.median(times):.0f} ms, most {times[-1]:.0f} ms")


def _redraw(top: Terminal, key: bytes) -> float:
    """Return the milliseconds from a key to the first output after it."""
    top.skip(QUIET)
    began = time.monotonic()
    top.write(key)
    top.read(5.0)
    return (time.monotonic() - began) * 1000


def serve(home: Home, agents: int) -> None:
    """Answer as the sessions of so many agents until killed."""
    ready = selectors.DefaultSelector()
    answers: dict[socket.socket, bytes] = {}
    claims, watched = [], []
    for number in range(agents):
        name = f"Agent{number}"
        own = claim(home, "default", name)
        own.note(os.getpid(), os.getpid())
        claims.append(own)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(own.socket)
        listener.listen()
        ready.register(listener, selectors.EVENT_READ)
        answers[listener] = _answer(number, name)
    print("ready", flush=True)
    while True:
        for each, _ in ready.select():
            assert isinstance(each.fileobj, socket.socket)
            channel, _ = each.fileobj.accept()
            with suppress(OSError):
                if b'"view"' in channel.recv(1 << 16):
                    watched.append(channel)  # by a viewer, to whom nothing happens
                    continue
                channel.sendall(answers[each.fileobj])
            channel.close()


def _answer(number: int, name: str) -> bytes:
    info = SessionInfo(
        *(name, "default", "claude", os.getpid(), os.getpid(), STATES[number % len(STATES)], None),
        *(time.time() - 60 * number - 60, str(Path.cwd()), name, Path("/")),
        bus="connected", terminal_pid=os.getpid(), tokens=1000 * number, last_line=f"Reading file {number}.",
    )  # fmt: skip
    described = {each.name: getattr(info, each.name) for each in fields(info) if each.name != "socket"}
    return json.dumps({"info": described}).encode() + b"\n"


if __name__ == "__main__":
    main()
