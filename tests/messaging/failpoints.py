"""Kill a process at a named step of the protocol, without any support for that in relay itself.

A step is a method; in the process that is to die, `arm` replaces it with one that sends SIGKILL before or
after its Nth call.  A step of the ledger ends when it is committed.  `POINTS` lists the steps in the order in
which a message passes through them, and the required outcome, once everything has been restarted, of the
message that was being handled when the process died.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import json
import multiprocessing
import multiprocessing.forkserver
import operator
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from relay.backoff import Backoff
from relay.errors import MessageRefused
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging import client, publisher
from relay.messaging.client import MessagingClient
from relay.messaging.doorbell import ring
from relay.messaging.envelope import Receipt
from relay.messaging.events import MessageStored
from relay.messaging.inbox import Inbox
from relay.messaging.ledger import Ledger
from relay.messaging.name_owners import Owner
from relay.messaging.presence_listener import PresenceListener
from relay.messaging.runaway import Limits
from relay.storage.sqlite import Database
from relay.transport import broker, name_claims

TEAM = "default"

FOLDER = Path("/project")
"""The actors' folder, on every host: mail for one of them waits for the next of that name."""

PROCESSES = multiprocessing.get_context("forkserver")
"""Starts actors within milliseconds: the fork server has already imported everything."""


