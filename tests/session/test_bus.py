"""A session's place on the bus: whatever ends it is told once, and it is had again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from relay.control.sessions import CONNECTING
from relay.errors import BrokerError, HomeError, LedgerError, NameInUse, RelayError
from relay.messaging.client import Courier
from relay.session.absent import NoBus
from relay.session.bus import FIRST_RETRY, LAST_RETRY, LEDGER_RETRY, NAME_RETRY, Bus
from relay.storage.journal import Journal
from session.puppet import Puppet, ps, settings
from support import Relay, wait_until


class Line:
    """A courier that ends as it is told to; without an end it stays connected until cancelled."""

    def __init__(self, on_status: Callable[[str], None], end: Exception | None) -> None:
        self.on_status = on_status
        self.end = end
        self.connected = False

    async def run(self) -> None:
        if self.end is not None:
            raise self.end
        self.connected = True
        self.on_status("connected to mqtt://here")
        await asyncio.Event().wait()


@dataclass
class Scene:
    """A bus whose couriers end in turn as `ends` say, and what is seen of it."""

    folder: Path
    ends: list[Exception | None]
    unopened: list[RelayError] = field(default_factory=list)  # what the first tries to make one raise
    told: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    opened: list[Line] = field(default_factory=list)

    def _open(self, on_status: Callable[[str], None]) -> Courier:
        if self.unopened:
            raise self.unopened.pop(0)
        self.opened.append(Line(on_status, self.ends.pop(0)))
        return cast(Courier, self.opened[-1])

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def _changed(self, courier: Courier | NoBus) -> None:
        self.problems.append(str(courier.why) if isinstance(courier, NoBus) else "")

    def play(self, then: Callable[[Bus], Awaitable[None]] | None = None) -> Scene:
        """Run the bus until a courier is connected, then `then`."""

        async def main() -> None:
            bus = Bus(
                self._open,
                on_change=self._changed,
                tell_person=self.told.append,
                show=self.shown.append,
                journal=Journal(self.folder / "events", "id", "Alice"),
                sleep=self._sleep,
            )
            running = asyncio.ensure_future(bus.run())
            async with asyncio.timeout(20):
                while not bus.courier.connected:
                    assert not running.done(), running.result()
                    await asyncio.sleep(0)
            if then is not None:
                await then(bus)
            running.cancel()
            await asyncio.wait([running])

        asyncio.run(main())
        return self


@pytest.mark.parametrize(
    ("end", "pause"),
    [
        (LedgerError("the ledger is locked."), LEDGER_RETRY),
        (NameInUse("Alice is on another host."), NAME_RETRY),
        (BrokerError("the broker does not start."), FIRST_RETRY),
        (HomeError("the directory is another user's."), FIRST_RETRY),
    ],
)
def test_whatever_ends_the_bus_is_told_once_and_the_bus_is_had_again(
    tmp_path: Path, end: RelayError, pause: float
) -> None:
    scene = Scene(tmp_path, [end, end, end, None]).play()
    assert len(scene.told) == 1 and scene.told[0].startswith(f"{end} ")
    assert scene.problems == [str(end), "", str(end), "", str(end), ""]
    assert scene.pauses[0] == pause
    assert scene.shown == ["connected to mqtt://here; messages travel again."]


def test_a_fault_of_our_own_is_logged_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = ExceptionGroup("in a task", [ExceptionGroup("in another", [KeyError("boot")])])
    with caplog.at_level(logging.ERROR):
        scene = Scene(tmp_path, [fault] * 7 + [OSError(24, "too many open files"), None]).play()
    assert len(scene.told) == 2
    assert "the bus failed (KeyError: 'boot')." in scene.told[0] and "tried again" in scene.told[0]
    assert "too many open files" in scene.told[1]
    assert all(record.exc_info for record in caplog.records) and len(caplog.records) == 8
    assert scene.pauses == [3, 6, 12, 24, 48, LAST_RETRY, LAST_RETRY, LAST_RETRY]


def test_a_courier_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """What was so at the session's start is told by whoever made the bus; further reasons once each."""
    away = BrokerError("no broker.")
    scene = Scene(tmp_path, [None], unopened=[away, away, LedgerError("locked."), away]).play()
    assert scene.told == ["locked. Messages wait until then."]
    assert scene.pauses == [3, 6, LEDGER_RETRY, 12]


def test_trouble_with_the_ledger_is_told_while_connected(tmp_path: Path) -> None:
    async def then(bus: Bus) -> None:
        for text in ("the disk is full.", "the disk is full.", "somebody sends too much."):
            scene.opened[0].on_status(text)
        assert scene.shown == ["the disk is full.", "somebody sends too much."]
        scene.opened[0].on_status("connected to mqtt://here")
        assert scene.shown[2:] == ["connected to mqtt://here; messages travel again."]
        assert scene.told == []  # the journal has every status

    scene = Scene(tmp_path, [None])
    scene.play(then)


def test_while_off_the_bus_each_reason_that_lasts_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.session.bus.PATIENCE", 0)

    async def then(bus: Bus) -> None:
        (line,) = scene.opened
        assert bus.status == "connected to mqtt://here"

        async def off(*reasons: str) -> None:
            line.connected = False
            assert bus.status in {CONNECTING, *scene.shown}
            for reason in reasons:
                line.on_status(reason)
            await asyncio.sleep(0.01)
            assert bus.status == reasons[-1]

        await off("the connection was lost.", "connection refused.")  # the first did not last
        await off("the login is refused.")
        await off("connection refused.")
        assert scene.shown == ["connection refused.", "the login is refused."]
        line.connected = True
        line.on_status("connected to mqtt://here")
        assert scene.shown.pop() == "connected to mqtt://here; messages travel again."
        await off("connection refused.")
        assert scene.shown[2:] == ["connection refused."]

    scene = Scene(tmp_path, [None])
    scene.play(then)


def test_a_setting_with_too_many_channels_keeps_no_session_off_the_bus(relay: Relay) -> None:
    settings(relay, "channels = [" + ", ".join(f'"c{n}"' for n in range(130)) + "]\n")
    alice = Puppet(relay, "Alice").wrap()
    assert "is in 128 channels" in alice.told("Alice is not in #c128")
    wait_until(lambda: any("connected to" in e["status"] for e in alice.events("bus")))
    assert [row["name"] for row in ps(relay)] == ["Alice"]
