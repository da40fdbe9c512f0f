"""Texts that an inbox took, that are given again, and that come after all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.eventbus import EventBus
from relay.injection.injection import Injection, Kind
from relay.injection.late_texts import LateTexts
from relay.injection.queue import InjectionQueue
from relay.storage.progress import Progress

MARK = "[/relay 3f9a41c7]"
PROMPT = f"[relay 3f9a41c7 from Bob] hello {MARK}"


class Late:
    """What one session knows. resumed: it follows another one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, *, resumed: bool = False) -> None:
        self.queue = InjectionQueue(EventBus(loop), time.monotonic)
        self.progress = Progress(folder / "progress.jsonl", resumed=resumed)
        self.texts = LateTexts(self.queue, self.progress)
        if resumed:
            self.texts.restore()


Begin = Callable[..., Late]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Yield what begins a session."""
    begun: list[Late] = []
    with asyncio.Runner() as runner:

        def begin(*, resumed: bool = False) -> Late:
            begun.append(Late(runner.get_loop(), tmp_path, resumed=resumed))
            return begun[-1]

        yield begin
    for each in begun:
        each.progress.close(remove=False)


def injection(kind: Kind = "message") -> Injection:
    return Injection("3f9a41c7", "hello", "Bob", kind)


@pytest.mark.parametrize(("kind", "repeats"), [("message", [False, True]), ("hook", [True, True])])
def test_only_a_message_given_again_has_the_same_mark(begin: Begin, kind: Kind, repeats: list[bool]) -> None:
    """So its next prompt is the one given again, and a hook's is the late one."""
    late = begin()
    late.texts.expect(MARK, [injection(kind)])
    assert [late.texts.prompted(PROMPT)[1] for _ in range(2)] == repeats
    assert late.texts.prompted("another prompt") == ([], False)


def test_a_text_that_still_waits_counts_when_it_comes_and_is_refused_afterwards(begin: Begin) -> None:
    late = begin()
    late.texts.expect(MARK, [injection()])
    late.queue.submit(injection())
    assert late.texts.prompted(PROMPT) == ([injection()], False)
    late.queue.withdraw(injection().id)
    assert late.texts.prompted(PROMPT) == ([], True)


def test_a_text_that_a_reply_has_carried_is_refused(begin: Begin) -> None:
    late = begin()
    late.texts.expect(MARK, [injection()])
    late.texts.carried(injection().id)
    assert late.texts.prompted(PROMPT) == ([], True)


def test_the_next_session_refuses_it_as_well(begin: Begin) -> None:
    first = begin()
    first.texts.expect(MARK, [injection()])
    second = begin(resumed=True)
    assert second.texts.prompted(PROMPT) == ([], False)
    third = begin(resumed=True)
    assert third.texts.prompted(PROMPT) == ([], True)


def test_what_is_expected_again_goes_before_later_texts_of_its_rank(begin: Begin) -> None:
    queue = begin().queue
    again = injection()
    queue.expect([again])
    for each in (Injection("2", "two", "Bob"), Injection("3", "three", "Ann"), again):
        queue.submit(each)
    assert [each.id for each in queue] == [again.id, "2", "3"]
