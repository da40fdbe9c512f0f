"""The measurements of a fleet of one size."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench import Bench
from benchmarks.fleet.swarm import FILES_PER_AGENT, Swarm
from benchmarks.footprint import cpu_seconds, pss

CHAT_RATE = 100.0
"""Messages per second of the whole fleet, so that fleets differ only in size."""

CHAT, BURST = 500, 2000
"""Messages in total: at that rate, and as fast as possible."""

QUIET = 5.0
"""Announcements per second that an agent may get when idle; see `relay.transport.presence.interval`."""

IDLE_SECONDS = 6.0
STORM_SECONDS = 90.0
"""Seconds any step may take; a slower machine has too many agents on it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Messages sent and injected. Times in seconds; `cpu` is the processor time per message."""

    count: int
    p50: float
    p99: float
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Return messages per second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Fleet:
    """One size. Times in seconds, memory in megabytes (PSS), processor time in seconds of one core."""

    size: int
    connected: float
    presence: float  # until every agent knew all others
    announced: int  # announcements received by all until then
    idle_cpu: float  # per second, of all agents and the broker
    chat: Phase
    burst: Phase
    broadcast: Phase
    agent_memory: float
    broker_memory: float


def measure(bench: Bench, size: int) -> Fleet:
    """Measure a fleet of `size` agents. Raise TimeoutError if the machine is too slow for them."""
    check_limits(size)
    with Swarm(bench.env, size) as swarm:
        swarm.ready(STORM_SECONDS)
        broker = broker_pid(bench)
        begun = time.monotonic()
        connected = swarm.ask("connect", seconds=STORM_SECONDS)
        seen = swarm.ask("see", seconds=STORM_SECONDS)
        announced = _heard(swarm)
        seconds, share = (1.0, 10) if bench.quick else (IDLE_SECONDS, 1)
        idle = _idle(swarm, broker, seconds)
        per_agent = max(2, CHAT // share // size)
        chat = _phase(swarm, broker, lambda: swarm.ask("chat", per_agent, CHAT_RATE / size, seconds=60))
        per_agent = max(4, BURST // share // size)
        burst = _phase(swarm, broker, lambda: swarm.ask("chat", per_agent, 1000, seconds=60))
        broadcast = _phase(swarm, broker, lambda: [swarm.ask_first("broadcast", seconds=60)])
        return Fleet(
            size=size,
            connected=max(map(max, connected)) - begun,
            presence=max(map(max, seen)) - begun,
            announced=announced,
            idle_cpu=idle,
            chat=chat,
            burst=burst,
            broadcast=broadcast,
            agent_memory=sum(map(pss, swarm.pids)) / size,
            broker_memory=pss(broker),
        )


def check_limits(size: int) -> None:
    """Raise RuntimeError, with advice, if a process here cannot open enough files for `size` agents."""
    needed = FILES_PER_AGENT * size + 100  # the broker, which serves all of them, needs fewer
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise RuntimeError(
            f"{size} agents need {needed} open files, and a process may have {most}. "
            f"Raise the limit (`ulimit -Hn {needed}` as root), or choose smaller fleets with --size."
        )


def broker_pid(bench: Bench) -> int:
    """Return the process id of the embedded broker in the bench's home."""
    return int(json.loads(bench.relay("broker", "status", "--json"))["pid"])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that the fraction `share` of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _heard(swarm: Swarm) -> int:
    return sum(swarm.ask("heard", seconds=STORM_SECONDS))


def _cpu(swarm: Swarm, broker: int) -> float:
    return sum(map(cpu_seconds, [*swarm.pids, broker]))


def _idle(swarm: Swarm, broker: int, seconds: float) -> float:
    """Return the processor time of idle agents per second."""
    _settle(swarm)
    cpu, begun = _cpu(swarm, broker), time.monotonic()
    time.sleep(seconds)
    return (_cpu(swarm, broker) - cpu) / (time.monotonic() - begun)


def _settle(swarm: Swarm) -> None:
    """Wait until agents get no more announcements than when idle."""
    deadline = time.monotonic() + STORM_SECONDS
    heard = _heard(swarm)
    while time.monotonic() < deadline:
        time.sleep(1)
        before, heard = heard, _heard(swarm)
        if heard - before < QUIET * swarm.size:
            return
    raise TimeoutError("the storm of announcements did not end in time")


def _phase(swarm: Swarm, broker: int, send: Callable[[], list[Any]]) -> Phase:
    """Measure the messages that `send` sends, each of which must be injected exactly once."""
    cpu = _cpu(swarm, broker)
    sent = send()
    count = sum(accepted for _, accepted in sent)
    deadline = time.monotonic() + STORM_SECONDS
    while (injected := sum(swarm.ask("injected", seconds=STORM_SECONDS))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count - injected} of {count} messages were not injected in time")
        time.sleep(0.05)
    taken = [each for worker in swarm.ask("take", seconds=STORM_SECONDS) for each in worker]
    if len(taken) != count:
        raise AssertionError(f"{count} messages were sent, and {len(taken)} injected")
    delays = [delay for delay, _ in taken]
    return Phase(
        count=count,
        p50=percentile(delays, 0.5),
        p99=percentile(delays, 0.99),
        seconds=max(at for _, at in taken) - min(begun for begun, _ in sent),
        cpu=(_cpu(swarm, broker) - cpu) / count,
    )
