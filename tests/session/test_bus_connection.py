"""A session's connection to the bus: each failure is reported once, and the session reconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from relay.clock import Clock
from relay.control.sessions import CONNECTING
from relay.errors import BrokerError, HomeError, LedgerError, NameInUse, RelayError
from relay.eventbus import EventBus, handles
from relay.features import bus_connection
from relay.features.bus_connection import LEDGER_RETRY, NAME_RETRY, RETRY, BusConnection
from relay.lifecycle import Describe
from relay.messaging.client import MessagingClient
from relay.messaging.events import ClientOpened, StatusReported, current_client
from relay.storage.journal import Journal
from relay.terminal.events import Notify
from session.fake_agent import FakeAgent, ps, settings
from support import Relay, wait_until


class FakeClient:
    """A client that ends with `end`; without one it stays connected until cancelled."""

    def __init__(self, bus: EventBus, end: Exception | None) -> None:
        self.bus = bus
        self.end = end
        self.connected = self.ended = self.closed = False

    async def run(self) -> None:
        if self.end is not None:
            raise self.end
        self.connected = True
        self.report("connected to mqtt://here")
        await asyncio.Event().wait()

    async def join(self, channel: str) -> None:
        if isinstance(self.end, LedgerError):
            raise self.end

    async def close(self) -> None:
        self.closed = True

    def report(self, text: str) -> None:
        self.bus.publish(StatusReported(text))


@dataclass
class Scene(Clock):
    """A connection whose clients end in turn with `ends`, and its visible effects."""

    folder: Path
    ends: list[Exception | None]
    unopened: list[RelayError] = field(default_factory=list)  # what the first attempts to open one raise
    reported: list[str] = field(default_factory=list)  # what the user sees and the journal keeps
    shown: list[str] = field(default_factory=list)  # the statuses that the user sees
    pauses: list[float] = field(default_factory=list)
    channels: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)  # when each client ends
    opened: list[FakeClient] = field(default_factory=list)

    async def _open(self, in_hand: frozenset[str]) -> MessagingClient:
        if self.unopened:
            raise self.unopened.pop(0)
        self.opened.append(FakeClient(self.bus, self.ends.pop(0)))
        return cast(MessagingClient, self.opened[-1])

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.problems.append(await self.problem())
        await asyncio.sleep(0)

    async def problem(self) -> str:
        """Return why there is no client; "" if there is one."""
        try:
            await current_client(self.bus)
        except RelayError as error:
            return str(error)
        return ""

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        (self.reported if event.keep else self.shown).append(event.text)

    @handles(ClientOpened)
    def changed(self, _: ClientOpened) -> None:
        self.problems.append("")

    async def status(self) -> str:
        (facts,) = await self.bus.ask(Describe(brief=False))
        return str(facts["bus"])

    def play(self, then: Callable[[], Awaitable[None]] | None = None) -> Scene:
        """Run the connection until a client is connected, then `then`."""

        async def main() -> None:
            self.bus = EventBus()
            journal = Journal(self.folder / "events", "id", "Alice")
            connection = BusConnection(
                self.bus, journal, self._open, name="Alice", channels=self.channels, clock=self
            )
            self.bus.add(connection)
            self.bus.add(self)
            running = asyncio.ensure_future(connection.run())
            async with asyncio.timeout(20):
                while not (self.opened and self.opened[-1].connected):
                    assert not running.done(), running.result()
                    await asyncio.sleep(0)
            if then is not None:
                await then()
            running.cancel()
            await asyncio.wait([running])

        asyncio.run(main())
        return self


def test_a_request_for_the_client_waits_for_the_first_attempt(tmp_path: Path) -> None:
    """A caller that does not wait gets an error."""
    away = BrokerError("no broker.")

    async def main() -> None:
        bus, may_open = EventBus(), asyncio.Event()

        async def open(in_hand: frozenset[str]) -> MessagingClient:
            await may_open.wait()
            raise away

        journal = Journal(tmp_path / "events", "id", "Alice")
        with pytest.raises(RelayError, match="runs without messages"):
            await current_client(bus)
        connection = BusConnection(bus, journal, open, name="Alice")
        bus.add(connection)
        running = asyncio.ensure_future(connection.run())
        asking = asyncio.ensure_future(current_client(bus))
        with pytest.raises(RelayError, match="not on the bus"):
            await current_client(bus, wait=False)
        assert not asking.done()
        may_open.set()
        with pytest.raises(BrokerError, match="no broker"):
            await asking
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("end", "pause"),
    [
        (LedgerError("the ledger is locked."), LEDGER_RETRY),
        (NameInUse("Alice is on another host."), NAME_RETRY),
        (BrokerError("the broker does not start."), RETRY.first),
        (HomeError("the directory is another user's."), RETRY.first),
    ],
)
def test_a_failed_connection_is_reported_once_and_retried(
    tmp_path: Path, end: RelayError, pause: float
) -> None:
    scene = Scene(tmp_path, [end, end, end, None]).play()
    assert len(scene.reported) == 1 and scene.reported[0].startswith(f"{end} ")
    assert scene.problems == ["", str(end), "", str(end), "", str(end), ""]
    assert scene.pauses[0] == pause
    assert scene.shown == ["connected to mqtt://here; messages are delivered again."]


def test_an_internal_error_is_logged_reported_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = ExceptionGroup("in a task", [ExceptionGroup("in another", [KeyError("boot")])])
    with caplog.at_level(logging.ERROR):
        scene = Scene(tmp_path, [fault] * 7 + [OSError(24, "too many open files"), None]).play()
    assert len(scene.reported) == 2
    assert "the bus failed (KeyError: 'boot')." in scene.reported[0] and "keeps trying" in scene.reported[0]
    assert "too many open files" in scene.reported[1]
    assert all(record.exc_info for record in caplog.records) and len(caplog.records) == 8
    assert scene.pauses == [3, 6, 12, 24, 48, RETRY.last, RETRY.last, RETRY.last]


def test_opening_a_client_is_retried(tmp_path: Path) -> None:
    """Each reason is reported once, with its effect on the agent."""
    away = BrokerError("no broker.")
    scene = Scene(tmp_path, [None], unopened=[away, away, LedgerError("locked."), away]).play()
    assert scene.reported == [
        "no broker. The agent keeps running without messages.",
        "locked. Messages wait until then.",
    ]
    assert scene.pauses == [3, 6, LEDGER_RETRY, 12]


def test_a_client_that_cannot_join_its_channels_is_closed(tmp_path: Path) -> None:
    """Otherwise it would still hold the name that the next client needs."""
    scene = Scene(tmp_path, [LedgerError("the disk is full."), None], channels=("ops",)).play()
    assert [client.closed for client in scene.opened] == [True, False]
    assert scene.reported == ["the disk is full. The agent keeps running without messages."]


def test_a_client_that_has_ended_is_no_longer_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [None])

    async def then() -> None:
        assert await scene.problem() == ""
        scene.opened[0].ended = True  # closing takes a moment
        assert await scene.problem() == "this session is not on the bus."

    scene.play(then)


def test_ledger_problems_are_shown_while_connected(tmp_path: Path) -> None:
    async def then() -> None:
        for text in ("the disk is full.", "the disk is full.", "one agent sends too much."):
            scene.opened[0].report(text)
        assert scene.shown == ["the disk is full.", "one agent sends too much."]
        scene.opened[0].report("connected to mqtt://here")
        assert scene.shown[2:] == ["connected to mqtt://here; messages are delivered again."]
        assert scene.reported == []  # the journal has every status

    scene = Scene(tmp_path, [None])
    scene.play(then)


def test_each_lasting_reason_for_being_off_the_bus_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_connection, "NOTICE_AFTER", 0)

    async def then() -> None:
        (client,) = scene.opened
        assert await scene.status() == "connected to mqtt://here"

        async def off(*reasons: str) -> None:
            client.connected = False
            assert await scene.status() in {CONNECTING, *scene.shown}
            for reason in reasons:
                client.report(reason)
            shown = asyncio.Event()
            scene.bus.loop.call_later(0, shown.set)  # after the timers that report lasting conditions
            await shown.wait()
            assert await scene.status() == reasons[-1]

        await off("the connection was lost.", "connection refused.")  # the first did not last
        await off("the login is refused.")
        await off("connection refused.")
        assert scene.shown == ["connection refused.", "the login is refused."]
        client.connected = True
        client.report("connected to mqtt://here")
        assert scene.shown.pop() == "connected to mqtt://here; messages are delivered again."
        await off("connection refused.")
        assert scene.shown[2:] == ["connection refused."]

    scene = Scene(tmp_path, [None])
    scene.play(then)


def test_too_many_configured_channels_keep_no_session_off_the_bus(relay: Relay) -> None:
    settings(relay, "channels = [" + ", ".join(f'"c{n}"' for n in range(130)) + "]\n")
    alice = FakeAgent(relay, "Alice").wrap()
    assert "is in 128 channels" in alice.notice("Alice could not join #c128")
    wait_until(lambda: any("connected to" in e["status"] for e in alice.events("bus")))
    assert [row["name"] for row in ps(relay)] == ["Alice"]
