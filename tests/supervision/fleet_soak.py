"""A soak test of a fleet: agents that crash, are killed, stopped and restarted at random.

    python tests/supervision/fleet_soak.py [--seconds N] [--agents N] [--seed S]

The agents are line programs (tests/fakes/agent_remote.py). Sometimes all processes of the home are killed
at once, as in a reboot, and `relay up` runs. In the end each agent must be running once, except those that
the user has stopped, and each message must be accounted for. The seed fixes which fault hits which agent, not
when. Prints a summary, and exits with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from support import Relay, processes_of, wait_until

REMOTE = Path(__file__).parent.parent / "fakes" / "agent_remote.py"
NAMES = ("Ada", "Bo", "Cy", "Dee", "Eli", "Fay", "Gus", "Hal")
DEFAULTS = (
    '[fleet]\nteam = "day"\nstart_interval = 0\nmax_running = 0\n[defaults]\nrestart = "always"\n'
    "backoff = 0.05\nbackoff_max = 0.5\nmax_restarts = 100000\nidle_grace = 3600\nmax_unattended_turns = 0\n"
)
PAUSE = 0.25  # average seconds between two faults
TEXT = re.compile(r"\[relay ([\w-]{4,8}) from the user(?:, [\d:]{8})?\] (\d+) \[/relay \1\]")

Row = dict[str, Any]


class Soak:
    """One fleet and its faults. down: agents that the user has stopped. sent: numbers, by agent."""

    def __init__(self, relay: Relay, seed: int, agents: int) -> None:
        self.relay = relay
        self.names = NAMES[:agents]
        self.random = random.Random(seed)
        self.folder = relay.home / "project"
        self.down: set[str] = set()
        self.sent: dict[str, list[int]] = {name: [] for name in self.names}
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        text = DEFAULTS
        for name in self.names:
            (self.folder / name).mkdir(parents=True)
            command = json.dumps([sys.executable, str(REMOTE), str(self.folder / name)])
            text += f"[agents.{name}]\nrun = {command}\n"
        (self.folder / "relay.toml").write_text(text)
        self.run("trust", "relay.toml")
        self.up()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.relay(*words, cwd=self.folder, check=False, timeout=120)

    def rows(self) -> dict[str, Row]:
        return {row["name"]: row for row in json.loads(self.run("ps", "--json").stdout)}

    def up(self, *names: str) -> None:
        self.run("up", *names)

    # The faults.

    def inject_fault(self) -> None:
        """Inject one fault."""
        faults: list[Callable[[str, Row], None]] = [
            *(self.crash, self.kill, self.kill_session, self.kill_both) * 2,
            self.message,
            self.message,
            self.message,
            self.reload,
            self.restart,
            self.stop,
        ]
        if self.random.random() < 0.04:
            self.reboot()
            return
        if self.down and self.random.random() < 0.3:
            name = self.random.choice(sorted(self.down))
            self.down.discard(name)
            self.up(name)
            self.done["up"] += 1
            return
        rows = self.rows()
        if rows:
            name = self.random.choice(sorted(rows))
            fault = self.random.choice(faults)
            self.done[fault.__name__] += 1
            fault(name, rows[name])

    def crash(self, name: str, _: Row) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as strings, contextlib.suppress(OSError):
            code = self.random.choice((0, 1, 3, 255))
            strings.sendto(json.dumps({"exit": code}).encode(), str(self.folder / name / "strings"))

    def kill(self, _: str, row: Row) -> None:
        _kill(row["agent_pid"])

    def kill_session(self, _: str, row: Row) -> None:
        _kill(row["session_pid"])

    def kill_both(self, _: str, row: Row) -> None:
        pids = [row["agent_pid"], row["session_pid"]]
        self.random.shuffle(pids)
        for pid in pids:
            _kill(pid)

    def message(self, name: str, _: Row) -> None:
        number = sum(map(len, self.sent.values()))
        if self.run("send", "-t", "day", name, str(number)).returncode == 0:
            self.sent[name].append(number)

    def reload(self, name: str, _: Row) -> None:
        self.run("reload", name)

    def restart(self, name: str, _: Row) -> None:
        self.run("restart", name)

    def stop(self, name: str, _: Row) -> None:
        if self.run("stop", "--now", name).returncode == 0:
            self.down.add(name)

    def reboot(self) -> None:
        """Kill every process of the home at once, except the broker, and start what is wanted."""
        self.done["reboot"] += 1
        for row in self.rows().values():
            for pid in (row["terminal_pid"], row["session_pid"], row["agent_pid"]):
                _kill(pid)
        self.up()

    # The outcome.

    def settle(self) -> list[str]:
        """Bring the fleet up, wait until it is running, and return what is wrong."""
        wanted = set(self.names) - self.down
        self.up()
        wrong = []
        with contextlib.suppress(AssertionError):
            wait_until(lambda: {n for n, row in self.rows().items() if row["state"] == "ready"} == wanted, 90)
        states = {name: row["state"] for name, row in self.rows().items()}
        if states != dict.fromkeys(wanted, "ready"):
            wrong.append(f"expected {sorted(wanted)} to be ready, found {states}")
        mark = str(REMOTE)
        running = Counter(
            Path(command.split()[2]).name
            for command in processes_of(self.relay.home).values()
            if mark in command and " -m relay" not in command
        )
        wrong += [f"{name} runs {n} times" for name, n in running.items() if n != 1 or name in self.down]
        for name in sorted(self.down):
            self.up(name)  # to have its messages delivered
        self.down.clear()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.unfinished(), 120)
        return wrong + self.account()

    def messages(self) -> list[Row]:
        return json.loads(self.run("messages", "-t", "day", "--all", "--json").stdout)

    def unfinished(self) -> list[Row]:
        return [row for row in self.messages() if row["state"] not in {"injected", "uncertain"}]

    def account(self) -> list[str]:
        states = {int(row["body"]): row["state"] for row in self.messages()}
        wrong = []
        for name, numbers in self.sent.items():
            path = self.folder / name / "received"
            received = [int(n) for _, n in TEXT.findall(path.read_text() if path.exists() else "")]
            for number in numbers:
                times, state = received.count(number), states.get(number, "lost")
                if times not in {"injected": {1}, "uncertain": {0, 1}}.get(state, set()):
                    wrong.append(f"{number} to {name} is {state}, and was received {times} times")
        return wrong

    def end(self) -> None:
        self.run("down", "--now")
        self.run("broker", "stop")


def _kill(pid: int | None) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--agents", type=int, default=len(NAMES))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="r-"))
    soak = Soak(Relay(home), args.seed, args.agents)
    try:
        soak.start()
        until = time.monotonic() + args.seconds
        while time.monotonic() < until:
            soak.inject_fault()
            time.sleep(soak.random.expovariate(1 / PAUSE))
        wrong = soak.settle()
    finally:
        soak.end()
    wrong += [f"left behind: {command}" for command in processes_of(home).values()]
    for what, times in soak.done.most_common():
        print(f"  {times:>5} x {what}")
    print(
        f"  {sum(map(len, soak.sent.values())):>5} messages", f"  {len(wrong):>5} wrong", *wrong, sep="\n  "
    )
    if wrong:
        print(
            f"  relay's home is {home}; its log ends with:",
            (home / "state" / "session.log").read_text()[-4000:],
        )
    else:
        shutil.rmtree(home)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
