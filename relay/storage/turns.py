"""Turns: processes that write the same SQLite file queue in order of arrival.

In SQLite itself, a writer that finds the file locked sleeps and tries again, up to a tenth of a second later:
among dozens of writers, some come too late every time.  An flock(2) on a file next to it queues them in the
kernel, and wakes the next one at once.  Turns are only a courtesy: SQLite's own lock decides, and a writer
that has waited long enough for its turn continues without one.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading

from relay.storage.locks import try_lock


class Turns:
    """The queue at `path`, for one thread."""

    def __init__(self, path: str) -> None:
        """Create the file if there is none; if that fails, there are no turns."""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            self._file = -1
        self._waiter: _Waiter | None = None
        self._mine = False

    def take(self, seconds: float) -> None:
        """Wait for our turn, at most `seconds`."""
        if self._file == -1:
            return
        if self._waiter is None or not self._waiter.waits:
            self._mine = try_lock(self._file)
            if self._mine:
                return
        if self._waiter is None:
            self._waiter = _Waiter(self._file)
        self._mine = self._waiter.wait(seconds)

    def leave(self) -> None:
        """Let the next writer continue. May be called without a turn."""
        if self._mine:
            self._mine = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the queue for good."""
        if self._file != -1:
            file, self._file = self._file, -1
            if self._waiter is None:
                os.close(file)
            else:
                self._waiter.close()


class _Waiter:
    """A thread that blocks for the lock, since flock(2) has no timeout. Started when first needed."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._state = threading.Lock()
        self._granted = threading.Lock()
        self._granted.acquire()
        self._wanted = self._closed = False
        self.waits = False  # it still blocks, even if its caller has continued without a turn
        threading.Thread(target=self._work, name="relay-turns", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Return True once the lock is held, False after `seconds`."""
        with self._state:
            self._wanted = True
            if not self.waits:
                self.waits = True
                self._asked.put(True)
        if self._granted.acquire(timeout=seconds):
            return True
        with self._state:
            self._wanted = False
            return self._granted.acquire(blocking=False)  # at the last moment

    def close(self) -> None:
        """End the thread as soon as possible; it closes the file."""
        self._closed = True
        self._asked.put(False)

    def _work(self) -> None:
        while self._asked.get():
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._state:
                self.waits = False
                if self._wanted and not self._closed:
                    self._wanted = False
                    self._granted.release()
                else:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)
