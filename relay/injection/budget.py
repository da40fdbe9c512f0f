"""The budget of one turn: how much hooks may inject before the person is warned. Nothing is cut for it."""

from __future__ import annotations

from collections.abc import Callable

CHARACTERS = 4
"""Characters of a token, roughly: no tokenizer of an agent's model is known here."""

_SETTING = "injection_budget in relay.toml"


def tokens(text: str) -> int:
    """About how many tokens `text` has, rounded up."""
    return -(-len(text) // CHARACTERS)


class Budget:
    """limit: tokens of one turn, 0 for any number. warn: told once in a turn that there are more."""

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
        """A prompt has been submitted that begins a turn, and does not only go on with one."""
        self.spent = 0
        self._warned = False

    def spend(self, text: str, source: str) -> None:
        """Count `text`, which the hook `source` has injected."""
        self.spent += tokens(text)
        if self.exceeded and not self._warned:
            self._warned = True
            self._warn(
                f"hooks have injected about {self.spent:,} tokens in this turn, more than {self._limit:,} "
                f"({_SETTING}); the last was {source}. The agent gets them all the same."
            )
