"""`@relay:Bob text`, to `#ops` or `*` as well, and `@broadcast:* text`: messages to other agents."""

from __future__ import annotations

from relay import names
from relay.api import Context
from relay.errors import MessageRefused, UnknownRecipient
from relay.message import State
from relay.text import listed


async def deliver(target: str, message: str, ctx: Context) -> dict[str, object] | str | None:
    """Send `message`. Return a text for the sender where it goes to all, or cannot be delivered at once."""
    try:
        sent = await ctx.relay.send(target, message)
    except UnknownRecipient as error:
        if error.suggestion is None or error.suggestion in str(error):
            raise
        raise UnknownRecipient(f"{error} Did you mean @relay:{error.suggestion}?", error.suggestion) from None
    if target == "*":
        there = [each.to for each in sent if each.state is not State.HELD]
        return {"inject": f"Sent to {len(there)}: {listed(there)}.", "wake": False} if there else None
    roster = await ctx.relay.roster()
    if any(names.same(member.name, target) and member.online is False for member in roster):
        return f"{target} is offline. The message is kept and will be delivered when {target} is back."
    return None


async def broadcast(target: str, message: str, ctx: Context) -> dict[str, object] | str | None:
    """Send `message` to everybody else in the team, as `@relay:*` does."""
    if target != "*":
        raise MessageRefused(
            f"a broadcast goes to everybody. Write @broadcast:* TEXT, or @relay:{target} TEXT for one."
        )
    return await deliver("*", message, ctx)
