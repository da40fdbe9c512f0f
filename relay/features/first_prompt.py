"""Types the first prompt of a new conversation: once, and not again when the conversation is resumed."""

from __future__ import annotations

import asyncio
import time

from relay.eventbus import EventBus, handles
from relay.injection.events import Inject
from relay.injection.injection import Injection
from relay.lifecycle import Identity, SessionReady
from relay.messaging.events import InHand
from relay.supervision.records import Records
from relay.tasks import Tasks


class FirstPrompt:
    """Types `text`. may_be_given: an earlier session, or the agent that it continues, may have got it.

    source: the agent that wrote the text; "": the user did.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        session: Identity,
        records: Records,
        text: str,
        *,
        source: str = "",
        may_be_given: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._records = records
        self._text = text
        self._source = source
        self._may_be_given = may_be_given
        self._id = f"{session.id}-task"  # the same in all sessions of this agent

    @handles(SessionReady)
    def ready(self, _: SessionReady) -> None:
        self._tasks.spawn(self._give(), "the first prompt")

    async def _give(self) -> None:
        if self._may_be_given:
            record = await asyncio.to_thread(self._records.get, self._session.team, self._session.name)
            typed = await self._bus.gather(InHand())  # by an earlier session, which could not record it
            if (record is not None and record.task_given) or self._id in typed:
                return
        injection = Injection(self._id, self._text, self._source, "task", time=time.time())
        self._bus.publish(Inject(injection))
