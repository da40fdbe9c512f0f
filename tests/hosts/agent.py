"""An agent on the bus without a terminal: a courier that takes commands and tells what happens, line by line.

Usage: python agent.py NAME URL.  It reads JSON objects from stdin:

    {"send": TO, "body": TEXT}      {"roster": true}

and prints others, each with `event`: status, sent, message (injected at once, as a session would), outcome,
roster, fault, error, and refused, after which it ends.  RELAY_TEST_KEEPALIVE and RELAY_TEST_OBJECTION
(seconds) shorten how long it takes to find that a connection is dead, and how long a holder may object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from relay.errors import NameInUse, RelayError
from relay.home import Home
from relay.messaging.client import Courier
from relay.messaging.message import Message, State
from relay.messaging.runaway import Limits
from relay.transport import mqtt, name_claims


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def tell_message(event: str, message: Message) -> None:
    tell(
        event,
        id=message.id,
        sender=message.sender,
        to=message.to,
        body=message.body,
        state=message.state,
        detail=message.detail,
    )


class Agent:
    def __init__(self, name: str, url: str) -> None:
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()
        self._courier = Courier(
            Home.from_env(os.environ).ensure(),
            "default",
            name,
            broker_url=url,
            limits=Limits(rate=0),  # what is sent at once here is no runaway
            on_message=self._waiting.put_nowait,
            on_outcome=lambda message: tell_message("outcome", message),
            on_status=lambda text: tell("status", text=text),
            on_fault=lambda text: tell("fault", text=text),
        )
        for message in self._courier.waiting():
            self._waiting.put_nowait(message)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._courier.run())
                tasks.create_task(self._obey())
                tasks.create_task(self._inject())
        except* NameInUse as refused:
            tell("refused", text=str(refused.exceptions[0]))

    async def _inject(self) -> None:
        while True:
            message = await self._waiting.get()
            self._courier.injecting(message.id)
            tell_message("message", message)
            self._courier.settle(message.id, State.INJECTED)

    async def _obey(self) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while line := await commands.readline():
            command = json.loads(line)
            if "roster" in command:
                tell("roster", online=[each.name for each in self._courier.roster() if each.online])
                continue
            try:
                for message in self._courier.send(command["send"], command["body"]):
                    tell_message("sent", message)
            except RelayError as error:
                tell("error", text=str(error))
        await asyncio.Event().wait()  # it stays until it is killed


if __name__ == "__main__":
    mqtt.KEEPALIVE_SECONDS = int(os.environ.get("RELAY_TEST_KEEPALIVE", mqtt.KEEPALIVE_SECONDS))
    name_claims.OBJECTION_SECONDS = float(
        os.environ.get("RELAY_TEST_OBJECTION", name_claims.OBJECTION_SECONDS)
    )
    asyncio.run(Agent(*sys.argv[1:]).run())
