"""Kill a process at a named step of the protocol, without any code for it in the product.

A step is a method; in the process that is to die, `arm` replaces it by one that sends SIGKILL before or after
its Nth call.  A step of the ledger is over once it is committed.  `POINTS` lists the steps in the order in
which a message passes them, and the required outcome of the message being handled when the process died, once
everything has been restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from relay.errors import MessageRefused
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging import outgoing, publisher
from relay.messaging.client import MessagingClient
from relay.messaging.envelope import Receipt
from relay.messaging.events import MessageStored
from relay.messaging.inbox import Inbox
from relay.messaging.owner import Owner
from relay.messaging.presence_listener import PresenceListener
from relay.storage.sqlite import Database
from relay.transport import broker, name_claims

TEAM = "default"

OFFICE = Path("/office")
"""The actors' folder, on every host: mail for one of them waits for the next of that name."""

PROCESSES = multiprocessing.get_context("forkserver")
"""Starts actors within milliseconds: the fork server has already imported everything."""
PROCESSES.set_forkserver_preload(["failpoints"])


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class End:
    """A possible outcome of a message: its state, and how often the receiver's agent got it."""

    state: State
    typed: int


INJECTED = End(State.INJECTED, 1)
HALF = {End(State.UNCERTAIN, 0), End(State.UNCERTAIN, 1)}


@dataclass(frozen=True, slots=True)
class Point:
    """A step, and which process takes it.

    target: "module:Class.method" or "module:function".
    kind: if the method serves several purposes, the one meant: the kind of payload published.
    before, after: the end of the first message if only that process died there; None: it was never accepted.
    once_died_at: the step at which the process has to die first, if only its next start gets here.
    """

    target: str
    kind: str | None = None
    before: End | None = INJECTED
    after: End | None = INJECTED
    once_died_at: Failpoint | None = None

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2] + (f" of a {self.kind}" if self.kind else "")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """Where a process dies: at the `nth` call.

    also: the pid files of processes that die with it. note: a file that gets a byte at the kill; "" for none.
    signal: the signal to send; SIGSTOP makes it hang.
    """

    point: Point
    when: When
    nth: int = 1
    also: tuple[Path, ...] = ()
    note: str = ""
    signal: int = signal.SIGKILL


_OUTBOX = "relay.messaging.outbox:Outbox."
_INBOX = "relay.messaging.inbox:Inbox."
_LEDGER = "relay.messaging.ledger:Ledger."
_CHANNELS = "relay.messaging.channels:ChannelRegistry."
_REGISTRY = "relay.messaging.ledger:NameRegistry."
_OWNERS = "relay.messaging.name_owners:NameOwners."
_MQTT = "relay.transport.mqtt:MqttTransport."
_BROKER = "relay.transport.broker:"

TYPING = Point("failpoints:type_into", before=End(State.UNCERTAIN, 0), after=End(State.UNCERTAIN, 1))
"""The first byte that the agent gets, and the last: nobody can know which one it was."""

STARTING = [
    Point(_OWNERS + "take"),
    Point(_REGISTRY + "register"),
    Point(_LEDGER + "prune"),
    Point(_OUTBOX + "expire"),
    Point(_INBOX + "expire"),
    Point(_BROKER + "admit"),
    Point(_BROKER + "_launch"),
    Point(_BROKER + "_reload"),
    Point(_MQTT + "connect"),
    Point(_MQTT + "subscribe"),
    Point(_MQTT + "publish", "presence"),
]
"""Steps of a process that joins the bus."""

SENDING = [
    Point(_OUTBOX + "send", before=None),
    Point(_OUTBOX + "resume"),
    Point(_OUTBOX + "appeared"),
    Point(_OUTBOX + "claim"),
    Point(_MQTT + "publish", "message"),
    Point(_OUTBOX + "sent"),
    Point(_OUTBOX + "receipt"),
    Point(_OUTBOX + "outcomes"),
]
"""Steps of a sender's process."""

RECEIVING = [
    Point(_INBOX + "store"),
    Point(_MQTT + "publish", "receipt"),
    Point(_INBOX + "receipted"),
    Point(_INBOX + "injecting", after=End(State.UNCERTAIN, 0)),
    TYPING,
    Point(_INBOX + "settle", before=End(State.UNCERTAIN, 1)),
    Point(
        _INBOX + "recover",
        before=End(State.UNCERTAIN, 1),
        after=End(State.UNCERTAIN, 1),
        once_died_at=Failpoint(TYPING, When.AFTER),
    ),
]
"""Steps of a receiver's process."""

