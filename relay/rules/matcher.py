"""Which events a rule is for."""

from __future__ import annotations

from typing import Protocol

from relay.rules.event import RuleEvent


class Matcher(Protocol):
    """A compiled matcher; `str()` of it is what stands in the file."""

    def matches(self, event: RuleEvent) -> bool: ...


class Everything:
    """Matches every event: no matcher, null, "", "*" or {}."""

    def matches(self, event: RuleEvent) -> bool:
        return True

    def __str__(self) -> str:
        return "*"


EVERYTHING = Everything()
