"""`Relay`: a session with handlers, started by a user's own program.

from relay import Relay

relay = Relay(name="Alice")
relay.pattern("deploy", deploy)
relay.on("sessionStart", greet)
raise SystemExit(relay.wrap("claude"))
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

from relay.errors import UsageError
from relay.hooks.registry import Registry
from relay.memory.config import MemoryConfig
from relay.session import launch
from relay.session.options import Options

F = TypeVar("F", bound=Callable[..., Any])


class Relay:
    """A session with handlers, described in a program instead of a relay.config.py.

    The arguments are the options of `relay wrap`; `memory` is as in RelayConfig.
    """

    def __init__(
        self,
        name: str = "",
        *,
        team: str = "",
        agent: str = "",
        task: str = "",
        broker: str = "",
        memory: Mapping[str, Any] | MemoryConfig | None = None,
    ) -> None:
        self.registry = Registry()
        self.options: dict[str, Any] = {
            "name": name,
            "team": team,
            "profile": agent,
            "task": task,
            "broker": broker,
        }
        self._memory = None if memory is None else MemoryConfig.from_mapping(memory)

    @overload
    def pattern(
        self, pattern: str, *, body: bool = True, override: bool = False, priority: int = 0
    ) -> Callable[[F], F]: ...
    @overload
    def pattern(
        self, pattern: str, handler: F, *, body: bool = True, override: bool = False, priority: int = 0
    ) -> F: ...
    def pattern(self, pattern: str, handler: Any = None, **options: Any) -> Any:
        """Register `handler(target, message, ctx)`, or decorate one; options as in `relay.pattern`."""

        return _register(partial(self.registry.add_pattern, pattern, **options), handler)

    @overload
    def on(self, event: str, *, priority: int = 0) -> Callable[[F], F]: ...
    @overload
    def on(self, event: str, handler: F, *, priority: int = 0) -> F: ...
    def on(self, event: str, handler: Any = None, **options: Any) -> Any:
        """Register `handler(event, ctx)`, or decorate one; `event` as in `relay.on`."""

        return _register(partial(self.registry.add_event, event, **options), handler)

    def wrap(self, command: str | Sequence[str]) -> int:
        """Run `command` as `relay wrap` does, with this program's terminal; return the agent's exit code.

        A string is split as a shell would split it. Raise RelayError where `relay wrap` would, and outside
        the main thread, which alone can handle signals.
        """
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                "wrap handles signals, which Python allows only in the main thread: call it from the "
                "program's main thread, and do your other work in threads."
            )
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        if not argv:
            raise UsageError("wrap needs a command, such as relay.wrap('claude').")
        return launch.wrap(Options(argv, **self.options, registry=self.registry, memory=self._memory))


def _register(add: Callable[[F], None], handler: F | None) -> F | Callable[[F], F]:
    def register(function: F) -> F:
        add(function)
        return function

    return register if handler is None else register(handler)
