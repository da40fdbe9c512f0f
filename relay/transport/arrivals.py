"""Arrived payloads of one connection, processed round-robin by publisher.

    the broker ─→ a queue per publisher, of bounded size ─→ the first of each queue in turn

One publisher delays the others by at most one payload at a time.  A payload that does not fit in its queue is
dropped; if all queues together are too long, the last payload of the longest one is dropped.  A dropped
message gets no receipt, so its sender publishes it again; for the outcome in a dropped receipt, it asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from relay.dataclass import dataclass

LINE = 20 << 20
"""Maximum bytes queued for one publisher: more than a stream of the largest messages has in flight
(transit.WINDOW)."""

ALL = 128 << 20
"""Maximum bytes queued for all publishers together."""

_EACH = 1 << 10  # overhead of a payload, in bytes
_UNASKED = 16 << 10  # overhead at QoS 0, where the receiver's pace does not slow down a flood


@dataclass(frozen=True, slots=True)
class Inbound:
    """A payload that arrived.

    retained: the broker had kept it, so its age is unknown.
    qos:      0: the broker sends all that it has, without waiting for acknowledgements.
    """

    topic: str
    payload: bytes
    retained: bool
    qos: int = 1


class Arrivals:
    """The payloads of one connection. dropped: the number of those dropped for lack of space."""

    def __init__(self) -> None:
        self.dropped = 0
        self._lines: dict[str, deque[Inbound]] = {}  # by publisher; the first is next
        self._sizes: dict[str, int] = {}
        self._size = 0  # of all queues

    def add(self, inbound: Inbound) -> None:
        publisher = inbound.topic.rpartition("/")[2]  # as the broker enforces (relay.transport.topics)
        if self._sizes.get(publisher, 0) + _cost(inbound) > LINE:
            self.dropped += 1
            return
        self._lines.setdefault(publisher, deque()).append(inbound)
        self._resize(publisher, _cost(inbound))
        while self._size > ALL:
            longest = max(self._sizes, key=self._sizes.__getitem__)
            self._resize(longest, -_cost(self._lines[longest].pop()))
            self.dropped += 1

    def left(self) -> Iterator[Inbound]:
        """Yield the unprocessed payloads, those of each publisher in order; more may be added meanwhile."""
        while self._lines:
            publisher, line = next(iter(self._lines.items()))
            inbound = line.popleft()
            del self._lines[publisher]
            self._lines[publisher] = line  # behind the others
            self._resize(publisher, -_cost(inbound))
            yield inbound

    def _resize(self, publisher: str, change: int) -> None:
        self._size += change
        self._sizes[publisher] = self._sizes.get(publisher, 0) + change
        if not self._lines[publisher]:
            del self._lines[publisher], self._sizes[publisher]


def _cost(inbound: Inbound) -> int:
    return len(inbound.payload) + (_EACH if inbound.qos else _UNASKED)
