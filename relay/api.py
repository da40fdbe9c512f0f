"""What a user imports: decorators for a relay.config.py, and `Relay` for programs of one's own.

from relay import pattern, on                     from relay import Relay

@pattern("deploy")                                relay = Relay(name="Alice")
async def deploy(target, message, ctx):           relay.pattern("deploy", deploy)
    return f"Deployed {message} to {target}"      relay.on("sessionStart", greet)
                                                  raise SystemExit(relay.wrap("claude"))
@on("session_start")
def greet(event, ctx):
    ctx.inject("You are on call.")
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from relay.errors import RelayError, UsageError
from relay.hooks.config import MemoryConfig, RelayConfig
from relay.hooks.context import Context
from relay.hooks.registry import Registry, registration
from relay.hooks.result import HookResult

__all__ = [
    "Context",
    "HookResult",
    "MemoryConfig",
    "Relay",
    "RelayConfig",
    "RelayError",
    "WrapOptions",
    "on",
    "pattern",
]

F = TypeVar("F", bound=Callable[..., Any])


def pattern(
    pattern: str, *, body: bool = True, override: bool = False, priority: int = 0
) -> Callable[[F], F]:
    """Register the decorated `function(target, message, ctx)` for `@namespace:target message` directives.

    pattern:  a namespace (`deploy`), or one with a target (`deploy:staging`, `deploy:prod-*`).
    body:     False if the directive needs no text; else one without text is refused and the agent is told.
    override: take the place of the built-in handlers of these directives.
    priority: higher ones run first.

    Raises ConfigError outside of a relay.config.py that relay loads, or if the function cannot be called so.
    """

    def register(function: F) -> F:
        current = registration("pattern")
        current.registry.add_pattern(
            pattern, function, body=body, override=override, priority=priority, builtin=current.builtin
        )
        return function

    return register


def on(event: str, *, priority: int = 0) -> Callable[[F], F]:
    """Register the decorated `function(event, ctx)` for an event, such as `session_start` (docs/HOOKS.md).

    Its parameters may also be the event's own fields: `def record(sender, body, ctx)` for message_received.
    Raises ConfigError outside of a relay.config.py that relay loads, or if the function cannot be called so.
    """

    def register(function: F) -> F:
        current = registration("on")
        current.registry.add_event(event, function, priority=priority, builtin=current.builtin)
        return function

    return register


@dataclass(frozen=True, slots=True)
class WrapOptions:
    """What `Relay(...)` says about the session; None leaves the choice to relay, as on the command line."""

    name: str | None = None
    team: str | None = None
    agent: str | None = None
    task: str | None = None
    broker: str | None = None
    memory: MemoryConfig | None = None


class Relay:
    """A session with handlers, described in a program instead of a relay.config.py.

    The arguments are the options of `relay wrap`; `memory` is as in RelayConfig.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        team: str | None = None,
        agent: str | None = None,
        task: str | None = None,
        broker: str | None = None,
        memory: Mapping[str, Any] | MemoryConfig | None = None,
    ) -> None:
        config = None if memory is None else MemoryConfig.from_mapping(memory)
        self.options = WrapOptions(name, team, agent, task, broker, config)
        self.registry = Registry()

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

        def register(function: F) -> F:
            self.registry.add_pattern(pattern, function, **options)
            return function

        return register if handler is None else register(handler)

    @overload
    def on(self, event: str, *, priority: int = 0) -> Callable[[F], F]: ...
    @overload
    def on(self, event: str, handler: F, *, priority: int = 0) -> F: ...
    def on(self, event: str, handler: Any = None, **options: Any) -> Any:
        """Register `handler(event, ctx)`, or decorate one; `event` as in `relay.on`."""

        def register(function: F) -> F:
            self.registry.add_event(event, function, **options)
            return function

        return register if handler is None else register(handler)

    def wrap(self, command: str | Sequence[str]) -> int:
        """Run `command` as `relay wrap` does, with this program's terminal; return the agent's exit code.

        A string is split as a shell would. Raises RelayError for whatever `relay wrap` would refuse.
        """
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        if not argv:
            raise UsageError("wrap needs a command, such as relay.wrap('claude').")
        # The session is a floor above this one; it is looked up by name, at the moment of use.
        launch = importlib.import_module("relay.session.launch")
        return int(launch.run(argv, self.options, self.registry))
