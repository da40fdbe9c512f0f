#!/usr/bin/env python3
"""The same without a relay.config.py: a program that configures the session and runs the agent.

examples/programmatic.py claude
"""

import shlex
import sys

from relay import Relay

relay = Relay(name="MyAgent")


@relay.pattern("deploy")
async def deploy(target, message, ctx):
    return {"inject": f"Deployed {message} to {target}."}


@relay.on("sessionStart")
def tell_memories(event, ctx):
    if memories := ctx.memory.list():
        ctx.inject("Your memories:\n" + "\n".join(f"- {memory.text}" for memory in memories))


@relay.on("sessionEnd")
def ask_to_save(event, ctx):
    ctx.inject("Save what you learned, with @memory:save and the text.")


if __name__ == "__main__":
    sys.exit(relay.wrap(shlex.join(sys.argv[1:]) or "claude"))
