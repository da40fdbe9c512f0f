"""The runaway guard: agents that answer each other for ever, broadcast storms, a directive in a loop.

What looks like a part of one is committed and held, not sent: the person lets it go (`relay release`) or
drops it.  Three signs, each with a limit of its own: how many messages one agent sends another in a minute,
how many led to this one since a person last spoke, and how many broadcasts an agent makes in a minute.  While
a message of a pair is held, those behind it are held too, so that the order stays.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from relay.settings import Settings

WINDOW = 60.0
"""Seconds over which messages and broadcasts are counted."""

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one agent may send before the person is asked; 0: no limit.

    rate:       messages from one agent to another in WINDOW.
    depth:      messages that led to one another since a person last spoke.
    broadcasts: broadcasts of one agent in WINDOW.
    queue:      messages of one sender, or for one receiver, that wait; more are refused.
    ttl:        seconds after which a message that has not arrived is given up.
    """

    rate: int = 200
    depth: int = 50
    broadcasts: int = 30
    queue: int = 20_000
    ttl: float = WEEK

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits that relay.toml sets."""
        return cls(
            rate=settings.runaway_rate,
            depth=settings.runaway_depth,
            broadcasts=settings.runaway_broadcasts,
            queue=settings.queue_limit,
            ttl=settings.expire_seconds,
        )


class Guard:
    """Judges what one sender sends at one time, within the transaction that commits it. Names are keys.

    depth:  how many messages led to it since a person last spoke.
    fanout: it is one broadcast to many.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        team: str,
        sender: str,
        now: float,
        limits: Limits,
        *,
        depth: int,
        fanout: bool,
    ) -> None:
        self._db = db
        self._sender = (team, sender)
        self._since = now - WINDOW
        self._limits = limits
        self._depth = depth
        # Where each broadcast of late ends in the outbox.
        self._broadcasts: list[int] = []
        if fanout and limits.broadcasts:
            self._broadcasts = [
                place
                for (place,) in db.execute(
                    "SELECT max(place) FROM outbox WHERE team = ? AND sender_key = ? AND accepted > ? "
                    "AND fanout IS NOT NULL GROUP BY fanout",
                    (*self._sender, self._since),
                )
            ]

    def suspicion(self, to: str) -> str | None:
        """Why the message to `to` is to be held, for the person; None if it may go."""
        db, limits, pair = self._db, self._limits, (*self._sender, to)
        if db.execute(
            "SELECT 1 FROM outbox WHERE team = ? AND sender_key = ? AND to_key = ? AND state = 'held' "
            "LIMIT 1",
            pair,
        ).fetchone():
            return "earlier ones of this pair are held"
        if limits.depth and self._depth > limits.depth:
            return f"{self._depth} messages led to it since a person last spoke"
        (found,) = db.execute(
            "SELECT max(place) FROM releases WHERE team = ? AND sender_key = ? AND to_key = ?", pair
        ).fetchone()
        released = found or 0
        if limits.rate:
            (lately,) = db.execute(
                "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE team = ? AND sender_key = ? AND to_key = ? "
                "AND accepted > ? AND place > ? LIMIT ?)",
                (*pair, self._since, released, limits.rate),
            ).fetchone()
            if lately == limits.rate:
                return f"{limits.rate} messages of this pair within {WINDOW:.0f} s"
        if limits.broadcasts and sum(place > released for place in self._broadcasts) >= limits.broadcasts:
            return f"{limits.broadcasts} broadcasts of this sender within {WINDOW:.0f} s"
        return None


def note_release(db: sqlite3.Connection, team: str, sender: str, to: str) -> None:
    """The person lets this pair go on: what it has sent so far counts no more. Names are keys."""
    db.execute(
        "INSERT OR REPLACE INTO releases "
        "SELECT ?1, ?2, ?3, max(place) FROM outbox WHERE team = ?1 AND sender_key = ?2 AND to_key = ?3",
        (team, sender, to),
    )
