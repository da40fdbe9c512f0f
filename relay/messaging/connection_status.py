"""What is said of one client's connection: where it leads, why there is none, and trouble with the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable

from relay.errors import LedgerError
from relay.eventbus import Event
from relay.messaging.events import StatusReported

TROUBLE_OVER = 150.0
"""Seconds without it after which trouble with the ledger is over; whatever waits was tried again by then."""


class ConnectionStatus:
    """Reports the status of one client, the same line never twice in a row.

    connected: whether messages travel now.
    """

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self.connected = False
        self._publish = publish
        self._last = ""
        self._where = ""  # the line that says where the connection leads
        self._troubled = float("-inf")  # when the ledger was last in trouble; seconds, monotonic

    def report(self, text: str) -> None:
        """Report why there is no connection, or `text` otherwise."""
        if text != self._last:
            self._last = text
            self._publish(StatusReported(text))

    def connect(self, url: str) -> None:
        """Report that messages travel, over the broker at `url`."""
        self.connected = True
        self._where = f"connected to {url}"
        self.report(self._where)

    def disconnect(self) -> None:
        """Note that no message travels any more; what comes next says why."""
        self.connected = False

    def trouble(self, error: LedgerError) -> None:
        """Report that the ledger does not take what comes."""
        self._troubled = time.monotonic()
        self.report(str(error))

    def calm(self) -> None:
        """Report the connection again once there has been no trouble for TROUBLE_OVER."""
        if self.connected and time.monotonic() - self._troubled > TROUBLE_OVER:
            self.report(self._where)
