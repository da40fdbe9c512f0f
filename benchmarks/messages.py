"""Messages: from a directive in one agent's output to bytes on another's input, over the embedded broker."""

from __future__ import annotations

import contextlib
import re
import socket
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench, wait_until
from benchmarks.footprint import cpu_seconds
from benchmarks.table import Figure

BURST = 50
_TIMEOUT = 30.0
_PAUSE = 0.05  # seconds between two messages

CONFIG = """\
from relay import pattern


@pattern("bench")
def bench(target, message, ctx):
    return {"inject": message}
"""


class Pair:
    """An agent that prints what it is told to, and the lines that an agent (the same or another) reads."""

    def __init__(self, orders: str, lines: socket.socket) -> None:
        self._orders = orders
        self._lines = lines
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def say(self, text: str) -> None:
        self._socket.sendto(text.encode(), self._orders)

    def heard(self) -> tuple[int, int, int]:
        """Return the number of the next message, and when it was printed and when read (nanoseconds)."""
        while True:
            read, _, line = self._lines.recv(1 << 16).partition(b" ")
            if found := re.search(rb"number (\d+) said (\d+)", line):
                return int(found[1]), int(found[2]), int(read)

    def close(self) -> None:
        self._socket.close()


def latency(bench: Bench) -> list[Figure]:
    """From the directive that A prints to the bytes on B's standard input"""
    with _pair(bench) as pair:
        _warm_up(pair)
        milliseconds = []
        for number in range(20 if bench.quick else 100):
            pair.say(f"@relay:B number {number} said {{now}}\n")
            found, said, read = pair.heard()
            if found != number:
                raise AssertionError(f"message {found} arrived instead of {number}")
            milliseconds.append((read - said) / 1e6)
            time.sleep(_PAUSE)
    p50, p90 = statistics.median(milliseconds), statistics.quantiles(milliseconds, n=10)[-1]
    return [
        Figure(
            "A's directive to bytes on B's stdin, p50",
            "≤ 5 ms",
            f"{p50:.1f} ms (p90 {p90:.1f} ms)",
            "agent-relay 1.6: 225 ms",
            f"{p50 / 225:.3f}",
            p50 <= 5,
        )
    ]


def burst(bench: Bench) -> list[Figure]:
    """50 messages from A to B at once, until the last is read; none lost, all in order"""
    seconds = []
    with _pair(bench) as pair:
        _warm_up(pair)
        for _ in range(1 if bench.quick else 5):
            pair.say("".join(f"@relay:B number {number} said {{now}}\n" for number in range(BURST)))
            arrived = [pair.heard() for _ in range(BURST)]
            numbers = [number for number, _, _ in arrived]
            if numbers != list(range(BURST)):
                raise AssertionError(f"lost, doubled or out of order: {numbers}")
            seconds.append((arrived[-1][2] - arrived[0][1]) / 1e9)
            time.sleep(0.5)
    middle = statistics.median(seconds)
    return [
        Figure(
            f"burst of {BURST} messages from A to B, in order",
            "≤ 0.15 s, none lost",
            f"{middle:.2f} s, none lost",
            "agent-relay 1.6: 34.9 s",
            f"{middle / 34.9:.3f}",
            middle <= 0.15,
        )
    ]


def injection(bench: Bench) -> list[Figure]:
    """One injection: from an agent's directive, through the user's handler, to the agent's own input"""
    config = bench.directory / "relay.config.py"
    config.write_text(CONFIG, encoding="utf-8")
    bench.relay("trust", str(config))
    milliseconds = []
    with _pair(bench, ["A"], "--config", str(config)) as pair:
        _warm_up(pair, "@bench:me")
        session = bench.session("A")
        before = cpu_seconds(session)
        rounds = 20 if bench.quick else 100
        for number in range(rounds):
            pair.say(f"@bench:me number {number} said {{now}}\n")
            _, said, read = pair.heard()
            milliseconds.append((read - said) / 1e6)
            time.sleep(_PAUSE)
        cpu = (cpu_seconds(session) - before) / rounds * 1000
    p50 = statistics.median(milliseconds)
    return [
        Figure(
            "one injection, from directive through handler to stdin",
            "≤ 10 ms",
            f"{p50:.1f} ms ({cpu:.1f} ms of CPU)",
            ok=p50 <= 10,
        )
    ]


@contextlib.contextmanager
def _pair(bench: Bench, names: Sequence[str] = ("B", "A"), *options: str) -> Iterator[Pair]:
    """Run agents with these names: the last prints what it is told to, the first reports what it reads."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for name in names:
            orders, told = (bench.directory / f"{name}.{what}" for what in ("orders", "told"))
            stack.callback(orders.unlink, missing_ok=True)
            stack.callback(told.unlink, missing_ok=True)
            lines = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            lines.bind(str(told))
            lines.settimeout(_TIMEOUT)
            stack.enter_context(bench.detached(name, bench.program("agent", orders, told), *options))
            wait_until(orders.exists, _TIMEOUT, f"the agent {name} to start")
            sockets.append(lines)
        pair = Pair(str(orders), sockets[0])
        stack.callback(pair.close)
        yield pair


def _warm_up(pair: Pair, directive: str = "@relay:B") -> None:
    for number in range(5):
        pair.say(f"{directive} number {number} said {{now}}\n")
        pair.heard()
    time.sleep(1)