@functools.cache
def _start_server() -> None:
    """Start the fork server; it finds this module only by PYTHONPATH (CPython issue 117378)."""
    import pytest  # not at the top: each session that is to die imports this module

    PROCESSES.set_forkserver_preload(["failpoints"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.forkserver.ensure_running()


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A possible outcome of a message: its state, and how often it was typed into the receiver's agent."""

    state: State
    typed: int


INJECTED = Outcome(State.INJECTED, 1)
UNCERTAIN_OUTCOMES = {Outcome(State.UNCERTAIN, 0), Outcome(State.UNCERTAIN, 1)}


@dataclass(frozen=True, slots=True)
class Point:
    """A step of the protocol.

    target: "module:Class.method" or "module:function".
    kind: of the payload published, if the method publishes several kinds.
    before, after: the outcome of the first message if only that process died; None: it was never accepted.
    first_dies_at: where the process must die first, if only its next start reaches this step.
    """

    target: str
    kind: str | None = None
    before: Outcome | None = INJECTED
    after: Outcome | None = INJECTED
    first_dies_at: Failpoint | None = None

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2] + (f" of a {self.kind}" if self.kind else "")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """Where a process dies: at the `nth` call of a step.

    also: pid files of processes that die with it. note: a file that gets one byte at the kill; "" for none.
    signal: the signal to send; SIGSTOP makes it hang.
    """

    point: Point
    when: When
    nth: int = 1
    also: tuple[Path, ...] = ()
    note: str = ""
    signal: int = signal.SIGKILL


_OUTBOX = "relay.messaging.outbox:Outbox."
_TRANSIT = "relay.messaging.transit:Transit."
_INBOX = "relay.messaging.inbox:Inbox."
_LEDGER = "relay.messaging.ledger:Ledger."
_CHANNELS = "relay.messaging.channels:ChannelRegistry."
_REGISTRY = "relay.messaging.ledger:NameRegistry."
_OWNERS = "relay.messaging.name_owners:NameOwners."
_USER = "relay.messaging.user_inbox:UserInbox."
_MQTT = "relay.transport.mqtt:MqttTransport."
_BROKER = "relay.transport.broker:"

TYPING = Point("failpoints:type_into", before=Outcome(State.UNCERTAIN, 0), after=Outcome(State.UNCERTAIN, 1))
"""A kill before the first byte or after the last one: from outside, they look the same."""

STARTING = [
    Point(_OWNERS + "take"),
    Point(_LEDGER + "arrive"),
    Point(_REGISTRY + "register"),
    Point(_LEDGER + "prune"),
    Point(_OUTBOX + "expire"),
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
    Point(_TRANSIT + "resume"),
    Point(_TRANSIT + "appeared"),
    Point(_TRANSIT + "copies"),
    Point(_TRANSIT + "claim"),
    Point(_MQTT + "publish", "message"),
    Point(_MQTT + "send"),
    Point(_TRANSIT + "sent"),
    Point(_TRANSIT + "receipt"),
    Point(_OUTBOX + "outcomes"),
    Point(_OUTBOX + "heard"),
]
"""Steps of a sender's process."""

RECEIVING = [
    Point(_INBOX + "store"),
    Point(_MQTT + "publish", "receipt"),
    Point(_INBOX + "receipted"),
    Point(_INBOX + "injecting", after=Outcome(State.UNCERTAIN, 0)),
    TYPING,
    Point(_INBOX + "settle", before=Outcome(State.UNCERTAIN, 1)),
    Point(
        _INBOX + "recover",
        before=Outcome(State.UNCERTAIN, 1),
        after=Outcome(State.UNCERTAIN, 1),
        first_dies_at=Failpoint(TYPING, When.AFTER),
    ),
]
"""Steps of a receiver's process."""

TRANSACTIONS = [
    Point(_LEDGER + "retry"),
    Point(_LEDGER + "drop"),
    Point(_OUTBOX + "release"),
    Point(_LEDGER + "move_away"),
    Point(_TRANSIT + "begin"),
    Point(_TRANSIT + "end"),
    Point(_TRANSIT + "park"),
    Point(_TRANSIT + "ask"),
    Point(_TRANSIT + "hindered"),
    Point(_CHANNELS + "join"),
    Point(_CHANNELS + "leave"),
    Point(_CHANNELS + "heard"),
    Point(_CHANNELS + "limit"),
    Point(_OWNERS + "end"),
    Point(_OWNERS + "end_gone"),
    *(
        Point(_USER + name)
        for name in ("add", "begin", "end", "settle", "read", "done", "next_push", "pushed")
    ),
]
"""Single transactions, run by a user's command or at any time: each happens completely or not at all."""

POINTS = [*STARTING, *SENDING, *RECEIVING, *TRANSACTIONS]

READERS = {
    *(_REGISTRY + name for name in ("known", "teams", "is_here")),
    *(_OWNERS + name for name in ("of", "ended", "others")),
    *(_OUTBOX + name for name in ("untold", "committed", "sent_for")),
    *(_TRANSIT + name for name in ("next_due", "senders_with_mail")),
    *(_INBOX + name for name in ("arrived", "waiting", "stored", "receipts", "left_receipts", "begun")),
    *(_CHANNELS + name for name in ("of", "audience", "all")),
    *(_USER + name for name in ("items", "unread", "find")),
    *(_LEDGER + name for name in ("messages", "lookup", "find", "held")),
}
"""Ledger methods that change nothing: dying in one amounts to dying before the next step."""


def type_into(log: Path, message: Message) -> None:
    """Give `message` to the fake agent, whose log survives any kill."""
    append(log, f"{message.id} {message.sender} {message.body}")


def append(file: Path, line: str) -> None:
    """Append a line to `file` atomically, even if this process is killed."""
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
        results = commit_together(*arguments)
        if doomed.is_set():
            _die(failpoint)
        return results

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
    signal.pause()  # outside the main thread, the signal may take a moment


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
    """An agent on the bus, in a separate process, that accepts every message immediately.

    url: of the broker, unless it is the home's own.
    """

    home: Home
    name: str
    url: str | None = None
    _process: Any = field(default=None, init=False)
    _commands: Connection | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        """Return the log of the messages typed into its agent, one line each."""
        return self.home.state / f"{self.name}.log"

    def typed(self) -> list[str]:
        """Return the texts of these messages, in order."""
        return (
            [line.split(" ", 2)[2] for line in self.log.read_text().splitlines()] if self.log.exists() else []
        )

    @property
    def accepted(self) -> Path:
        """Return the file with the ids of the messages that the ledger has accepted."""
        return self.home.state / f"{self.name}.accepted"

    @property
    def pid_file(self) -> Path:
        return self.home.run / f"{self.name}.pid"

    def start(self, failpoint: Failpoint | None = None, *, listens: bool = True) -> None:
        """Start it. listens: whether it may be its home's listener for presence."""
        _start_server()
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
        """Make it send the messages one by one once it is running; it may be dead by then."""
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
        """Kill it if it is running."""
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
    # In seconds; the tests restart dead processes immediately.
    receipts = Inbox.receipts

    def final_receipts(*arguments: Any) -> list[Receipt]:
        """Leave out receipts for *stored*: here every message is typed right after it is stored."""
        return [receipt for receipt in receipts(*arguments) if receipt.state is not State.STORED]

    Inbox.receipts = final_receipts  # type: ignore[method-assign]
    client.SWEEP_EVERY = 0.2
    publisher.RETRY = Backoff(0.2, 60.0)
    name_claims.OBJECTION_SECONDS = 0.5
    if not listens:
        PresenceListener._take = lambda _: False  # type: ignore[method-assign]
    if failpoint is not None:
        arm(failpoint)
    asyncio.run(_act(actor, commands))


async def _act(actor: Actor, commands: Connection) -> None:
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    queue: asyncio.Queue[tuple[str, list[str]] | None] = asyncio.Queue()

    def publish(event: Event) -> None:
        if isinstance(event, MessageStored):
            arrived.put_nowait(event.message)

    def read_command() -> None:
        try:
            queue.put_nowait(commands.recv())
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

    async def run_commands() -> None:
        while True:
            command = await queue.get()
            if command is None:
                ring(actor.home, TEAM, actor.name)
                continue
            to, bodies = command
            for body in bodies:
                for sent in await client.send(OutgoingMessage(to, body)):
                    append(actor.accepted, sent.id)

    client = await MessagingClient.open(
        actor.home,
        TEAM,
        actor.name,
        broker_url=actor.url,
        publish=publish,
        owner=Owner.of_folder(FOLDER),
        limits=Limits(rate=0),
    )
    for message in await client.waiting():
        arrived.put_nowait(message)
    running = asyncio.ensure_future(asyncio.gather(client.run(), type_all(), run_commands()))
    asyncio.get_running_loop().add_reader(commands.fileno(), read_command)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def run_and_die(failpoint: Failpoint, action: Callable[[], object]) -> None:
    """Run `action` in a process that dies at `failpoint`.

    action: pickled. That of another module than this one would import it, with pytest, in each process.
    """
    _start_server()
    process = PROCESSES.Process(target=_run_armed, args=(failpoint, action), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()


def change(method: str, *arguments: object, path: Path, **options: object) -> None:
    """Call a method of the ledger in `path`."""
    with Ledger(path) as ledger:
        operator.attrgetter(method)(ledger)(*arguments, **options)


def nobody_present(name: str, owner: str | None) -> bool:
    return False


def everybody_away(name: str) -> bool:
    return True


def _run_armed(failpoint: Failpoint, action: Callable[[], object]) -> None:
    arm(failpoint)
    action()


def far_url(home: Home, name: str) -> str:
    """Start the broker of `home` and return its URL for `name`, an agent of another home."""
    endpoint, rights = broker.admit(home, TEAM, name)
    user = rights.user.replace("/", "%2F")
    return f"mqtt://{user}:{rights.password}@{endpoint.host}:{endpoint.port}"
