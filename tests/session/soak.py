"""A soak of real sessions: agents send messages non-stop, while processes around them are killed at random.

    python tests/session/soak.py [--seconds N] [--seed S] [--rate R] [--hostile [--share S]] [--spare]

The agents are a few line programs and TUIs (tests/fakes/agent_remote.py, session_tui.py), which are never
killed. The ledger is checked against what each of them has sent and received:

    said = received + uncertain + expired        each once, and in order

With --hostile there are two teams, and Mallory in the first runs each attack of tests/messaging/hostile.py on
one of its members, in turn, or that share of them. With --spare nothing is killed.

Prints the account and exits 1 if a message is unexplained, arrived twice or out of order, an agent was lost,
or something was left behind. SEED determines which faults happen, not their exact timing.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(1, str(Path(__file__).parent.parent / "messaging"))

import forkserver
from messaging import hostile
from relay import names
from relay.errors import LedgerAway
from relay.features.mailbox import THE_USER
from relay.home import Home
from relay.message import Message, State
from relay.messaging.ledger import Ledger
from support import Relay, processes_of, wait_until

FAKES = Path(__file__).parent.parent / "fakes"
LINES, TUI = FAKES / "agent_remote.py", FAKES / "session_tui.py"
AGENTS = {"Ada": LINES, "Bo": LINES, "Cy": LINES, "Dee": TUI, "Eli": TUI}
TEAM, OTHERS, OTHER_TEAM = "default", {"Dee", "Eli"}, "web"  # with --hostile
MALLORY, VICTIM = "Mallory", "Bo"
OWNED = "Ada"  # wrapped in a terminal that stays open and gets its exit code
RATE = 4.0  # directives per second, of all agents
SETTLE_SECONDS = 150.0  # after the last kill; the longest pause between two retries is a minute
SETTINGS = "runaway_rate = 0\nrunaway_depth = 0\n"

TEXT = re.compile(r"\[relay ([\w-]{4,8}) (?:from )?(\w[\w ]*?)(?:, [\d:]{8})?\] (\d+) \[/relay \1\]")
SHOWN = {THE_USER: names.PERSON}
"""Senders that have another name in the texts that agents receive."""

DONE = {State.INJECTED: {1}, State.UNCERTAIN: {0, 1}, State.EXPIRED: {0}}
"""How often an agent may have received a message with that final state."""


# The account.


@dataclass(frozen=True, slots=True)
class Account:
    """The outcome of all messages, and the errors."""

    said: int
    states: Counter[State]
    wrong: list[str]

    def table(self) -> str:
        rows = [f"  {self.said:>7}  said"]
        rows += [f"  {count:>7}  {state}" for state, count in sorted(self.states.items())]
        return "\n".join([*rows, f"  {len(self.wrong):>7}  wrong", *(f"           {w}" for w in self.wrong)])


Stream = tuple[str, str]
"""A sender and a receiver."""


def account(
    messages: Iterable[Message],
    said: dict[Stream, list[int]],
    given: dict[Stream, list[int]],
    maybe_sent: Iterable[int] = (),
) -> Account:
    """Compare the ledger's `messages`, oldest first, with what was said and `given`, both in order.

    maybe_sent: numbers that may or may not have been sent.
    """
    wrong, rows, unsure = [], defaultdict(list), set(maybe_sent)
    for message in messages:
        rows[message.sender, message.to].append(message)
    for stream in sorted({*rows, *said, *given}):
        what = " to ".join(stream)
        sent, got = said.get(stream, []), given.get(stream, [])
        stored = [int(each.body) for each in rows[stream]]
        wrong += [f"{what}: {n} was lost" for n in sent if n not in stored and n not in unsure]
        wrong += [f"{what}: {n} was never said" for n in stored if n not in sent]
        wrong += [f"{what}: {n} was sent {k} times" for n, k in Counter(stored).items() if k > 1]
        wrong += [f"{what}: {a} was sent before {b}" for a, b in _disorder(stored)]
        wrong += [f"{what}: {n} was given {k} times" for n, k in Counter(got).items() if k > 1]
        wrong += [f"{what}: {a} was given before {b}" for a, b in _disorder(got)]
        wrong += [f"{what}: {n} was given, and never sent" for n in got if n not in stored]
        for message in rows[stream]:
            times = got.count(int(message.body))
            if times not in DONE.get(message.state, set()):
                wrong.append(f"{what}: {message.body} is {message.state}, and was given {times} times")
    states = Counter(message.state for stream in rows for message in rows[stream])
    return Account(sum(map(len, said.values())), states, wrong)


def _disorder(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((one, two) for one, two in itertools.pairwise(numbers) if one > two)


def given_to(name: str, received: str) -> dict[Stream, list[int]]:
    """Return the numbers that the agent `name` has received, by sender."""
    found = defaultdict(list)
    for _, sender, number in TEXT.findall(received):
        found[SHOWN.get(sender, sender), name].append(int(number))
    return found


# The participants.


class Terminal:
    """A `relay` command in a separate terminal, whose output is read and discarded."""

    def __init__(self, relay: Relay, *arguments: str | Path) -> None:
        self.code: int | None = None
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(relay.home)
            os.execve(sys.executable, [*relay.command, *map(str, arguments)], relay.environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.master, keys)

    def signal(self, number: signal.Signals) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def close(self) -> None:
        """Kill the command, if it is running, and close its terminal."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            wait_until(self.ended)
        self._reader.join(10)
        with contextlib.suppress(OSError):
            os.close(self.master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self.master, 1 << 16):
                pass


