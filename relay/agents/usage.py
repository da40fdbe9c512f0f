"""The tokens that an agent uses, and what they cost.

transcripts ──→ lines ──→ Charge, Charge, ...          (usage_reader, AgentKind.usage)
                              ▼
                           Usage: by model             (prices: what it costs)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from relay.agents.rate_limits import RateLimits
from relay.agents.transcript_lines import text_of
from relay.dataclass import asdict, dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of tokens, each of which is counted once.

    input:          read by the model, not from a cache. output: written by it, thinking included.
    cache_read:     read from the provider's cache. cache_write: written to it.
    cache_write_1h: those of cache_write that are kept for an hour, at a higher price.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def prompt(self) -> int:
        """The tokens of a request: what the model reads."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, name) + getattr(other, name) for name in _KINDS))

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, name) - getattr(other, name) for name in _KINDS))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in _KINDS)

    def public(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Tokens:
        """Return the numbers in `given`; anything but a number of tokens counts as 0."""
        return cls(*(number(given.get(name)) for name in _KINDS))


_KINDS = tuple(each.name for each in fields(Tokens))

_MOST = 1 << 50  # tokens: a larger number is not valid


def number(value: object) -> int:
    """Return `value` if it is a number of tokens, else 0."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST
    return int(value) if whole else 0  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Charge:
    """One answer of a model.

    id:   unique in the agent's run; a later record with the same id replaces a smaller one.
    cost: US dollars, as the agent reports; None if it does not.
    time: when it was written, unchanged (ISO 8601); "" if unknown.
    """

    id: str
    model: str
    tokens: Tokens
    cost: float | None = None
    time: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """The use of one model, or of several.

    cost:     US dollars, for the tokens whose price is known. unpriced: the number of other tokens.
    """

    tokens: Tokens = field(default_factory=Tokens)
    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.cost + other.cost, self.unpriced + other.unpriced)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.tokens - other.tokens, self.cost - other.cost, self.unpriced - other.unpriced)

    @property
    def known_cost(self) -> float | None:
        """The cost in US dollars, a lower bound if `unpriced`; None if the price of no token is known."""
        return None if self.unpriced and self.unpriced == self.tokens.total else round(self.cost, 6)

    def public(self) -> dict[str, Any]:
        return {"tokens": self.tokens.public(), "cost": self.known_cost, "unpriced_tokens": self.unpriced}


class UsageFormat(Protocol):
    """Reads the lines of one file. limits: the newest that it has reported; None: it reports none."""

    limits: RateLimits | None

    def read(self, line: bytes) -> list[Charge]:
        """Return the charges in a line, if any. One without a model may come again with one."""
        ...


class OneCharge:
    """A format in which a line has at most one charge."""

    limits: RateLimits | None = None

    def read(self, line: bytes) -> list[Charge]:
        charge = self.charge(line)
        return [] if charge is None else [charge]

    def charge(self, line: bytes) -> Charge | None:
        raise NotImplementedError


def charge_of(
    usage: Mapping[str, Any], keys: tuple[str, str, str, str, str], id: str, entry: Mapping[str, Any]
) -> Charge | None:
    """Return the charge of an answer whose prompt includes its cached part; None if it has none.

    keys: in `usage`, of the tokens of the prompt, of its cached part, of output, thoughts and both together.
    """
    prompt, cached, output, thoughts, total = (number(usage.get(key)) for key in keys)
    if not id or not (prompt or output or total):
        return None
    cached = min(cached, prompt)
    # Some servers count thoughts as output, some separately: the total shows which.
    written = max(total - prompt, output) if total else output + thoughts
    tokens = Tokens(prompt - cached, min(written, output + thoughts), cached)
    return Charge(id, text_of(usage.get("model")), tokens, time=text_of(entry.get("timestamp")))
