"""An agent on the bus without a terminal: it reads commands and prints events, line by line.

Usage: python agent.py NAME URL.  It reads JSON objects from standard input:

    {"send": TO, "body": TEXT}      {"roster": true}

and prints objects with an `event`: status, sent, message (injected, as by a session), outcome, roster, error,
and refused, after which it ends.  RELAY_TEST_KEEPALIVE and RELAY_TEST_OBJECTION (in seconds) shorten the
detection of a dead connection, and the time that a name's holder has to object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from relay.errors import NameInUse, RelayError
from relay.eventbus import Event
from relay.home import Home
from relay.message import Message, OutgoingMessage, State
from relay.messaging.client import MessagingClient
from relay.messaging.events import MessageStored, OutcomeReported, StatusReported
from relay.messaging.runaway import Limits
from relay.transport import mqtt, name_claims


def report(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def report_message(event: str, message: Message) -> None:
    report(
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
        self._name = name
        self._url = url
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()

    def _publish(self, event: Event) -> None:
        match event:
            case MessageStored(message):
                self._waiting.put_nowait(message)
            case OutcomeReported(message):
                report_message("outcome", message)
            case StatusReported(text):
                report("status", text=text)

    async def run(self) -> None:
        client = await MessagingClient.open(
            Home.from_env(os.environ).ensure(),
            "default",
            self._name,
            broker_url=self._url,
            limits=Limits(rate=0),  # a burst is not a runaway here
            publish=self._publish,
        )
        for message in await client.waiting():
            self._waiting.put_nowait(message)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.run())
                tasks.create_task(self._run_commands(client))
                tasks.create_task(self._inject(client))
        except* NameInUse as refused:
            report("refused", text=str(refused.exceptions[0]))

    async def _inject(self, client: MessagingClient) -> None:
        while True:
            message = await self._waiting.get()
            await client.injecting(message.id)
            report_message("message", message)
            await client.settle(message.id, State.INJECTED)

    async def _run_commands(self, client: MessagingClient) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while line := await commands.readline():
            command = json.loads(line)
            if "roster" in command:
                report("roster", online=[each.name for each in await client.roster() if each.online])
                continue
            try:
                for message in await client.send(OutgoingMessage(command["send"], command["body"])):
                    report_message("sent", message)
            except RelayError as error:
                report("error", text=str(error))
        await asyncio.Event().wait()  # it runs until it is killed


if __name__ == "__main__":
    mqtt.KEEPALIVE_SECONDS = int(os.environ.get("RELAY_TEST_KEEPALIVE", mqtt.KEEPALIVE_SECONDS))
    name_claims.OBJECTION_SECONDS = float(
        os.environ.get("RELAY_TEST_OBJECTION", name_claims.OBJECTION_SECONDS)
    )
    asyncio.run(Agent(*sys.argv[1:]).run())
