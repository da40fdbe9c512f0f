"""The tables of the embedded backend: the memories, and their words in an FTS5 index.

The index has no copy of the texts (https://sqlite.org/fts5.html section 4.4.3); triggers keep it in sync.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay.storage.sqlite import Schema

_DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = """
    January February March April May June July August September October November December
"""


def _chosen(format: str, names: Iterable[str], first: int) -> str:
    """Return SQL for the name that strftime's number `format` selects; `first` is the first name's number."""
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(names, first))
    return f"CASE CAST({_local(format)} AS INTEGER) {cases} END"


def _local(format: str) -> str:
    return f"strftime('{format}', {{time}}, 'unixepoch', 'localtime')"


# The day on which a memory was saved, in local time: Wednesday 4 March 2026 2026-03-04.
DAY = " || ' ' || ".join(
    (
        _chosen("%w", _DAY_NAMES, 0),
        f"CAST({_local('%d')} AS INTEGER)",
        _chosen("%m", _MONTHS.split(), 1),
        _local("%Y %Y-%m-%d"),
    )
)
DAY = f"coalesce({DAY}, '')"  # SQLite knows the years 0 to 9999

SCHEMA = Schema(
    3,
    (
        """
        CREATE TABLE memory (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            text TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_key TEXT NOT NULL,
            team TEXT NOT NULL,
            team_key TEXT NOT NULL,
            shared INTEGER NOT NULL,
            time REAL NOT NULL,
            metadata TEXT NOT NULL,
            day TEXT NOT NULL
        ) STRICT
        """,
        """
        CREATE VIRTUAL TABLE memory_text USING fts5 (
            text, day, content = 'memory', content_rowid = 'number',
            tokenize = 'porter unicode61 remove_diacritics 2'
        )
        """,
        """
        CREATE TRIGGER memory_added AFTER INSERT ON memory BEGIN
            INSERT INTO memory_text (rowid, text, day) VALUES (new.number, new.text, new.day);
        END
        """,
        """
        CREATE TRIGGER memory_removed AFTER DELETE ON memory BEGIN
            INSERT INTO memory_text (memory_text, rowid, text, day)
            VALUES ('delete', old.number, old.text, old.day);
        END
        """,
        "CREATE INDEX memory_by_owner ON memory (team_key, agent_key, shared)",
        "CREATE INDEX memory_by_text ON memory (team_key, substr(text, 1, 64))",
    ),
)
