"""A custom backend in the session's own process: on its own thread, with a time limit for each call."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from relay.errors import MemoryStoreError, RelayError
from relay.memory.backend import MemoryBackend
from relay.memory.calls import DistantBackend, failure, perform, too_late

WHAT = "custom"


class InProcessBackend(DistantBackend):
    """The backend that `factory(config)` makes at the first call.

    timeout: seconds that a call may take, after which it is abandoned: its thread cannot be stopped, and
    calls are refused until it returns.
    """

    def __init__(
        self, factory: Callable[[Mapping[str, Any]], MemoryBackend], config: Mapping[str, Any], timeout: float
    ) -> None:
        self._factory = factory
        self._config = config
        self._timeout = timeout
        self._backend: MemoryBackend | None = None  # used only by the thread
        self._jobs: queue.SimpleQueue[tuple[Future[Any], str, tuple[object, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._running: tuple[str, Future[Any]] | None = None  # the call that runs
        self._abandoned: Future[Any] | None = None  # the last call that ran when its caller gave up
        self._closed = False

    def _call(self, method: str, *arguments: object) -> Any:
        future: Future[Any] = Future()
        with self._lock:  # so that no job follows the end marker
            if self._closed:
                raise MemoryStoreError("the memory backend was closed.")
            if (name := self._overdue()) is not None:
                raise MemoryStoreError(
                    f"the memory backend {WHAT} has not returned from {name} yet. Try again later, or "
                    "restart the session."
                )
            self._start()
            self._jobs.put((future, method, arguments))
        if not wait([future], self._timeout).done:
            if not future.cancel():  # otherwise it has not started, and never will
                self._abandoned = future
            raise MemoryStoreError(too_late(WHAT, self._timeout))
        return future.result()

    def _overdue(self) -> str | None:
        """Return the method whose call was abandoned and still runs; None if there is none."""
        running = self._running
        return running[0] if running is not None and running[1] is self._abandoned else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._thread is not None:
                self._jobs.put(None)
                self._thread.join(self._timeout if self._overdue() is None else 0)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="relay-memory", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, method, arguments = job
            self._running = method, future
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(perform(self._opened(), WHAT, method, *arguments))
                except MemoryStoreError as error:
                    future.set_exception(error)
            self._running = None
        if self._backend is not None:
            try:
                self._backend.close()
            except Exception as error:  # noqa: BLE001 (the user's code; the session is over: it is logged)
                failure(WHAT, error)

    def _opened(self) -> MemoryBackend:
        """Return the backend. Raise MemoryStoreError if it cannot be made; the next call tries again."""
        if self._backend is None:
            self._backend = made(self._factory, self._config)
        return self._backend


def made(factory: Callable[[Mapping[str, Any]], Any], config: Mapping[str, Any]) -> MemoryBackend:
    """Return `factory(config)`. Raise MemoryStoreError if the call fails or returns no backend."""
    try:
        backend = factory(config)
    except RelayError as error:
        raise MemoryStoreError(str(error)) from error
    except Exception as error:  # the user's code may raise anything
        raise MemoryStoreError(failure(WHAT, error)) from error
    methods = ("add", "search", "list", "everything", "delete", "close")
    if missing := [name for name in methods if not callable(getattr(backend, name, None))]:
        raise MemoryStoreError(
            f"the object returned by the memory factory ({type(backend).__name__}) has no "
            f"{', '.join(missing)}; "
            "see relay.memory.backend.MemoryBackend."
        )
    checked: MemoryBackend = backend
    return checked
