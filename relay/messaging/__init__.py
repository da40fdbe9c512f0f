"""Messaging: messages between agents, kept in a ledger until each reaches a final state."""
