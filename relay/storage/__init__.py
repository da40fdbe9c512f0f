"""Storage: SQLite, file locks, atomic files and the journal, for everything that is kept on disk."""
