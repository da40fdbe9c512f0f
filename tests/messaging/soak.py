"""A soak: agents that send non-stop are killed at random with their broker; then an account of all messages.

python tests/messaging/soak.py [--seconds N] [--seed S]

Each agent is a process with a real messaging client; all share one home and its embedded broker. Each agent
records in a file what it sends, before and after sending, and what is injected into it, between `injecting`
and `settle`, when a real agent would have it on its screen. What is appended to a file survives kill -9, so
these notes are the truth that the ledger is checked against:

    sent = injected + uncertain + waiting + dead letters

Prints the account and exits 1 if a message is unexplained: lost, injected twice, out of order, or in a state
that the notes contradict.  SEED fixes the sequence of faults, not their timing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.errors import LedgerError, MessageRefused, RelayError
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, Priority, State
from relay.messaging.client import MessagingClient
from relay.messaging.events import MessageStored, StatusReported
from relay.messaging.ledger import Ledger
from relay.messaging.runaway import Limits
from relay.transport import broker

TEAM = "soak"
AGENTS = ("Ada", "Bo", "Cy", "Dee")
AWAY = "Eve"  # killed for good at half time: mail to her waits, and others publish what she sent
RATE = 25.0  # messages per second and agent
BROADCASTS, SHORT_LIVED, REJECTED = 0.02, 0.05, 0.02
"""The fractions of broadcasts, of messages that expire after SHORT_TTL, and of those that cannot be typed."""
SHORT_TTL = 1.0  # seconds
DROPPED = 0.05  # the chance that the user drops a waiting message, at each kill
SETTLE_SECONDS = 90.0  # after the last kill; the longest pause between two retries is a minute

UNLIMITED = Limits(rate=0, depth=0, broadcasts=0, queue=0)
PRIORITIES = tuple(Priority)
WAITING = {State.HELD, State.QUEUED, State.SENT, State.STORED}
DEAD = {State.REJECTED, State.EXPIRED}


# The agents.


@dataclass(frozen=True, slots=True)
class Sent:
    """A sender's note. to: may be `*`. number: increases. id: None if the sender died or was refused."""

    sender: str
    to: str
    number: int
    id: str | None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Injected:
    """A receiver's note: message `id` was injected into the agent."""

    receiver: str
    sender: str
    number: int
    id: str


