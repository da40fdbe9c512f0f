"""`@broadcast:* text`: the same as `@relay:* text`."""

from __future__ import annotations

from relay.api import Context
from relay.builtin import relay
from relay.errors import MessageRefused


async def deliver(target: str, message: str, ctx: Context) -> str | None:
    """Send `message` to everybody else in the team."""
    if target != "*":
        raise MessageRefused(
            f"a broadcast goes to everybody. Write @broadcast:* TEXT, or @relay:{target} TEXT for one."
        )
    return await relay.deliver("*", message, ctx)
