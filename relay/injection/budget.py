"""The budget of one turn: how much hooks may inject before the user is warned. Nothing is cut for it."""

from __future__ import annotations

CHARACTERS = 4
"""Characters of a token, roughly: no tokenizer of an agent's model is known here."""


def tokens(text: str) -> int:
    """Return about how many tokens `text` has, rounded up."""
    return -(-len(text) // CHARACTERS)


class Budget:
    """Counts what hooks inject in a turn. limit: tokens of one turn, 0 for any number; spent: in this one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.spent = 0
        self._warned = False

    @property
    def exceeded(self) -> bool:
        """True once more than the limit was injected in this turn."""
        return 0 < self._limit < self.spent

    def new_turn(self) -> None:
        """Start again: a prompt was submitted that begins a turn, and does not only continue with one."""
        self.spent = 0
        self._warned = False

    def spend(self, text: str, source: str) -> str | None:
        """Count `text`, which the hook `source` has injected; return a warning, once in a turn."""
        self.spent += tokens(text)
        if not self.exceeded or self._warned:
            return None
        self._warned = True
        return (
            f"hooks have injected about {self.spent:,} tokens in this turn, more than {self._limit:,} "
            f"(injection_budget in relay.toml); the last was {source}. The agent still receives them."
        )
