"""A session's event bus keeps events in order, contains failures, and collects answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import ClassVar

import pytest

from relay.errors import RelayError
from relay.eventbus import Event, EventBus, HandlerFailed, Question, answers, handles


class Happened(Event):
    number: int


class Followed(Event):
    number: int


class Ask(Question[str]):
    raises: bool = False


class Feature:
    """Records what it handles; the first one also publishes and answers."""

    def __init__(self, bus: EventBus, name: str, seen: list[str]) -> None:
        self.bus = bus
        self.name = name
        self.seen = seen

    @handles(Happened, Followed)
    def note(self, event: Happened | Followed) -> None:
        self.seen.append(f"{self.name} {type(event).__name__} {event.number}")


class Publishing(Feature):
    @handles(Happened)
    def follow(self, event: Happened) -> None:
        self.bus.publish(Followed(event.number))


class Raising(Feature):
    @handles(Happened)
    def fail(self, event: Happened) -> None:
        raise ValueError("no\nroom")

    @handles(HandlerFailed)
    def failed(self, event: HandlerFailed) -> None:
        self.seen.append(event.error)
        raise ValueError("again")


class Answering(Feature):
    @answers(Ask)
    async def answer(self, question: Ask, earlier: Sequence[str]) -> str | None:
        self.seen.append(f"{self.name} {list(earlier)}")
        await asyncio.sleep(0)
        if question.raises:
            raise RelayError("no answer.")
        return None if self.name == "b" else self.name


def on_bus(*kinds: type[Feature]) -> tuple[EventBus, list[str]]:
    """Return a bus on the running loop with features a, b, ... of these kinds, and their records."""
    bus, seen = EventBus(), list[str]()
    for name, kind in zip("abc", kinds, strict=False):
        bus.add(kind(bus, name, seen))
    return bus, seen


def test_all_features_get_all_events_in_the_same_order() -> None:
    """Even if one publishes another event while handling the first."""

    async def main() -> None:
        bus, seen = on_bus(Publishing, Feature)
        bus.publish(Happened(1))
        bus.publish(Happened(2))
        assert seen == [
            *("a Happened 1", "b Happened 1", "a Followed 1", "b Followed 1"),
            *("a Happened 2", "b Happened 2", "a Followed 2", "b Followed 2"),
        ]

    asyncio.run(main())


def test_a_handler_that_raises_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged with its traceback and published on one line; a failure to handle that is final."""

    async def main() -> None:
        bus, seen = on_bus(Raising, Feature)
        bus.publish(Happened(1))
        assert "b Happened 1" in seen
        (error,) = [each for each in seen if "ValueError" in each]
        assert "Happened" in error and "\n" not in error
        bus.publish(Followed(2))
        assert seen[-1] == "b Followed 2"

    asyncio.run(main())
    assert len(caplog.records) == 2 and all(record.exc_info for record in caplog.records)


def test_features_answer_in_turn_and_see_earlier_answers() -> None:
    async def main() -> None:
        bus, seen = on_bus(Answering, Answering, Answering)
        assert await bus.ask(Ask()) == ["a", "c"]
        assert seen == ["a []", "b ['a']", "c ['a']"]
        with pytest.raises(RelayError, match="no answer"):
            await bus.ask(Ask(raises=True))
        assert len(seen) == 4
        assert await EventBus().ask(Ask()) == []

    asyncio.run(main())


class Failing(Feature):
    @answers(Ask)
    async def answer(self, question: Ask, earlier: Sequence[str]) -> str:
        raise ValueError("no room")

    @handles(HandlerFailed)
    def failed(self, event: HandlerFailed) -> None:
        self.seen.append(event.error)


def test_ask_all_asks_every_feature_even_if_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    """At a session's end, for example, each feature has to clean up."""

    async def main() -> None:
        bus, seen = on_bus(Answering, Failing, Answering)
        assert await bus.ask_all(Ask()) == ["a", "c"]
        assert seen == ["a []", "Ask was not answered (ValueError: no room)", "c ['a']"]

    asyncio.run(main())
    assert len(caplog.records) == 1 and caplog.records[0].exc_info


def test_an_event_may_be_posted_from_any_thread() -> None:
    async def main() -> None:
        bus, handled = EventBus(), asyncio.Event()
        threads = []

        class Waiting:
            @handles(Happened)
            def on(self, event: Happened) -> None:
                threads.append(threading.current_thread())
                handled.set()

        bus.add(Waiting())
        await asyncio.to_thread(bus.post, Happened(1))
        await asyncio.wait_for(handled.wait(), 20)
        assert threads == [threading.main_thread()]

    asyncio.run(main())


class Lasts(Event):
    lasting: ClassVar[bool] = True

    number: int


class Lasting(Feature):
    @handles(Lasts)
    def last(self, event: Lasts) -> None:
        self.seen.append(f"{self.name} {event.number}")


def test_only_restored_parts_get_what_happens_while_a_session_is_restored() -> None:
    """The others get the current state afterwards, and then everything."""

    async def scene() -> list[str]:
        bus, seen = EventBus(restoring=True), list[str]()
        bus.add(Lasting(bus, "a", seen), restored=True)
        bus.add(Lasting(bus, "b", seen))
        for event in (Lasts(1), Happened(2), Lasts(3)):
            bus.publish(event)
        bus.restored()
        bus.restored()
        bus.publish(Lasts(4))
        return seen

    assert asyncio.run(scene()) == ["a 1", "a Happened 2", "a 3", "b 3", "a 4", "b 4"]