class Notes:
    """A file of JSON lines, each written atomically, so a kill leaves no partial line."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, *fields: object) -> None:
        os.write(self._descriptor, json.dumps(fields).encode() + b"\n")


async def agent(home: Home, notes: Path, name: str, seed: int, first: int) -> None:
    """Send to random agents and accept what arrives, until standard input ends. Numbers start at `first`."""
    chance = random.Random(seed)
    sent, injected = Notes(notes / f"{name}.sent"), Notes(notes / f"{name}.injected")
    wake = asyncio.Event()
    talking = asyncio.Event()
    talking.set()

    def publish(event: Event) -> None:
        if isinstance(event, MessageStored | StatusReported):
            wake.set()

    client = await MessagingClient.open(home, TEAM, name, limits=UNLIMITED, publish=publish)

    async def read_commands() -> None:
        """Stop sending at the first line; exit at the end of standard input."""
        commands = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while await commands.readline():
            talking.clear()
        os._exit(0)

    async def talk() -> None:
        others = [other for other in (*AGENTS, AWAY) if other != name]
        number = first
        while talking.is_set():
            await asyncio.sleep(chance.expovariate(RATE))
            number, to = number + 1, "*" if chance.random() < BROADCASTS else chance.choice(others)
            ttl = SHORT_TTL if chance.random() < SHORT_LIVED else None
            sent.add("trying", to, number)
            try:
                outgoing = OutgoingMessage(to, str(number), priority=chance.choice(PRIORITIES), ttl=ttl)
                messages = await client.send(outgoing)
            except RelayError as error:
                sent.add("refused", to, number, str(error))
            else:
                for message in messages:
                    sent.add("sent", message.to, number, message.id)

    async def listen() -> None:
        while True:
            await wake.wait()
            wake.clear()
            while waiting := await client.waiting():
                await take(waiting[0])

    async def take(message: Message) -> None:
        try:
            await client.injecting(message.id)
        except MessageRefused:
            return  # the user dropped it first
        await asyncio.sleep(chance.uniform(0.0, 0.01))
        if chance.random() < REJECTED:
            await client.settle(message.id, State.REJECTED, "it is a shell")
            return
        injected.add(message.sender, int(message.body), message.id)
        await asyncio.sleep(chance.uniform(0.0, 0.01))
        await client.settle(message.id, State.INJECTED)

    async with asyncio.TaskGroup() as tasks:
        for work in (client.run(), read_commands(), talk(), listen()):
            tasks.create_task(work)


# The account.


@dataclass(frozen=True, slots=True)
class Account:
    """How many messages are in each state, and which ones are unexplained."""

    states: Counter[State]
    accepted: int
    unexplained: list[str]

    def table(self) -> str:
        """Return lines for display; the sum must match."""
        groups = {
            "injected": self.states[State.INJECTED],
            "uncertain": self.states[State.UNCERTAIN],
            "waiting": sum(self.states[state] for state in WAITING),
            "dead letters": sum(self.states[state] for state in DEAD),
            "unexplained": len(self.unexplained),
        }
        rows = [f"  {count:>7}  {what}" for what, count in groups.items()]
        return "\n".join([f"  {self.accepted:>7}  sent", *rows])


def account(
    messages: Iterable[Message], sent: Sequence[Sent], injected: Sequence[Injected], away: Iterable[str]
) -> Account:
    """Compare the ledger's `messages` with the notes. away: receivers whose messages may still wait."""
    ledger = {message.id: message for message in messages}
    times = Counter(each.id for each in injected)
    tried = {(each.sender, each.to, each.number): each for each in sent}
    wrong = [f"{each.id} was accepted and is gone" for each in sent if each.id and each.id not in ledger]
    wrong += [f"{id} was injected {count} times" for id, count in times.items() if count > 1]
    wrong += [f"{id} was injected but is not in the ledger" for id in times if id not in ledger]
    bodies = Counter((m.sender, m.to, m.body) for m in ledger.values())
    wrong += [
        f"{sender} to {to}: {body} is listed {n} times" for (sender, to, body), n in bodies.items() if n > 1
    ]
    for message in ledger.values():
        number = int(message.body)
        one, all_ = ((message.sender, to, number) for to in (message.to, "*"))
        noted = tried.get(one) or tried.get(all_)
        if noted is None or noted.refused or noted.id not in {None, message.id}:
            wrong.append(f"{message.id} is in the ledger but was not sent: {noted}")
        if times[message.id] not in _possible(message.state):
            wrong.append(f"{message.id} is {message.state} and was injected {times[message.id]} times")
        if message.state in WAITING and message.to not in away:
            wrong.append(f"{message.id} is {message.state}, and its receiver {message.to} is running")
    wrong += _disorder(injected, ledger)
    return Account(Counter(m.state for m in ledger.values()), len(ledger), wrong)


def _possible(state: State) -> set[int]:
    """Return how often a message in `state` may have been injected."""
    if state is State.INJECTED:
        return {1}
    return {0, 1} if state is State.UNCERTAIN else {0}


def _disorder(injected: Sequence[Injected], ledger: Mapping[str, Message]) -> Iterator[str]:
    """Report messages out of order among those with the same sender, receiver and priority."""
    last: dict[tuple[str, str, Priority], int] = defaultdict(int)
    for each in injected:
        if each.id in ledger:
            stream = (each.sender, each.receiver, ledger[each.id].priority)
            if each.number < last[stream]:
                yield f"{each.id} ({' '.join(stream)}, {each.number}) came after {last[stream]}"
            last[stream] = max(last[stream], each.number)


def read_sent(path: Path) -> list[Sent]:
    """Return the notes of the sender that `path` is named after."""
    name = path.name.removesuffix(".sent")
    found: dict[tuple[str, int], Sent] = {}
    for what, to, number, *rest in map(json.loads, path.read_text().splitlines()):
        found[to, number] = Sent(name, to, number, rest[0] if what == "sent" else None, what == "refused")
    return list(found.values())


def read_injected(path: Path) -> list[Injected]:
    """Return the notes of the receiver that `path` is named after, in order."""
    name = path.name.removesuffix(".injected")
    return [Injected(name, *fields) for fields in map(json.loads, path.read_text().splitlines())]


# The faults.


