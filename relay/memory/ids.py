"""Ids of memories: short enough to type, with no two characters that look alike."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable

# No vowels, so that no id is a word; no 0, 1 or l, which are taken for o, i and one another.
ALPHABET = "23456789bcdfghjkmnpqrstvwxyz"

SHORTEST = 4
"""Characters in an id of a store that is not crowded: 28**4 is some 600,000 ids."""

_TRIES = 4  # at one length; when all are taken the store is crowded, and the next length is tried


def unused(taken: Callable[[str], bool], choose: Callable[[str], str] = secrets.choice) -> str:
    """A new id that is not `taken`; `choose` picks one character of a string."""
    for length in itertools.count(SHORTEST):
        for _ in range(_TRIES):
            candidate = "".join(choose(ALPHABET) for _ in range(length))
            if not taken(candidate):
                return candidate
    raise AssertionError("itertools.count never ends")
