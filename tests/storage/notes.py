"""A small database for the tests of relay.storage.sqlite."""

from __future__ import annotations

from pathlib import Path

from relay.errors import RelayError
from relay.storage.sqlite import Database, Schema


class NotesError(RelayError):
    pass


class Notes(Database):
    schema = Schema(1, ["CREATE TABLE note (text TEXT NOT NULL)"])
    busy_seconds = 10.0

    @staticmethod
    def explain(path: Path, error: Exception) -> RelayError:
        return NotesError(f"{path.name}: {error}. Fix it.")

    def add(self, text: str) -> str:
        with self.transaction() as db:
            db.execute("INSERT INTO note VALUES (?)", (text,))
        return text

    def all(self) -> list[str]:
        with self.reading() as db:
            return [text for (text,) in db.execute("SELECT text FROM note ORDER BY rowid")]
