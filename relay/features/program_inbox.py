"""Hands a program (`relay.connect`) its messages, one at a time to each of its loops.

Inject ─→ queue ─→ take: MayBegin ─→ the body of the loop ─┬→ done: InjectionEnded
                                                           └→ it failed: InjectionDeferred, so it waits again
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from relay.dataclass import dataclass
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import Inject, InjectionEnded, Withdraw
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.news import News
from relay.injection.queue import InjectionQueue
from relay.lifecycle import Describe
from relay.message import Message
from relay.messaging.events import MessageGiven
from relay.terminal.events import Notify


@dataclass(eq=False, slots=True)
class MessageLoop:
    """A loop over a program's messages, changed only by the thread or task that runs it (`runner`).

    given: the id of the message that its body got last. left: it takes no more; that body may have failed.
    """

    runner: object
    given: str | None = None
    left: bool = False


class ProgramInbox:
    """The messages of one program."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._queue = InjectionQueue(bus, time.monotonic)
        self._news = News(time.monotonic)
        self._begun: Message | None = None  # the message that the queue has just begun
        self._in_hand: dict[MessageLoop, Injection] = {}
        self._waiting = 0  # loops that wait for a message
        self._since = time.time()  # when the last loop began to wait, or got a message

    @handles(Inject)
    def submit(self, event: Inject) -> None:
        if event.injection.kind == "message":
            self._queue.submit(event.injection)
            self._news.notice()
        else:  # the outcome of what the program has sent
            self._bus.publish(Notify(event.injection.text))
            self._bus.publish(InjectionEnded(event.injection, Outcome(Result.INJECTED, route="program")))

    @handles(Withdraw)
    def withdraw(self, event: Withdraw) -> None:
        self._queue.withdraw(event.id)

    @handles(MessageGiven)
    def given(self, event: MessageGiven) -> None:
        self._begun = event.message

    async def take(self, loop: MessageLoop, seconds: float | None) -> Message | None:
        """Return the next message for `loop`; None if there is none within `seconds`, or after `close`.

        The body of its last one is done, and so are those of loops that the same runner has left.
        """
        for each in tuple(self._in_hand):
            if each is loop or (each.left and each.runner is loop.runner):
                self.finish(each)
        self._waiting += 1
        self._since = time.time()
        try:
            async with asyncio.timeout(seconds) as limit, self._queue.beginning:
                while not self._queue.closed:
                    retry = None
                    if (first := next(iter(self._queue), None)) is not None:
                        if (refusal := self._queue.refused(first)) is not None:
                            retry = refusal.until - time.monotonic()
                        else:
                            until = limit.when()
                            limit.reschedule(None)  # it is about waiting
                            if await self._queue.begin(first, begins=True):
                                self._in_hand[loop] = first
                                return self._begun
                            limit.reschedule(until)
                            continue
                    await self._news.wait(retry)
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
            self._since = time.time()
        return None

    def close(self, *, done: bool) -> None:
        """End with the program. done: so are the bodies of its loops; else their messages wait again."""
        for loop in tuple(self._in_hand):
            self.finish(loop, done=done)
        self._queue.close()
        self._news.notice()

    def finish(self, loop: MessageLoop, *, done: bool = True) -> None:
        """End with what `loop` has, if anything: it waits again unless the body got it, and is `done`."""
        injection = self._in_hand.pop(loop, None)
        if injection is None:
            return
        if done and injection.id == loop.given:
            self._queue.end(injection, Outcome(Result.INJECTED, route="program"))
        else:
            self._queue.defer([injection])
            self._news.notice()

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        state = "ready" if self._waiting else "working"
        shared = {"state": state, "prompt": None, "agent_pid": os.getpid(), "terminal_pid": None}
        if question.brief:
            return {**shared, "since": self._since}
        senders = [injection.source for injection in self._in_hand.values()]
        handles = f"handles a message from {senders[-1]}" if senders else "does other work"
        return {
            **shared,
            "reason": "waits for messages" if self._waiting else handles,
            "waiting": len(self._queue),
            "obstacle": None,
        }
