"""How fast a message is: from `send` in one process to `on_message` in another, over the embedded broker.

.venv/bin/python benchmarks/bus.py [--json]

Both agents are couriers in one home, each in a process of its own, as two sessions would be. Prints the
latency of single messages, 10 ms apart, the time of bursts until the last one is
there, whether any was lost or out of order, and what one process costs in memory and while nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from relay.home import Home
from relay.messaging.client import Courier
from relay.messaging.message import Message, State
from relay.messaging.runaway import Limits
from relay.transport import broker

SINGLE = 500
BURSTS = (50, 1000)
IDLE_SECONDS = 10.0


async def receive(home: Home) -> None:
    """The other process: print when each message came, on the clock that both share."""

    def arrived(message: Message) -> None:
        print(f"{message.body} {time.monotonic()}", flush=True)
        courier.injecting(message.id)
        courier.settle(message.id, State.INJECTED)

    courier = Courier(
        home,
        "default",
        "Bob",
        on_message=arrived,
        on_outcome=lambda _: None,
        on_status=lambda _: None,
    )
    await courier.run()


async def measure(home: Home) -> dict[str, float]:
    connected = asyncio.Event()
    injected: asyncio.Queue[float] = asyncio.Queue()

    def outcome(message: Message) -> None:
        if message.state is State.INJECTED:
            injected.put_nowait(time.monotonic())

    courier = Courier(
        home,
        "default",
        "Alice",
        limits=Limits(rate=0),
        on_message=lambda _: None,
        on_outcome=outcome,
        on_status=lambda _: connected.set(),
    )
    running = asyncio.create_task(courier.run())
    await connected.wait()
    other = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--receive", stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    while not any(p.name == "Bob" and p.online for p in courier.roster()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    results: dict[str, float] = {}
    latencies, receipts = [], []
    for number in range(SINGLE):
        begun = time.monotonic()
        courier.send("Bob", str(number))
        body, at = (await other.stdout.readline()).split()
        assert int(body) == number
        latencies.append(float(at) - begun)
        receipts.append(await injected.get() - begun)
        await asyncio.sleep(0.01)
    latencies.sort()
    results["latency_p50_ms"] = statistics.median(latencies) * 1e3
    results["latency_p99_ms"] = latencies[int(SINGLE * 0.99)] * 1e3
    results["receipt_p50_ms"] = statistics.median(receipts) * 1e3

    for count in BURSTS:
        begun = time.monotonic()
        for number in range(count):
            courier.send("Bob", str(number))
        lines = [(await other.stdout.readline()).split() for _ in range(count)]
        assert [int(body) for body, _ in lines] == list(range(count)), "lost or out of order"
        results[f"burst_{count}_s"] = float(lines[-1][1]) - begun
        for _ in range(count):
            await injected.get()

    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(IDLE_SECONDS)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    results["idle_cpu_percent"] = 100 * used / IDLE_SECONDS
    if (pss := pss_mb()) is not None:
        results["pss_mb"] = pss

    other.terminate()
    await other.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return results


def pss_mb() -> float | None:
    """This process's share of memory (proc(5), smaps_rollup), where the system tells."""
    try:
        rollup = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return None
    return int(rollup.partition("Pss:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.receive:
        asyncio.run(receive(Home.from_env()))
        return
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as directory:
        os.environ["RELAY_HOME"] = directory
        home = Home.from_env().ensure()
        begun = time.monotonic()
        broker.ensure(home)
        results = {"broker_start_ms": (time.monotonic() - begun) * 1e3}
        try:
            results |= asyncio.run(measure(home))
        finally:
            broker.stop(home)
    if args.json:
        print(json.dumps({name: round(value, 3) for name, value in results.items()}))
    else:
        for name, value in results.items():
            print(f"{name:<20} {value:>10.3f}")


if __name__ == "__main__":
    main()
