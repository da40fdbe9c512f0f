"""The number of messages that the user has not read, for commands that should not load the whole ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from relay import names

UNREAD = (
    f"state = 'stored' AND NOT here AND to_key = '{names.key(names.PERSON)}' AND team = ifnull(?1, team) "
    "AND NOT hidden"
)
"""The condition on a row of the ledger; its value is the key of a team, or None for all teams."""


def number_of_unread(ledger: Path, team: str | None = None) -> int:
    """Return how many messages to the user are unread; 0 if the ledger does not exist or cannot be read."""
    try:
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as db:
            query = f"SELECT count(*) FROM messages WHERE {UNREAD}"
            (number,) = db.execute(query, [team and names.key(team)]).fetchone()
            return int(number)
    except sqlite3.Error:
        return 0
