"""Memory: what agents ask to be remembered."""

from relay.memory.store import MAX_TEXT, Memory, MemoryStore

__all__ = ["MAX_TEXT", "Memory", "MemoryStore"]