ALONE = [
    Point(_LEDGER + "retry"),
    Point(_LEDGER + "drop"),
    Point(_OUTBOX + "release"),
    Point(_OUTBOX + "park"),
    Point(_OUTBOX + "reopen"),
    Point(_OUTBOX + "ask"),
    Point(_OUTBOX + "hindered"),
    Point(_CHANNELS + "join"),
    Point(_CHANNELS + "leave"),
    Point(_CHANNELS + "heard"),
    Point(_CHANNELS + "limit"),
    Point(_OWNERS + "end"),
]
"""Single transactions, run by a user's command or at random times: each happens completely or not at all."""

POINTS = [*STARTING, *SENDING, *RECEIVING, *ALONE]

READING = {
    *(_REGISTRY + name for name in ("known", "spelled", "teams")),
    *(_OWNERS + name for name in ("of", "runs", "ended", "others")),
    *(_OUTBOX + name for name in ("next_due", "senders_with_mail", "untold", "committed", "sent_for")),
    *(_INBOX + name for name in ("waiting", "stored", "receipts", "left_receipts", "begun")),
    *(_CHANNELS + name for name in ("of", "audience", "all")),
    *(_LEDGER + name for name in ("attendance", "messages", "lookup", "find", "held")),
}
"""Ledger methods that change nothing: dying there is dying before the next step."""


def type_into(log: Path, message: Message) -> None:
    """Give `message` to the fake agent, which keeps it whatever dies."""
    append(log, f"{message.id} {message.sender} {message.body}")


def append(file: Path, line: str) -> None:
    """Append a line to `file` atomically, whichever process is killed."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def arm(failpoint: Failpoint) -> None:
    """Make this process die at `failpoint`."""
    module, _, path = failpoint.point.target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    calls = 0
    doomed = threading.Event()  # set: die as soon as the running batch is committed
    commit_together = Database.commit_together

    def commit(*arguments: Any) -> Any:
        ends = commit_together(*arguments)
        if doomed.is_set():
            _die(failpoint)
        return ends

    Database.commit_together = commit  # type: ignore[method-assign]

    def die(when: When, arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        kind = failpoint.point.kind
        if when is not failpoint.when or (kind is not None and kind != _kind(arguments)):
            return
        calls += 1
        if calls != failpoint.nth:
            return
        database = getattr(arguments[0], "_db", arguments[0]) if arguments else None
        if when is When.AFTER and isinstance(database, Database) and database._batch is not None:
            doomed.set()
        else:
            _die(failpoint)

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def step(*arguments: Any, **named: Any) -> Any:
            die(When.BEFORE, arguments)
            result = await original(*arguments, **named)
            die(When.AFTER, arguments)
            return result

    else:

        @functools.wraps(original)
        def step(*arguments: Any, **named: Any) -> Any:
            die(When.BEFORE, arguments)
            result = original(*arguments, **named)
            die(When.AFTER, arguments)
            return result

    setattr(owner, name, step)


def _die(failpoint: Failpoint) -> None:
    for file in failpoint.also:
        _kill(file)
    if failpoint.note:
        with open(failpoint.note, "ab", buffering=0) as note:
            note.write(b"x")
    os.kill(os.getpid(), failpoint.signal)
    signal.pause()  # another thread than the first: the signal is on its way


def _kind(arguments: tuple[Any, ...]) -> str:
    """Return the kind of the payload among a publish's arguments."""
    payload = next(each for each in arguments if isinstance(each, bytes))
    return str(json.loads(payload).get("kind", "presence"))


