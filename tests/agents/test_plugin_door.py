"""PluginDoor, the session's side of a plug-in's door, with plug-ins that work, die or lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from relay.agents.door import Offer, OfferState, Site, path_of
from relay.agents.kinds._plugin_door import PluginDoor

OFFER = Offer("an id", "[relay m from Bob] hello [/relay m]", "[/relay m]", "Bob")


def play(
    folder: Path,
    answers: list[str],
    use: Callable[[PluginDoor], Awaitable[object]],
    read: asyncio.Event | None = None,
) -> list[str]:
    """Return the requests to a plug-in that writes the next of `answers`, a few lines, after each.

    read: set once it has read a request.
    """
    requests, connections = list[str](), list[asyncio.Task[None] | None]()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with suppress(OSError):  # the session has closed it
            while line := await reader.readline():
                requests.append(line.decode())
                if read is not None:
                    read.set()
                if len(requests) > len(answers):
                    break  # it dies
                writer.write(answers[len(requests) - 1].encode())
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def main() -> None:
        site = Site({}, str(folder), str(folder / "s.sock"), lambda pid: True)
        door = PluginDoor(site)
        assert door.closed()
        async with await asyncio.start_unix_server(listen, path_of(site.socket)):
            assert not door.closed()
            await use(door)
            door._close()
            await asyncio.gather(*filter(None, connections))

    asyncio.run(main())
    return requests


def said(*states: str, id: str = OFFER.id) -> str:
    return "".join(json.dumps({"id": id, "state": state}) + "\n" for state in states)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (said("accepted", "delivered"), OfferState.DELIVERED),
        (said("accepted", "busy"), OfferState.BUSY),
        (said("accepted", "refused"), OfferState.REFUSED),
        (said("busy"), OfferState.BUSY),
        (said("delivered", id="another") + said("busy"), OfferState.BUSY),
        (said("surprised"), OfferState.UNKNOWN),
        ("nothing\n", OfferState.UNKNOWN),
        ("3\n", OfferState.UNKNOWN),
    ],
)
def test_an_offer_has_the_state_that_the_plugin_reports_last(
    tmp_path: Path, answer: str, state: OfferState
) -> None:
    async def use(door: PluginDoor) -> None:
        assert await door.offer(OFFER) is state

    (request,) = play(tmp_path, [answer], use)
    assert json.loads(request) == {"offer": OFFER.id, "text": OFFER.text}


def test_a_plugin_that_dies_leaves_the_state_unknown(tmp_path: Path) -> None:
    async def use(door: PluginDoor) -> None:
        assert await door.offer(OFFER) is OfferState.UNKNOWN
        assert await door.settle(OFFER) is OfferState.UNKNOWN

    play(tmp_path, [], use)


def test_nothing_is_taken_where_nothing_listens(tmp_path: Path) -> None:
    async def main() -> None:
        door = PluginDoor(Site({}, str(tmp_path), str(tmp_path / "s.sock"), lambda pid: True))
        assert await door.offer(OFFER) is OfferState.REFUSED
        assert await door.settle(OFFER) is OfferState.UNKNOWN, "it may have listened before"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("withdrawn", OfferState.REFUSED),
        ("delivered", OfferState.DELIVERED),
        ("accepted", OfferState.ACCEPTED),
    ],
)
def test_a_text_of_an_earlier_session_is_withdrawn(tmp_path: Path, answer: str, state: OfferState) -> None:
    async def use(door: PluginDoor) -> None:
        assert await door.settle(OFFER) is state

    (request,) = play(tmp_path, [said(answer)], use)
    assert json.loads(request) == {"withdraw": OFFER.id}


def test_a_delivery_is_reported_later_too(tmp_path: Path) -> None:
    """After a session has stopped waiting for it, and after another has asked."""

    read = asyncio.Event()

    async def use(door: PluginDoor) -> None:
        offering = asyncio.ensure_future(door.offer(OFFER))
        await read.wait()
        offering.cancel()
        assert await door.settle(OFFER) is OfferState.ACCEPTED
        await door.delivered(OFFER)

    play(tmp_path, [said("accepted"), said("accepted", "delivered")], use, read)


def test_a_delivery_that_is_not_reported_never_comes(tmp_path: Path) -> None:
    async def use(door: PluginDoor) -> None:
        await door.offer(OFFER)
        waiting = asyncio.ensure_future(door.delivered(OFFER))
        await door.settle(OFFER)  # it answers, and so has read whatever there is
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    play(tmp_path, [said("busy"), said("withdrawn")], use)
