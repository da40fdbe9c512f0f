"""The shim's event loop: descriptors and timers, on one thread.

`asyncio` would cost every agent's first byte 60 ms and every wake-up a tenth of a millisecond.
"""

from __future__ import annotations

import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec

    Arguments = ParamSpec("Arguments")
    Ready = Callable[[int], None]

GONE = select.POLLHUP | select.POLLERR

RESPITE = 0.1
"""Seconds to sleep after a failure, which may recur at once: it must not take the whole processor."""

MAX_LOGGED = 100
"""Failures to log; more would only fill the disk."""


class Timer:
    """A scheduled call; `cancel` prevents it."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None] | None) -> None:
        self.when = when
        self.call = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Calls back when a descriptor is ready or a timer is due.

    masks: the events that poll(2) watches, by descriptor.
    """

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._ready: dict[int, Ready] = {}
        self._timers: list[Timer] = []
        self._poll = select.poll()
        self._failures = 0

    def add(self, fd: int, mask: int, ready: Ready) -> None:
        """Call `ready` with the events of `fd` that are in `mask`, or POLLHUP or POLLERR."""
        self._ready[fd] = ready
        self.watch(fd, mask)

    def watch(self, fd: int, mask: int) -> None:
        """Watch the added `fd` for `mask`; 0: not at all, because poll(2) always reports hang-ups."""
        if fd < 0 or self.masks.get(fd, 0) == mask:
            return
        if mask:
            self._poll.register(fd, mask)
            self.masks[fd] = mask
        else:
            self._poll.unregister(fd)
            del self.masks[fd]

    def remove(self, fd: int) -> None:
        """Forget `fd`. Call this before closing it."""
        self.watch(fd, 0)
        self._ready.pop(fd, None)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + seconds, call)
        self._timers.append(timer)
        return timer

    def attempt(
        self, call: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> None:
        """Call back, and log any exception to standard error: the agent must outlive our bugs."""
        try:
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (logged with its traceback; the agent lives on)
            self.log(error)
            time.sleep(RESPITE)

    def log(self, error: Exception) -> None:
        """Log `error` with its traceback to standard error."""
        self._failures += 1
        if self._failures <= MAX_LOGGED:
            sys.__excepthook__(type(error), error, error.__traceback__)

    def turn(self, most: float | None = None) -> bool:
        """Wait for events, at most `most` seconds (None: until the next timer), and call back.

        Return True if a descriptor was ready.
        """
        timeout = None if most is None else int(most * 1000 + 0.999)
        if self._timers:
            timeout = self._until_timer(timeout)
        ready = self._poll.poll(timeout)
        for fd, mask in ready:
            # An earlier callback may have removed this descriptor, or stopped watching it.
            if fd in self.masks and (call := self._ready.get(fd)) is not None:
                self.attempt(call, mask)
        if self._timers:
            self._call_timers()
        return bool(ready)

    def _until_timer(self, timeout: int | None) -> int:
        left = max(min(timer.when for timer in self._timers) - time.monotonic(), 0.0)
        milliseconds = int(left * 1000) + 1
        return milliseconds if timeout is None else min(timeout, milliseconds)

    def _call_timers(self) -> None:
        now = time.monotonic()
        due = [timer for timer in self._timers if timer.when <= now]
        self._timers = [timer for timer in self._timers if timer.when > now and timer.call is not None]
        for timer in sorted(due, key=lambda timer: timer.when):
            if timer.call is not None:
                self.attempt(timer.call)
