"""The runaway guard: agents that answer each other for ever, broadcast storms, a directive in a loop.

What looks like a part of one is committed and held, not sent: the person lets it go (`relay release`) or
drops it.  Three signs, each with a limit of its own: how many messages one agent sends another in a minute,
how many led to this one since a person last spoke, and how many broadcasts an agent makes in a minute.  While
a message of a pair is held, those behind it are held too, so that the order stays.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

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


def suspicion(
    db: sqlite3.Connection,
    team: str,
    sender: str,
    to: str,
    *,
    depth: int,
    fanout: str | None,
    now: float,
    limits: Limits,
) -> str | None:
    """Why a message is to be held, for the person; None if it may go. Names are keys.

    fanout: the broadcast of which it is a part. Called within the transaction that commits the message,
    before it is in.
    """
    pair = (team, sender, to)
    if db.execute(
        "SELECT 1 FROM outbox WHERE team = ? AND sender_key = ? AND to_key = ? AND state = 'held' LIMIT 1",
        pair,
    ).fetchone():
        return "earlier ones of this pair are held"
    if limits.depth and depth > limits.depth:
        return f"{depth} messages led to it since a person last spoke"
    (released,) = db.execute(
        "SELECT max(place) FROM releases WHERE team = ? AND sender_key = ? AND to_key = ?", pair
    ).fetchone()
    recent = (team, sender, now - WINDOW, released or 0)
    if limits.rate and _count(db, "1", "AND to_key = ?", (*recent, to), limits.rate) == limits.rate:
        return f"{limits.rate} messages of this pair within {WINDOW:.0f} s"
    most = limits.broadcasts
    if fanout and most:
        others = "AND fanout <> ?"
        if _count(db, "DISTINCT fanout", others, (*recent, fanout), most) == most:
            return f"{most} broadcasts of this sender within {WINDOW:.0f} s"
    return None


def note_release(db: sqlite3.Connection, team: str, sender: str, to: str) -> None:
    """The person lets this pair go on: what it has sent so far counts no more. Names are keys."""
    db.execute(
        "INSERT OR REPLACE INTO releases "
        "SELECT ?1, ?2, ?3, max(place) FROM outbox WHERE team = ?1 AND sender_key = ?2 AND to_key = ?3",
        (team, sender, to),
    )


def _count(db: sqlite3.Connection, what: str, where: str, values: tuple[object, ...], most: int) -> int:
    """How much there is since a time and a place, counting no further than `most`."""
    (found,) = db.execute(
        f"SELECT count(*) FROM (SELECT {what} FROM outbox WHERE team = ? AND sender_key = ? AND accepted > ? "
        f"AND place > ? {where} LIMIT {most})",
        values,
    ).fetchone()
    return int(found)
