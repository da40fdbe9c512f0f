"""`@relay:Bob text`, to `#ops` or `*` as well, and `@broadcast:* text`: messages to other agents.

`@relay:spawn NAME COMMAND TASK` starts another agent, and `@relay:release NAME` ends it: docs/FLEET.md.
"""

from __future__ import annotations

from relay import names
from relay.api import Context
from relay.errors import MessageRefused, UnknownRecipient, UsageError
from relay.message import State
from relay.text import listed


async def deliver(target: str, message: str, ctx: Context) -> dict[str, object] | str | None:
    """Send `message`. Return a text for the sender if it goes to all, or cannot be delivered at once."""
    if names.key(target) in {"spawn", "release"}:
        return {"inject": await _fleet(names.key(target), message.split(maxsplit=2), ctx), "wake": False}
    try:
        sent = await ctx.relay.send(target, message)
    except UnknownRecipient as error:
        if error.suggestion is None or error.suggestion in str(error):
            raise
        raise UnknownRecipient(f"{error} Did you mean @relay:{error.suggestion}?", error.suggestion) from None
    if target == "*":
        there = [each.to for each in sent if each.state is not State.HELD]
        return {"inject": f"Sent to {len(there)}: {listed(there)}.", "wake": False} if there else None
    if (member := await ctx.relay.member(target)) is not None and member.online is False:
        return f"{target} is offline. The message waits until {target} is online."
    return None


async def _fleet(target: str, words: list[str], ctx: Context) -> str:
    """Start or end an agent, as `words` say; return a sentence about it."""
    if target == "spawn" and len(words) > 1:
        return await ctx.relay.spawn(*words)
    if target == "release" and len(words) == 1:
        return await ctx.relay.release(words[0])
    raise UsageError(
        "write the new agent's name, what it runs, and its task: NAME COMMAND TASK."
        if target == "spawn"
        else "write only the name of an agent that you started."
    )


async def broadcast(target: str, message: str, ctx: Context) -> dict[str, object] | str | None:
    """Send `message` to everyone else in the team, as `@relay:*` does."""
    if target != "*":
        raise MessageRefused(
            f"a broadcast goes to every agent. Write @broadcast:* TEXT, or @relay:{target} TEXT for one "
            "agent."
        )
    return await deliver("*", message, ctx)
