"""The built-in directive handlers, written on the public surface that users have."""

from __future__ import annotations

from relay.api import on, pattern
from relay.builtin import broadcast, memory, relay
from relay.hooks.registry import Registry, registering


def install(registry: Registry) -> None:
    """Register the built-in handlers in `registry`, with the decorators that users have."""
    with registering(registry, builtin=True):
        pattern("relay")(relay.deliver)
        pattern("broadcast")(broadcast.deliver)
        pattern("memory", body=False)(memory.handle)
        on("session_end")(memory.closing_prompt)