def _kill(file: Path) -> None:
    """Kill the process that `file` names: {"pid": ...}, as in the broker's endpoint file, or a bare pid."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        named = json.loads(file.read_text())
        os.kill(named["pid"] if isinstance(named, dict) else named, signal.SIGKILL)


@dataclass(slots=True)
class Actor:
    """One agent on the bus in a separate process; the agent takes everything at once.

    url: the broker, unless it is the home's own.
    """

    home: Home
    name: str
    url: str | None = None
    _process: Any = field(default=None, init=False)
    _commands: Connection | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        """Return the log of what its agent was given, one line per message."""
        return self.home.state / f"{self.name}.log"

    @property
    def accepted(self) -> Path:
        """Return the file with the ids of the messages that the ledger has accepted."""
        return self.home.state / f"{self.name}.accepted"

    @property
    def pid_file(self) -> Path:
        return self.home.run / f"{self.name}.pid"

    def start(self, failpoint: Failpoint | None = None, *, listens: bool = True) -> None:
        """Start it. listens: whether it may be the one that listens to presences for its home."""
        theirs, self._commands = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=_main, args=(self, theirs, failpoint, listens), daemon=True)
        self._process.start()
        self.pid_file.write_text(str(self._process.pid))
        theirs.close()

    def __getstate__(self) -> tuple[Any, ...]:
        home = self.home
        return home.config_dir, home.state_dir, home.run_dir, self.name, self.url

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *directories, self.name, self.url = state
        self.home = Home(*directories)
        self._process = self._commands = None

    def send(self, to: str, bodies: Iterable[str]) -> None:
        """Make it send one message after another as soon as it runs; it may be dead by then."""
        self._command((to, list(bodies)))

    def drain(self) -> None:
        self._command(None)

    def _command(self, command: tuple[str, list[str]] | None) -> None:
        assert self._commands is not None
        with contextlib.suppress(BrokenPipeError):
            self._commands.send(command)

    def join(self, seconds: float) -> bool:
        """Return whether it dies within `seconds`. Raise AssertionError if it failed without being killed."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code in (None, -signal.SIGKILL), f"{self.name} failed with {code}"
        return code is not None

    def stop(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
        if self._commands is not None:
            self._commands.close()
            self._commands = None


def _main(actor: Actor, commands: Connection, failpoint: Failpoint | None, listens: bool) -> None:
    """Run the actor's process."""
    # Seconds, as the tests restart what dies at once.
    receipts = Inbox.receipts

    def ends(*arguments: Any) -> list[Receipt]:
        """Drop receipts for *stored*: the message is typed before anybody can be told."""
        return [receipt for receipt in receipts(*arguments) if receipt.state is not State.STORED]

    Inbox.receipts = ends  # type: ignore[method-assign]
    publisher.FIRST_RETRY = publisher._LOOK_AGAIN = outgoing.LOOK = 0.2
    name_claims.OBJECTION_SECONDS = 0.5
    if not listens:
        PresenceListener._take = lambda _: False  # type: ignore[method-assign]
    if failpoint is not None:
        arm(failpoint)
    asyncio.run(_act(actor, commands))


async def _act(actor: Actor, commands: Connection) -> None:
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    orders: asyncio.Queue[tuple[str, list[str]] | None] = asyncio.Queue()

    def publish(event: Event) -> None:
        if isinstance(event, MessageStored):
            arrived.put_nowait(event.message)

    def listen() -> None:
        try:
            orders.put_nowait(commands.recv())
        except EOFError:
            running.cancel()  # the test has ended

    async def type_all() -> None:
        while True:
            message = await arrived.get()
            try:
                await client.injecting(message.id)
            except MessageRefused:
                continue
            globals()["type_into"](actor.log, message)
            await client.settle(message.id, State.INJECTED)

    async def obey() -> None:
        while True:
            command = await orders.get()
            if command is None:
                await client.drain()
                continue
            to, bodies = command
            for body in bodies:
                for sent in await client.send(OutgoingMessage(to, body)):
                    append(actor.accepted, sent.id)

    client = await MessagingClient.open(
        actor.home, TEAM, actor.name, broker_url=actor.url, publish=publish, owner=Owner.of_folder(OFFICE)
    )
    for message in await client.waiting():
        arrived.put_nowait(message)
    running = asyncio.ensure_future(asyncio.gather(client.run(), type_all(), obey()))
    asyncio.get_running_loop().add_reader(commands.fileno(), listen)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def dies_in(failpoint: Failpoint, action: Callable[[], object]) -> None:
    """Run `action` (picklable) in a process that dies at `failpoint`."""
    process = PROCESSES.Process(target=_die_in, args=(failpoint, action), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()


def _die_in(failpoint: Failpoint, action: Callable[[], object]) -> None:
    arm(failpoint)
    action()


def far_url(home: Home, name: str) -> str:
    """Start the broker of `home` and return the URL under which `name`, with another home, reaches it."""
    endpoint, rights = broker.admit(home, TEAM, name)
    user = rights.user.replace("/", "%2F")
    return f"mqtt://{user}:{rights.password}@{endpoint.host}:{endpoint.port}"
