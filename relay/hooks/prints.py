"""The output of handlers: kept off the user's terminal, for the journal.

Proxies replace `sys.stdout` and `sys.stderr`. They record text for the handler that runs in the current
context, or, outside of any handler, write it to the original stream. A handler's child processes write to the
file descriptors 1 and 2, which the session has redirected for its whole process.
"""

from __future__ import annotations

import io
import sys
import threading
from contextvars import ContextVar
from typing import TextIO

_MAX_PRINTED = 64 * 1024  # characters kept per call; further ones are counted and dropped


class Printed:
    """The text that one call of a handler prints. Write from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: list[str] = []
        self._size = 0
        self._dropped = 0

    def write(self, text: str) -> None:
        with self._lock:
            kept = text[: max(0, _MAX_PRINTED - self._size)]
            self._size += len(kept)
            self._dropped += len(text) - len(kept)
            if kept:
                self._parts.append(kept)

    def take(self) -> str:
        """Return what was printed since the last call of this method."""
        with self._lock:
            text = "".join(self._parts)
            if self._dropped:
                text += f"\n... and {self._dropped:,} more characters"
            self._parts, self._size, self._dropped = [], 0, 0
            return text


printed: ContextVar[Printed | None] = ContextVar("relay_printed", default=None)
"""The output of the current handler; None outside of handlers."""


class _Stream(io.TextIOBase):
    """A text stream that looks up, at each write, which handler is printing."""

    def __init__(self, original: TextIO) -> None:
        self.original = original

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.original.encoding

    def write(self, text: str) -> int:
        target = printed.get()
        if target is None:
            return self.original.write(text)
        target.write(text)
        return len(text)

    def flush(self) -> None:
        if printed.get() is None:
            self.original.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.original.fileno()

    def isatty(self) -> bool:
        return printed.get() is None and self.original.isatty()


def capture() -> None:
    """Install the proxies for the rest of the process; do nothing the second time."""
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), _Stream):
            setattr(sys, name, _Stream(stream))
