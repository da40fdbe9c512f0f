"""Storage: SQLite, file locks, atomic files and the journal, for everything on disk."""
