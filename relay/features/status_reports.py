"""Reads the agent's status reports (OSC 7501), and writes them for an agent that writes none."""

from __future__ import annotations

import time

from relay.eventbus import EventBus, handles
from relay.state.events import EvidenceChanged, StateChanged
from relay.terminal import status
from relay.terminal.events import OutputRead
from relay.terminal.shim_link import ShimLink
from relay.terminal.status import StatusRecords


class StatusReports:
    """Keeps `statuses` up to date. known: relay knows the agent, and reports its state to the terminal."""

    def __init__(self, bus: EventBus, statuses: StatusRecords, shim: ShimLink, *, known: bool) -> None:
        self._bus = bus
        self._statuses = statuses
        self._shim = shim
        self._known = known

    @handles(OutputRead)
    def read(self, event: OutputRead) -> None:
        if self._statuses.feed(event.data, time.monotonic()):
            self._bus.publish(EvidenceChanged())

    @handles(StateChanged)
    def report(self, event: StateChanged) -> None:
        if self._known and self._statuses.root() is None:  # else the agent reports itself
            self._shim.report(status.report(event.after, event.kind))
