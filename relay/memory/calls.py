"""Calls to a backend that is not relay's own code: any exception in it becomes a MemoryStoreError."""

from __future__ import annotations

import builtins
import logging
from abc import ABC, abstractmethod
from typing import Any

from relay.errors import MemoryStoreError, RelayError
from relay.memory.backend import Memory, MemoryBackend, Scope
from relay.text import one_line

_log = logging.getLogger(__name__)

METHODS = ("add", "search", "list", "everything", "delete")


def perform(backend: MemoryBackend, what: str, method: str, *arguments: object) -> Any:
    """Call `method` (one of METHODS) of `backend`; return its result. Raise MemoryStoreError if it fails.

    what: the backend's name, for messages.
    """
    try:
        value = getattr(backend, method)(*arguments)
    except MemoryStoreError:
        raise
    except RelayError as error:
        raise MemoryStoreError(str(error)) from error
    except Exception as error:  # a library or the user's own code may raise anything
        raise MemoryStoreError(failure(what, error)) from error
    memories = [value] if method == "add" else [] if method == "delete" else value
    if not isinstance(memories, list) or not all(isinstance(each, Memory) for each in memories):
        raise MemoryStoreError(
            f"the memory backend {what} is faulty: {method} returned {one_line(repr(value), 60)}; "
            "see relay.memory.backend.MemoryBackend for what it must return."
        )
    return bool(value) if method == "delete" else value


def failure(what: str, error: BaseException) -> str:
    """Log an unexpected `error` of the backend `what`, with its traceback; return a sentence for the user."""
    _log.warning("the memory backend %s failed", what, exc_info=error)
    text = one_line(str(error), 300)
    return f"the memory backend {what} failed: {type(error).__name__}" + (f": {text}" if text else "") + "."


def too_late(what: str, seconds: float) -> str:
    """Return the error message of a call that took longer than `seconds`."""
    return (
        f"the memory backend {what} did not answer within {seconds:g} s. Check what it waits for, or allow "
        "more time (`timeout` in the memory settings)."
    )


class DistantBackend(ABC):
    """A backend whose methods run elsewhere: on another thread, or in another process."""

    @abstractmethod
    def _call(self, method: str, *arguments: object) -> Any:
        """Run one of METHODS there, and return its result. Raise MemoryStoreError."""

    def add(self, memory: Memory) -> Memory:
        added: Memory = self._call("add", memory)
        return added

    def search(self, query: str, scope: Scope, limit: int) -> builtins.list[Memory]:
        return list(self._call("search", query, scope, limit))

    def list(self, scope: Scope, limit: int | None) -> builtins.list[Memory]:
        return list(self._call("list", scope, limit))

    def everything(self) -> builtins.list[Memory]:
        return list(self._call("everything"))

    def delete(self, id: str, scope: Scope) -> bool:
        return bool(self._call("delete", id, scope))

    @abstractmethod
    def close(self) -> None: ...
