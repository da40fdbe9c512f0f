"""The budget of one turn: how much hooks may inject before relay warns the user. Nothing is cut."""

from __future__ import annotations

CHARACTERS = 4
"""Approximate characters per token: relay does not know the tokenizer of the agent's model."""


def tokens(text: str) -> int:
    """Return the approximate number of tokens in `text`, rounded up."""
    return -(-len(text) // CHARACTERS)


class Budget:
    """Counts what hooks inject in a turn. limit: tokens per turn, 0 for no limit; spent: in this turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.spent = 0
        self._warned = False

    @property
    def exceeded(self) -> bool:
        """True once hooks have injected more than the limit in this turn."""
        return 0 < self._limit < self.spent

    def new_turn(self) -> None:
        """Reset: a submitted prompt has begun a turn, not just continued one."""
        self.spent = 0
        self._warned = False

    def spend(self, text: str, source: str) -> str | None:
        """Count `text`, which the hook `source` has injected; return a warning, once per turn."""
        self.spent += tokens(text)
        if not self.exceeded or self._warned:
            return None
        self._warned = True
        return (
            f"hooks have injected about {self.spent:,} tokens in this turn, more than {self._limit:,} "
            f"(injection_budget in relay.toml); the last was {source}. The agent still receives them."
        )
