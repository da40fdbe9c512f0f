"""The registry: every name that was ever in a team."""

from __future__ import annotations

from relay import names
from relay.messaging.ledger_database import LedgerDatabase

RECENT = 60.0
"""Seconds: the ledger need not know more exactly when somebody was there."""


class NameRegistry:
    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    def register(self, team: str, name: str, seen: float | None = None) -> None:
        """Note that `name` was in `team` at `seen` (default: now); its latest spelling is kept."""
        now = self._db.now()
        row = (names.key(team), names.key(name), name, now if seen is None else min(seen, now))
        with self._db.reading() as db:  # all sessions of a home hear of everybody, and one of them writes
            if db.execute(
                "SELECT 1 FROM registry WHERE team = ? AND key = ? AND name = ? AND seen >= ?",
                (*row[:3], row[3] - RECENT),
            ).fetchone():
                return
        with self._db.transaction() as db:
            db.execute(
                "INSERT INTO registry VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name, "
                "seen = max(seen, excluded.seen)",
                row,
            )

    def known(self, team: str, within: float | None = None) -> list[str]:
        """The names ever seen in `team`, or those seen `within` so many seconds, sorted."""
        since = float("-inf") if within is None else self._db.now() - within
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT name FROM registry WHERE team = ? AND seen >= ? ORDER BY key",
                (names.key(team), since),
            ).fetchall()
        return [name for (name,) in rows]
