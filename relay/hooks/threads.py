"""The threads that run user code, separate from the session's own.

Coroutines run on one event loop that all user code shares; plain functions run on worker threads. Either may
hang, block or loop forever: the thread is then abandoned, interrupted by an exception at its next bytecode,
and replaced. All are daemon threads, so they do not delay an exit.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, field

MAX_IDLE_WORKERS = 4


class Abandoned(BaseException):
    """Raised in an abandoned thread; not an Exception, so that `except Exception` lets it pass."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a call: its value, or the error that it raised (SystemExit and Abandoned included)."""

    value: Any = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class Call:
    """One call of user code. `done` gets a Finished, whatever happens; it never raises.

    stack: (file, line) of each frame, innermost first, when the call was abandoned.
    """

    function: Callable[[], Any]
    context: Context
    done: Future[Finished] = field(default_factory=Future)
    task: asyncio.Task[None] | None = None
    thread: threading.Thread | None = None
    owner: LoopThread | None = None
    stack: list[tuple[str, int]] = field(default_factory=list)
    _begun: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def move(self, owner: LoopThread) -> bool:
        """Move the call to the thread of `owner`; return False if it has begun."""
        with self._lock:
            if not self._begun:
                self.owner = owner
            return not self._begun

    def finish(self, finished: Finished) -> bool:
        """End the call; return False if it has already ended, like an abandoned call that returns late."""
        with self._lock:
            if self.done.done():
                return False
            self.done.set_result(finished)
            return True

    def give_up(self) -> bool:
        """Record where the call is, and end it as Abandoned; return False if it has just ended by itself."""
        if self.thread and self.thread.ident and (frame := sys._current_frames().get(self.thread.ident)):
            self.stack = [(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)]
        return self.finish(Finished(error=Abandoned()))

    def abandon(self) -> bool:
        """Abandon the call and its worker thread; return False if the call has just ended by itself."""
        if not self.give_up():
            return False
        _interrupt(self.thread)
        return True

    def line_in(self, path: Path) -> int | None:
        """Return the line of `path` where the call was abandoned; None if it was not in that file."""
        return next((line for file, line in self.stack if file == str(path)), None)

    def start(self, owner: LoopThread) -> None:
        """Run the call as a task on the event loop of `owner`, in its thread."""
        self.thread = threading.current_thread()
        self.task = owner.loop.create_task(self._run_async(owner), context=self.context)

    async def _run_async(self, owner: LoopThread) -> None:
        with self._lock:
            if self.owner is not owner:
                return  # it moved away while this thread was blocked
            self._begun = True
        try:
            value = self.function()
            finished = Finished(await value if isinstance(value, Awaitable) else value)
        except BaseException as error:  # noqa: BLE001 (SystemExit would end the loop)
            finished = Finished(error=error)
        self.finish(finished)

    def run(self) -> Finished:
        self.thread = threading.current_thread()
        try:
            return Finished(self.context.run(self.function))
        except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
            return Finished(error=error)


class WorkerPool:
    """Threads for plain functions: an idle one is reused, a stuck one never."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Call | None]] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[[], Any], context: Context) -> Call:
        call = Call(function, context)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="relay-handler", daemon=True).start()
        inbox.put(call)
        return call

    def close(self) -> None:
        """End the idle threads. A busy one ends when its call does, or with the process.

        Do not submit calls afterwards.
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _work(self, inbox: queue.SimpleQueue[Call | None]) -> None:
        try:
            while (call := inbox.get()) is not None:
                finished = call.run()
                with self._lock:  # once the call is done, this thread must be idle
                    in_time = call.finish(finished)
                    if not in_time or self._closed or len(self._idle) >= MAX_IDLE_WORKERS:
                        return
                    self._idle.append(inbox)
        except Abandoned:
            return  # interrupted after the call had ended


class LoopThread:
    """A thread with an event loop for coroutines.

    stray: called, in this thread, with the error of a task that user code started and never awaited.
    """

    def __init__(self, stray: Callable[[BaseException], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._on_exception)
        self._stray = stray
        self.culprit: Call | None = None  # the call that blocked the thread when it was abandoned
        self._calls: set[Call] = set()  # touched only in the session's thread
        self._thread = threading.Thread(target=self._run, name="relay-handlers", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Any], context: Context) -> Call:
        call = Call(function, context, owner=self)
        self._begin(call)
        return call

    def _begin(self, call: Call) -> None:
        self._calls = {other for other in self._calls if not other.done.done()} | {call}
        self.loop.call_soon_threadsafe(call.start, self)

    def cancel(self, call: Call) -> Future[None]:
        """Cancel `call`; the future is done once the loop has iterated, which a blocked one never does."""
        turned: Future[None] = Future()

        def cancel() -> None:
            if call.owner is self and call.task is not None:
                call.task.cancel()
            self.loop.call_soon(turn)

        def turn() -> None:
            if not turned.cancelled():
                turned.set_result(None)

        self.loop.call_soon_threadsafe(cancel)
        return turned

    def abandon(self) -> LoopThread:
        """Replace this thread with a new one; calls that have not begun move there, others are cut off."""
        new = LoopThread(self._stray)
        running = asyncio.current_task(self.loop)
        for call in self._calls:
            if call.done.done():
                continue
            if call.move(new):
                new._begin(call)
                continue
            if call.task is running:
                self.culprit = call
            call.give_up()
        self._calls.clear()
        self.loop.call_soon_threadsafe(self.loop.stop)
        _interrupt(self._thread)
        return new

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while True:
                try:
                    self.loop.run_forever()
                    break
                except SystemExit as error:  # from a task that user code started; it ends the loop's run
                    self._stray(error)
            for task in (tasks := asyncio.all_tasks(self.loop)):
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=0.5))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except Abandoned:
            pass
        finally:
            self.loop.close()

    def _on_exception(self, _: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
        error = details.get("exception")
        if isinstance(error, Exception):  # SystemExit was reported; the rest are tasks that close() cuts off
            self._stray(error)


def _interrupt(thread: threading.Thread | None) -> None:
    """Raise Abandoned in `thread` at its next bytecode, so that a busy loop stops using the CPU."""
    if thread is not None and thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Abandoned))
