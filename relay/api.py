"""The names that a relay.config.py imports: the decorators that register handlers, and their types.

from relay import pattern, on

@pattern("deploy")
async def deploy(target, message, ctx):
    return f"Deployed {message} to {target}"

@on("session_start")
def greet(event, ctx):
    ctx.inject("You are on call.")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from relay.errors import RelayError
from relay.hooks.config import RelayConfig
from relay.hooks.context import Context
from relay.hooks.registry import current
from relay.hooks.result import HookResult
from relay.memory.config import MemoryConfig

__all__ = [
    "Context",
    "HookResult",
    "MemoryConfig",
    "RelayConfig",
    "RelayError",
    "on",
    "pattern",
]

F = TypeVar("F", bound=Callable[..., Any])


def pattern(
    pattern: str, *, body: bool = True, override: bool = False, priority: int = 0
) -> Callable[[F], F]:
    """Register the decorated `function(target, message, ctx)` for `@namespace:target message` directives.

    pattern:  a namespace (`deploy`), or one with a target (`deploy:staging`, `deploy:prod-*`).
    body:     False if the directive needs no text; otherwise relay refuses one without and tells the agent.
    override: replace the built-in handlers of these directives.
    priority: higher ones run first.

    Raise ConfigError outside a relay.config.py that relay loads, or if the parameters do not match.
    """

    def register(function: F) -> F:
        current("pattern").add_pattern(pattern, function, body=body, override=override, priority=priority)
        return function

    return register


def on(event: str, *, priority: int = 0) -> Callable[[F], F]:
    """Register the decorated `function(event, ctx)` for an event, such as `session_start` (docs/HOOKS.md).

    Its parameters may also be the event's own fields: `def record(sender, body, ctx)` for message_received.
    Raise ConfigError outside a relay.config.py that relay loads, or if the parameters do not match.
    """

    def register(function: F) -> F:
        current("on").add_event(event, function, priority=priority)
        return function

    return register