@dataclass(slots=True)
class Agent:
    """One wrapped program. said: its messages, as receiver and number; pids: of the agent and its shim."""

    relay: Relay
    name: str
    folder: Path
    team: str = TEAM
    said: list[tuple[str, int]] = field(default_factory=list)
    pids: tuple[int, int] = (0, 0)

    def say(self, to: str, number: int) -> None:
        self.pull({"say": f"@relay:{to} {number}\n"})
        self.said.append((to, number))

    def pull(self, what: dict[str, Any]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as strings:
            strings.sendto(json.dumps(what).encode(), str(self.folder / "strings"))

    def received(self) -> str:
        return (self.folder / "received").read_bytes().decode("utf-8", "replace")

    def status(self) -> dict[str, Any]:
        """Return its shim's status, {} without a shim."""
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(30)
            try:
                channel.connect(str(next((self.relay.home / "run").glob(f"**/{self.name.lower()}.shim"))))
                channel.sendall(b'{"op": "status"}\n')
                answer: dict[str, Any] = json.loads(channel.makefile().readline())
            except (OSError, StopIteration, ValueError):
                return {}
        return answer

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal its session; return the session's pid, or 0 without a session."""
        pid = int(self.status().get("pid", 0))
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid


# The faults.


class Soak:
    """The agents of a home, and the faults around them, which `seed` determines."""

    def __init__(
        self,
        path: Path,
        seed: int,
        rate: float,
        *,
        hostile: bool = False,
        share: float = 1.0,
        spare: bool = False,
    ) -> None:
        self.relay = Relay(path)
        self.home = Home.from_env(self.relay.environment)
        self.agents: dict[str, Agent] = {}
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self._chance = random.Random(seed)
        self._rate = rate
        self._others = OTHERS if hostile else set[str]()
        self._share = share
        self._spare = spare
        self._hostile: subprocess.Popen[str] | None = None
        self._clients: list[Terminal] = []
        self._owner: Terminal | None = None
        self._quiet = threading.Event()
        self._user: list[tuple[str, int]] = []
        self._unsure: set[int] = set()
        self._number = 0

    def start(self) -> None:
        config = self.relay.home / "config" / "relay.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(SETTINGS)
        for name, program in AGENTS.items():
            team = OTHER_TEAM if name in self._others else TEAM
            agent = self.agents[name] = Agent(self.relay, name, self.relay.home / "agents" / name, team)
            agent.folder.mkdir(parents=True)
            arguments = ("wrap", "-n", name, "-t", team, sys.executable, str(program), str(agent.folder))
            if name == OWNED:
                self._owner = Terminal(self.relay, *arguments)
            else:
                self.relay("wrap", "-d", *arguments[1:])
        for agent in self.agents.values():
            wait_until(lambda agent=agent: (agent.folder / "received").exists(), 60)  # type: ignore[misc]
            status = wait_until(lambda agent=agent: (s := agent.status()).get("ready") and s, 60)  # type: ignore[misc]
            agent.pids = (status["agent_pid"], status["terminal_pid"])

    def run(self, seconds: float) -> None:
        """Inject faults for `seconds`."""
        talker = threading.Thread(target=self._talk, daemon=True)
        talker.start()
        if self._others:
            self._hostile = subprocess.Popen(
                [sys.executable, str(hostile.__file__), TEAM, MALLORY, VICTIM, str(self._share)],
                env=self.relay.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        acts: dict[Callable[[], None], int] = {
            self._kill_session: 6,
            self._kill_twice: 2,
            self._stop_session: 3,
            self._reload: 2,
            self._kill_while_reloading: 1,
            self._kill_broker: 1,
            self._kill_supervisor: 1,
            self._hang_broker: 1,
            self._kill_all: 1,
            self._attach: 4,
            self._leave: 4,
            self._send: 6,
            self._look: 2,
        }
        if self._spare:
            acts = {act: acts[act] for act in (self._attach, self._leave, self._send, self._look)}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._pause(0.1, 1.0)
            (act,) = self._chance.choices([*acts], [*acts.values()])
            self.done[act.__name__.strip("_").replace("_", " ")] += 1
            act()
        if self._hostile is not None:  # once the current attack is over
            attacks, _ = self._hostile.communicate("\n", 300)
            for each in attacks.splitlines():
                self.done[f"attack: {each}"] += 1
        self._quiet.set()
        talker.join()
        for client in self._clients:
            client.close()

    def settle(self) -> Account:
        """Return the account once it has no errors, or after SETTLE_SECONDS."""
        for agent in self.agents.values():
            self._revive(agent)
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := self._account()).wrong and time.monotonic() < deadline:
            time.sleep(0.5)
        for agent in self.agents.values():
            status = agent.status()
            now = (status.get("agent_pid"), status.get("terminal_pid"))
            if now != agent.pids or not Path(f"/proc/{agent.pids[0]}").exists():
                found.wrong.append(f"the agent {agent.name} was lost: {agent.pids} became {now}")
        return found

    def end(self) -> list[str]:
        """End the agents; return errors in their exit codes, and what is left behind."""
        wrong = []
        codes = {name: number + 10 for number, name in enumerate(self.agents)}
        for name, agent in self.agents.items():
            agent.pull({"exit": codes[name]})
        journal = self.relay.home / "state" / "events.jsonl"

        def ends() -> dict[str, int]:
            entries = map(json.loads, journal.read_text().splitlines())
            return {e["name"]: e["code"] for e in entries if e["event"] == "session_end"}

        with contextlib.suppress(AssertionError):
            wait_until(lambda: ends() == codes, 60)
        if ends() != codes:
            wrong.append(f"exit codes: {ends()} instead of {codes}")
        assert self._owner is not None
        with contextlib.suppress(AssertionError):
            wait_until(self._owner.ended, 60)
        if self._owner.code != codes[OWNED]:
            wrong.append(f"the terminal of {OWNED} was given {self._owner.code}, not {codes[OWNED]}")
        for _ in range(3):  # a broker may have been starting
            self.relay("broker", "stop", check=False)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not processes_of(self.relay.home), 30)
                break
        wrong += [f"left running: {pid} {line}" for pid, line in processes_of(self.relay.home).items()]
        for pattern in ("run/sessions/*/*", "state/sessions/*", "state/native/*"):
            wrong += [f"left behind: {path}" for path in self.relay.home.glob(pattern)]
        return wrong

    def close(self) -> None:
        """Kill everything that is left."""
        self._quiet.set()
        if self._hostile is not None:
            self._hostile.kill()
            self._hostile.communicate()
        for client in [*self._clients, *([self._owner] if self._owner else [])]:
            client.close()
        for pid in processes_of(self.relay.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _talk(self) -> None:
        chance = random.Random(self._chance.random())
        while not self._quiet.wait(chance.expovariate(self._rate)):
            sender, receiver = chance.sample([*self.agents], 2)
            if self.agents[sender].team == self.agents[receiver].team:
                self.agents[sender].say(receiver, self._next())

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _messages(self) -> list[Message]:
        """Return the ledger's messages except Mallory's; on a busy machine it may be locked for a while."""
        try:
            with Ledger(self.home.ledger) as ledger:
                return [each.message for each in ledger.messages() if each.message.sender != MALLORY]
        except LedgerAway:
            return []

    def _account(self) -> Account:
        messages = wait_until(self._messages)
        said, given = defaultdict(list), {}
        for agent in self.agents.values():
            for to, number in agent.said:
                said[agent.name, to].append(number)
            given |= given_to(agent.name, agent.received())
        for to, number in self._user:
            said[names.PERSON, to].append(number)
        return account(messages, said, given, self._unsure)

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._chance.uniform(least, most))

    def _any_agent(self) -> Agent:
        return self.agents[self._chance.choice([*self.agents])]

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            run = self.relay(*arguments, check=False)
        except subprocess.TimeoutExpired:
            self.faults.append(f"relay {' '.join(arguments)} hung")
            raise
        if "Traceback" in run.stderr:
            self.faults.append(f"relay {' '.join(arguments)}: {run.stderr}")
        return run

    def _revive(self, agent: Agent) -> None:
        """Reload a session that the shim has given up, as the user would."""
        agent.kill(signal.SIGCONT)
        if why := agent.status().get("failed"):
            self.done["given up"] += 1
            self.done[f"given up: {why}"] += 1
            self._command("reload", agent.name)

    def _kill_session(self) -> None:
        agent = self._any_agent()
        agent.kill()
        self._revive(agent)

    def _kill_twice(self) -> None:
        """Also kill the next one, at some point of its start."""
        agent = self._any_agent()
        first = agent.kill()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: agent.status().get("pid", first) not in {0, first}, 10)
        self._pause(0.0, 0.8)
        agent.kill()
        self._revive(agent)

    def _stop_session(self) -> None:
        agent = self._any_agent()
        agent.kill(signal.SIGSTOP)
        self._pause(0.2, 3.0)
        match self._chance.randrange(3):
            case 0:
                agent.kill(signal.SIGCONT)
            case 1:
                self._command("reload", agent.name)
            case 2:
                agent.kill()
        self._revive(agent)

    def _reload(self) -> None:
        self._command("reload", self._any_agent().name)

    def _kill_while_reloading(self) -> None:
        agent = self._any_agent()
        run = subprocess.Popen(
            [*self.relay.command, "reload", agent.name],
            env=self.relay.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._pause(0.2, 1.0)
        agent.kill()
        run.wait(60)
        self._revive(agent)

    def _kill_broker(self) -> None:
        self._signal("pid", signal.SIGKILL)

    def _kill_supervisor(self) -> None:
        self._signal("supervisor", signal.SIGKILL)

    def _hang_broker(self) -> None:
        pid = self._signal("pid", signal.SIGSTOP)
        self._pause(0.2, 1.5)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _kill_all(self) -> None:
        """Kill the broker, its supervisor and two sessions within a moment."""
        one, two = self._chance.sample([*self.agents.values()], 2)
        one.kill()
        self._signal("supervisor", signal.SIGKILL)
        self._signal("pid", signal.SIGKILL)
        two.kill()

    def _attach(self) -> None:
        """Attach a terminal, which takes over from any other one."""
        agent = self._any_agent()
        if agent.name != OWNED:
            self._clients.append(Terminal(self.relay, "attach", "--takeover", agent.name))

    def _leave(self) -> None:
        """Detach a terminal, close its window, or kill its command."""
        self._clients = [client for client in self._clients if not client.ended()]
        if not self._clients:
            return
        client = self._chance.choice(self._clients)
        match self._chance.randrange(3):
            case 0:
                client.type(b"\x1dd")
            case 1:
                client.signal(signal.SIGHUP)
            case 2:
                client.signal(signal.SIGKILL)

    def _send(self) -> None:
        """Send a message; sometimes kill the command."""
        to, number = self._any_agent().name, self._next()
        run = subprocess.Popen(
            [*self.relay.command, "send", "-t", self.agents[to].team, to, str(number)],
            env=self.relay.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if self._chance.random() < 0.2:
            self._pause(0.0, 0.5)
            run.kill()
        if run.wait(60) != 0:
            self._unsure.add(number)
        self._user.append((to, number))

    def _look(self) -> None:
        self._command(
            *self._chance.choice([("ps", "--json"), ("messages",), ("explain", self._any_agent().name)])
        )

    def _signal(self, which: str, number: signal.Signals) -> int | None:
        """Signal the broker (`pid`) or its supervisor; return its process id, None if it is not running."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.home.broker / "endpoint.json").read_text())[which])
            os.kill(pid, number)
            return pid
        return None


def soak(
    seconds: float, seed: int, rate: float, *, keep: bool, hostile: bool, share: float, spare: bool
) -> list[str]:
    """Run for `seconds` and print the account; return the errors."""
    path = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp")).resolve()
    made = Soak(path, seed, rate, hostile=hostile, share=share, spare=spare)
    try:
        made.start()
        made.run(seconds)
        found = made.settle()
        wrong = [*found.wrong, *made.faults, *made.end()]
        print(", ".join(f"{count} x {what}" for what, count in made.done.most_common()))
        print(found.table())
        for each in wrong[len(found.wrong) :]:
            print(f"           {each}")
        return wrong
    finally:
        made.close()
        if keep:
            print(f"The home is kept: {path}")
        else:
            shutil.rmtree(path, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults, before everything settles")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="directives a second of all agents")
    parser.add_argument("--keep", action="store_true", help="keep the home, to look at it")
    parser.add_argument("--hostile", action="store_true", help="two teams, and an attacker")
    parser.add_argument("--share", type=float, default=1.0, help="of each attack, in its messages and so on")
    parser.add_argument("--spare", action="store_true", help="kill nothing")
    forkserver.install()
    return 1 if soak(**vars(parser.parse_args())) else 0


if __name__ == "__main__":
    sys.exit(main())
