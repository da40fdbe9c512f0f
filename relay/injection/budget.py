"""The budget of one turn: the amount that hooks may inject before the user is warned. It cuts nothing."""

from __future__ import annotations

from collections.abc import Callable

CHARACTERS = 4
"""Characters of a token, roughly: the tokenizer of an agent's model is unknown."""

_SETTING = "injection_budget in relay.toml"


def tokens(text: str) -> int:
    """Return the approximate number of tokens in `text`, rounded up."""
    return -(-len(text) // CHARACTERS)


class Budget:
    """The tokens of one turn. limit: 0 for any number. warn: called once in a turn that exceeds it."""

    def __init__(self, limit: int, warn: Callable[[str], None]) -> None:
        self.spent = 0
        """Tokens of this turn."""
        self._limit = limit
        self._warn = warn
        self._warned = False

    @property
    def exceeded(self) -> bool:
        return 0 < self._limit < self.spent

    def new_turn(self) -> None:
        """Begin a turn: a prompt was submitted that does not only continue one."""
        self.spent = 0
        self._warned = False

    def spend(self, text: str, source: str) -> None:
        """Count `text`, which the hook `source` injected."""
        self.spent += tokens(text)
        if self.exceeded and not self._warned:
            self._warned = True
            self._warn(
                f"hooks have injected about {self.spent:,} tokens in this turn, more than {self._limit:,} "
                f"({_SETTING}); the last was {source}. The agent gets them all the same."
            )
