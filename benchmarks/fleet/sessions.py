"""Real sessions without a terminal: `relay wrap -d` of line agents that all talk to each other."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench, processes_of
from benchmarks.fleet.phases import IDLE_SECONDS, STORM_SECONDS, broker_pid, percentile
from benchmarks.footprint import cpu_seconds, pss

_SETTINGS = "runaway_rate = 0\nrunaway_depth = 0\n"  # runaway limits would hold this much traffic
TO_ONE, QUICK_TO_ONE = 1200, 60
"""Messages from all sessions to one."""

_PACE = 0.015  # seconds between two directives, from different agents
_LINE = re.compile(rb"^(\d+) .*number (\d+) said (\d+)")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Times in seconds, memory in megabytes (PSS), processor time in seconds of one core."""

    size: int
    memory: float  # of a session's process
    broker_memory: float
    idle_cpu: float  # of one session, per second
    count: int  # directives, from each to each other
    p50: float  # from the directive in one's output to the line on the other's input
    p99: float
    to_one_count: int
    to_one: float  # messages per second, from all to one
    to_one_cpu: float  # of all processes of the home, including agents and shims, per message
    all_idle_cpu: float  # of all processes of the home, per second


def measure(bench: Bench, size: int, rounds: int) -> Sessions:
    """Start `size` sessions, let them idle, then have them talk: each to `rounds` others, then all to one."""
    names = [f"s{number}" for number in range(size)]
    settings = bench.directory / "config" / "relay.toml"
    settings.write_text(_SETTINGS, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        stack.callback(settings.unlink)
        told = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        told.bind(str(bench.directory / "told"))
        told.settimeout(STORM_SECONDS)
        stack.callback(bench.relay, "stop", "--all", timeout=STORM_SECONDS)
        for name in names:
            bench.start(name, bench.program("agent", _orders(bench, name), bench.directory / "told"))
        pids = [int(each["session_pid"]) for each in json.loads(bench.relay("ps", "--json"))]
        broker = broker_pid(bench)
        time.sleep(2)  # the last ones have discovered all the others
        everything = [*processes_of(bench.directory)]
        before, begun = sum(map(cpu_seconds, pids)), time.monotonic()
        all_before = sum(map(cpu_seconds, everything))
        time.sleep(IDLE_SECONDS)
        idle = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - begun) / size
        all_idle = (sum(map(cpu_seconds, everything)) - all_before) / (time.monotonic() - begun)
        delays, _ = _talk(bench, names, told, rounds * size, _PACE)
        before = sum(map(cpu_seconds, everything))
        most = QUICK_TO_ONE if bench.quick else TO_ONE
        to_one, to_one_seconds = _talk(bench, names, told, most, 0.0, names[0])
        to_one_used = sum(map(cpu_seconds, everything)) - before
        return Sessions(
            size=size,
            memory=sum(map(pss, pids)) / size,
            broker_memory=pss(broker),
            idle_cpu=idle,
            count=len(delays),
            p50=percentile(delays, 0.5),
            p99=percentile(delays, 0.99),
            to_one_count=len(to_one),
            to_one=len(to_one) / to_one_seconds,
            to_one_cpu=to_one_used / len(to_one),
            all_idle_cpu=all_idle,
        )


def _orders(bench: Bench, name: str) -> Path:
    return bench.directory / f"{name}.orders"


def _talk(
    bench: Bench, names: list[str], told: socket.socket, expected: int, pace: float, receiver: str = ""
) -> tuple[list[float], float]:
    """Return the seconds of each message and in total. Raise AssertionError if a message arrives twice.

    receiver: gets everything the others say ("": each says one thing to each other in turn).
    """
    speakers = [name for name in names if name != receiver]

    def speak() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as orders:
            for number in range(expected):
                one, step = number % len(speakers), number // len(speakers) + 1
                to = receiver or names[(one + step) % len(names)]
                text = f"@relay:{to} number {number} said {{now}}\n"
                orders.sendto(text.encode(), str(_orders(bench, speakers[one])))
                time.sleep(pace)

    begun = time.monotonic()
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    delays: dict[int, float] = {}
    while len(delays) < expected:
        try:
            line = told.recv(1 << 16)
        except TimeoutError:
            raise TimeoutError(f"{expected - len(delays)} of {expected} directives were not read") from None
        if found := _LINE.match(line):
            read, number, said = map(int, found.groups())
            if number in delays:
                raise AssertionError(f"message {number} was read twice")
            delays[number] = (read - said) / 1e9
    speaker.join()
    return list(delays.values()), time.monotonic() - begun
