"""The registry: every name that was ever in a team."""

from __future__ import annotations

from relay import names
from relay.bus.database import Database


class Registry:
    def __init__(self, db: Database) -> None:
        self._db = db

    def register(self, team: str, name: str, seen: float | None = None) -> None:
        """Note that `name` was in `team` at `seen` (default: now); its latest spelling is kept."""
        now = self._db.now()
        with self._db.transaction() as db:
            db.execute(
                "INSERT INTO registry VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name, "
                "seen = max(seen, excluded.seen)",
                (names.key(team), names.key(name), name, now if seen is None else min(seen, now)),
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
