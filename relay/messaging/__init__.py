"""Messaging: messages between agents, kept in a ledger until each has come to its end."""
