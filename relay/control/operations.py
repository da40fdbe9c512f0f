"""The operations that other processes may request: methods of a session's features, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from relay.control.server import Answer, Request
from relay.eventbus import methods

_OPERATION = "_operation"

S = TypeVar("S")
Method = Callable[[S, Request], Awaitable[Answer]]


def operation(name: str) -> Callable[[Method[S]], Method[S]]:
    """Mark a coroutine method as the operation `name`; relay.control.guard says who may request it."""

    def mark(method: Method[S]) -> Method[S]:
        setattr(method, _OPERATION, name)
        return method

    return mark


def operations(features: Iterable[object]) -> dict[str, Callable[[Request], Awaitable[Answer]]]:
    """Return the marked methods of `features` by operation name."""
    return {
        marked: getattr(feature, name)
        for feature in features
        for name, method in methods(type(feature))
        if (marked := getattr(method, _OPERATION, None)) is not None
    }
