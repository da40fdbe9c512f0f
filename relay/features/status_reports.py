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
    """Keeps `records` up to date. reports: report the agent's state to the user's terminal."""

    def __init__(self, bus: EventBus, records: StatusRecords, shim: ShimLink, *, reports: bool) -> None:
        self._bus = bus
        self._records = records
        self._shim = shim
        self._reports = reports

    @handles(OutputRead)
    def read(self, event: OutputRead) -> None:
        if self._records.feed(event.data, time.monotonic()):
            self._bus.publish(EvidenceChanged())

    @handles(StateChanged)
    def report(self, event: StateChanged) -> None:
        if self._reports and self._records.root() is None:  # else the agent reports itself
            self._shim.report(status.report(event.after, event.kind))
