"""A feature's notes about an agent, which outlive its session and the agent itself.

    state/supervision/TEAM/NAME.SECTION.json

A notebook on a session's bus removes its file when the agent has ended for good. Notes left when a machine
went down count only for agents of a fleet, which restart automatically.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from relay.eventbus import answers
from relay.home import Home
from relay.lifecycle import SessionClosed
from relay.names import key
from relay.storage.files import write_private

_log = logging.getLogger(__name__)


class Notebook:
    """The notes of one feature of one agent. Only one session at a time writes them.

    run: the run of `relay wrap` whose notes count; "": any run.
    """

    def __init__(self, home: Home, team: str, name: str, section: str, *, run: str) -> None:
        self._path = home.state / "supervision" / key(team) / f"{key(name)}.{section}.json"
        self._run = run
        self._last: dict[str, Any] | None = None
        self._ended = False

    def read(self) -> dict[str, Any]:
        """Return the notes; {} if there are none, or they cannot be read."""
        try:
            values = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(values, dict) or (self._run and values.get("run") != self._run):
            return {}
        values.pop("run", None)
        return values

    def write(self, values: Mapping[str, Any]) -> None:
        """Replace the notes. If writing fails, log that; the agent continues without them."""
        notes = {"run": self._run, **values}
        if notes == self._last or self._ended:
            return
        self._last = notes
        try:
            write_private(self._path, json.dumps(notes, ensure_ascii=False) + "\n")
        except OSError as error:
            _log.warning("cannot record the state of supervision in %s: %s", self._path, error)

    @answers(SessionClosed)
    async def close(self, event: SessionClosed, _: object) -> None:
        self._ended = event.ended
        if event.ended:
            self.remove()

    def remove(self) -> None:
        self._last = None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._path, error)