class Soak:
    """The agents of `home` and their faults, which `chance` selects."""

    def __init__(self, home: Home, notes: Path, seed: int) -> None:
        self._home = home
        self._notes = notes
        self._chance = random.Random(seed)
        self._agents: dict[str, subprocess.Popen[str]] = {}
        self._runs: Counter[str] = Counter()
        self._unlisted: list[str] = []
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Inject faults for `seconds`, then let everything settle."""
        begun = time.monotonic()
        for name in (*AGENTS, AWAY):
            self._start(name)
        actions = (
            self._kill_agent,
            self._kill_agent,
            self._kill_broker,
            self._kill_supervisor,
            self._hang_broker,
            self._kill_all,
        )
        while (elapsed := time.monotonic() - begun) < seconds:
            self._pause(0.1, 0.8)
            if AWAY in self._agents and elapsed > seconds / 2:
                self._kill(AWAY)
            else:
                action = self._chance.choice(actions)
                self.done[action.__name__.strip("_").replace("_", " ")] += 1
                action()
            if self._chance.random() < DROPPED:
                self._drop()
        for process in self._agents.values():
            _command(process, "quiet\n")

    def settle(self) -> Account:
        """Return the account once it is complete, or after SETTLE_SECONDS."""
        with Ledger(self._home.ledger) as ledger:
            ledger.inbox.recover(TEAM, AWAY)  # as its next start would: a message being typed is uncertain
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := self._account()).unexplained and time.monotonic() < deadline:
            time.sleep(0.25)
            for name, process in self._agents.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended by itself with {process.returncode}")
        return found

    def close(self) -> None:
        for name in list(self._agents):
            self._kill(name)
        broker.stop(self._home)

    def _account(self) -> Account:
        # Read the ledger before the notes: a message missing from it is then checked again.
        with Ledger(self._home.ledger) as ledger:
            listed = [*ledger.messages(), *ledger.lookup(self._unlisted)]
        return account(
            [entry.message for entry in listed],
            [each for path in self._notes.glob("*.sent") for each in read_sent(path)],
            [each for path in self._notes.glob("*.injected") for each in read_injected(path)],
            {AWAY},
        )

    def _start(self, name: str) -> None:
        self._runs[name] += 1
        run = self._runs[name]
        self._agents[name] = subprocess.Popen(
            [
                *(sys.executable, __file__, "--agent", name, "--notes", str(self._notes)),
                *("--first", str(run * 1_000_000), "--seed", str(self._chance.randrange(1 << 30))),
            ],
            env={**os.environ, "RELAY_HOME": str(Path(self._home.state_dir).parent)},
            stdin=subprocess.PIPE,
            text=True,
        )

    def _kill(self, name: str) -> None:
        process = self._agents.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def _kill_agent(self) -> None:
        name = self._chance.choice(AGENTS)
        self._kill(name)
        self._pause(0.0, 0.3)
        self._start(name)

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
        """Kill the broker, its supervisor and two agents at nearly the same time."""
        names = self._chance.sample(AGENTS, 2)
        self._kill(names[0])
        self._signal("supervisor", signal.SIGKILL)
        self._signal("pid", signal.SIGKILL)
        self._kill(names[1])
        for name in names:
            self._start(name)

    def _signal(self, which: str, number: signal.Signals) -> int | None:
        """Signal the broker (`pid`) or its supervisor; return its process id, None if it is not running."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self._home.broker / "endpoint.json").read_text())[which])
            os.kill(pid, number)
            return pid
        return None

    def _drop(self) -> None:
        """Drop a waiting message, as the user may at any time."""
        with Ledger(self._home.ledger) as ledger:
            waiting = [e.message for e in ledger.messages() if e.message.state in WAITING]
            if waiting:
                self.done["drop"] += 1
                with contextlib.suppress(LedgerError):  # too late
                    dropped = ledger.drop(self._chance.choice(waiting).id)
                    if dropped.state.final:  # settled in the meantime, and no longer listed
                        self._unlisted.append(dropped.id)

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._chance.uniform(least, most))


def _command(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def soak(seconds: float, seed: int) -> Account:
    """Run the soak in a temporary home, which is kept only if something is unexplained."""
    directory = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp")).resolve()
    home = Home.from_env({"RELAY_HOME": str(directory / "home")}).ensure()
    notes = directory / "notes"
    notes.mkdir()
    own = Soak(home, notes, seed)
    try:
        own.run(seconds)
        result = own.settle()
    finally:
        own.close()
    print(f"seed {seed}, {seconds:g} s: " + ", ".join(f"{what} {n}" for what, n in sorted(own.done.items())))
    print(result.table())
    if result.unexplained:
        print("\n".join(f"unexplained: {each}" for each in result.unexplained))
        print(f"Kept for inspection: {directory}")
    else:
        shutil.rmtree(directory)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of kills; then everything settles")
    parser.add_argument("--seed", type=int, default=1)
    for option in ("--agent", "--notes", "--first"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        logging.getLogger("relay").setLevel(logging.ERROR)  # the broker's deaths are expected here
        notes, first = Path(options.notes), int(options.first)
        asyncio.run(agent(Home.from_env(), notes, options.agent, options.seed, first))
        return 0
    return 1 if soak(options.seconds, options.seed).unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
