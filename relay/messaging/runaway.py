"""The runaway guard: agents that answer each other endlessly, broadcast storms, a directive in a loop.

A message that looks like part of a runaway is committed and held, not sent: the user releases it (`relay
release`) or drops it.  There are three limits: how many messages one agent sends another in a minute, how
many led to this one since the user's last input, and how many broadcasts an agent makes in a minute.  While
a message of a pair is held, later ones are held too, to keep the order.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from relay.settings import Settings

WINDOW = 60.0
"""Seconds over which messages and broadcasts are counted."""

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for one agent, beyond which messages are held for the user; 0: no limit.

    rate:       messages from one agent to another in WINDOW.
    depth:      messages that led to one another since the user's last input.
    broadcasts: broadcasts of one agent in WINDOW.
    queue:      waiting messages of one sender, or for one receiver; more are refused.
    ttl:        seconds after which a message that has not arrived expires.
    """

    rate: int = 200
    depth: int = 50
    broadcasts: int = 30
    queue: int = 20_000
    ttl: float = WEEK

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits that relay.toml sets."""
        runaway = (settings.runaway_rate, settings.runaway_depth, settings.runaway_broadcasts)
        return cls(*runaway, queue=settings.queue_limit, ttl=settings.expire_seconds)


@dataclass(eq=False, slots=True)
class Guard:
    """Checks one send of `sender` (keys: team, name), within the transaction that commits it.

    depth:  how many messages led to it since the user's last input.
    fanout: it is one broadcast to many.
    """

    db: sqlite3.Connection
    sender: tuple[str, ...]
    now: float
    limits: Limits
    depth: int
    fanout: bool
    _broadcasts: list[int] = field(default_factory=list, init=False)  # the last place of each recent one

    def __post_init__(self) -> None:
        if self.fanout and self.limits.broadcasts:
            rows = self.db.execute(
                "SELECT max(place) FROM messages WHERE team = ? AND sender_key = ? AND accepted > ? "
                "AND fanout IS NOT NULL GROUP BY fanout",
                (*self.sender, self.now - WINDOW),
            )
            self._broadcasts = [place for (place,) in rows]

    def suspicion(self, to: str) -> str | None:
        """Return why the message to `to` (a key) must be held, for the user; None if it may be sent."""
        limits = self.limits
        if self._found("messages WHERE {} AND state = 'held' LIMIT 1", to):
            return "earlier messages of this pair are held"
        if limits.depth and self.depth > limits.depth:
            return f"{self.depth} messages led to it since the user's last input"
        released = max(self._found("releases WHERE {}", to), default=0)
        if limits.rate:
            lately = self._found(
                "messages WHERE {} AND accepted > 0 AND accepted > ? AND place > ? LIMIT ?",
                *(to, self.now - WINDOW, released, limits.rate),
            )
            if len(lately) == limits.rate:
                return f"{limits.rate} messages of this pair within {WINDOW:.0f} s"
        if limits.broadcasts and sum(place > released for place in self._broadcasts) >= limits.broadcasts:
            return f"{limits.broadcasts} broadcasts of this sender within {WINDOW:.0f} s"
        return None

    def _found(self, where: str, to: str, *more: object) -> list[int]:
        """Return the places of rows of the pair."""
        query = "SELECT place FROM " + where.format("team = ? AND sender_key = ? AND to_key = ?")
        return [place for (place,) in self.db.execute(query, (*self.sender, to, *more))]
