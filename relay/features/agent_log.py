"""Logs what the agent says, for `relay logs`, and keeps its last line, for lists.

    AgentSaid → lines that no earlier session has logged → collected for a moment → secrets removed → file

It logs the text that is searched for directives: from the agent's own record, or else from its terminal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.directives.events import AgentSaid, EarlierWords, SessionResumed
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.home import private_directory
from relay.lifecycle import Describe, Identity, SessionBegan, SessionClosed
from relay.place import Place
from relay.recording import agent_log, store
from relay.redaction import Redactor
from relay.storage.journal import Journal
from relay.text import one_line

_log = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds for which lines are collected: a private key of several lines must be recognised as one."""

MOST = 1 << 18
"""Maximum number of characters logged at once; of a flood, the last ones are logged."""

LAST_LINE = 200
"""Characters shown of the last line."""


class AgentLog:
    """The log of one session. folder: Home.recordings; None: only the last line is kept."""

    def __init__(self, bus: EventBus, session: Identity, folder: Path | None, redactor: Redactor) -> None:
        self._bus = bus
        self._session = session
        self._folder = folder
        self._redactor = redactor
        self._journal: Journal | None = None
        self._logged: dict[str, Place] = {}  # the last place, by source
        self._waiting: list[tuple[str, Place]] = []
        self._writing: asyncio.TimerHandle | None = None
        self._last_line = ""

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if self._folder is None:
            return
        session = self._session
        try:
            path = self._path(self._folder)
            path.touch(0o600)
            self._logged = agent_log.last_places(path)
        except (OSError, RelayError) as error:  # the journal reports a full disk
            _log.warning("the agent's output is not logged: %s", error)
            return
        self._journal = Journal(path, session.id, session.name, redactor=self._redactor)

    def _path(self, folder: Path) -> Path:
        """Return the path of the log, which an earlier session of this agent may have started."""
        session = self._session
        if (path := store.log_of(folder, session.team, session.id)) is not None:
            return path
        private_directory(folder)
        private_directory(folder / session.team)
        return store.log_path_of(folder, session.team, session.name, session.id, time.time())

    @handles(SessionResumed, EarlierWords)
    def said_earlier(self, event: EarlierWords) -> None:
        for each in event.said:
            self.said(each)

    @handles(AgentSaid)
    def said(self, event: AgentSaid) -> None:
        for line, place in zip(event.lines, event.places, strict=True):
            logged = self._logged.get(place.source)
            if logged is not None and place <= logged:
                continue
            self._logged[place.source] = place
            self._waiting.append((line, place))
        if last := next((line for line in reversed(event.lines) if line.strip()), ""):
            self._last_line = last
        if self._waiting and self._writing is None:
            self._writing = self._bus.loop.call_later(PAUSE, self._write)

    def _write(self) -> None:
        self._writing = None
        waiting, self._waiting = self._waiting, []
        if self._journal is None:
            return
        for text, place, left_out in agent_log.entries(waiting, MOST):
            self._journal.write(agent_log.SAID, text=text, left_out=left_out, place=list(place))

    @operation("logs")
    async def logs(self, _: Request) -> Answer:
        """Write the lines collected so far, and return the path of the log."""
        self._write()
        if self._journal is None:
            raise RelayError(
                f"there is no log of {self._session.name}: the `record` setting is 'never', or the disk was "
                f"full. `relay peek {self._session.name}` shows its screen."
            )
        return {"path": str(self._journal.path)}

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if not question.brief:
            return None
        return {"last_line": one_line(self._redactor.redact(self._last_line[: 4 * LAST_LINE]), LAST_LINE)}

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._write()
