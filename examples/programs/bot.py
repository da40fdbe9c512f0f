"""A bot that gives each agent that asks a port of its own, so that their servers do not collide."""

import asyncio
import itertools

import relay


async def main():
    ports = itertools.count(8100)
    async with relay.connect("Ports") as me:
        async for message in me.messages():
            await me.reply(message, f"Use port {next(ports)}.")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
