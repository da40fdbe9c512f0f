"""The built-in directive handlers, written against the public API that users have."""

from __future__ import annotations

from relay.api import on, pattern
from relay.builtin import memory, relay
from relay.hooks.registry import Registry, registering


def install(registry: Registry) -> None:
    """Register the built-in handlers in `registry`, with the public decorators."""
    built_in = Registry(builtin=True)
    with registering(built_in):
        pattern("relay")(relay.deliver)
        pattern("broadcast")(relay.broadcast)
        pattern("memory", body=False)(memory.handle)
        on("session_end")(memory.closing_prompt)
        auto_save = memory.AutoSave()
        on("agent_end")(auto_save.note)
        on("session_end")(auto_save.save)
    registry.include(built_in)
