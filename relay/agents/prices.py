"""Model prices: `config/prices.toml`, plus the user's own file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli

from relay import data
from relay.agents.usage import Spent, Tokens
from relay.dataclass import dataclass, fields, replace
from relay.errors import ConfigError
from relay.home import Home
from relay.names import did_you_mean

FILE = "prices.toml"

_MILLION = 1_000_000
_SUFFIX = re.compile(
    r"(-\d{8}|-\d{4}-\d{2}-\d{2}|-\d{2}-\d{4}|-latest|-preview|-v\d+(:\d+)?|\[\w+\]|:\w+|@[\w.-]+)+"
)
"""Suffixes of a model's name that say nothing about its price: a date, a provider's variant."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens of each kind (relay.agents.usage.Tokens).

    above, long: the price of a request that reads more than `above` tokens; 0, None: no other price.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float
    above: int = 0
    long: Price | None = None

    def cost(self, tokens: Tokens) -> float:
        """Return the cost of one request in US dollars."""
        if self.long is not None and tokens.prompt > self.above:
            return self.long.cost(tokens)
        hour = min(tokens.cache_write_1h, tokens.cache_write)
        parts = (
            tokens.input * self.input,
            tokens.output * self.output,
            tokens.cache_read * self.cache_read,
            (tokens.cache_write - hour) * self.cache_write,
            hour * self.cache_write_1h,
        )
        return sum(parts) / _MILLION


class Prices:
    """The known prices. date: of the shipped ones, as in 2026-11-20."""

    def __init__(self, date: str, models: Mapping[str, Price]) -> None:
        self.date = date
        self._models = dict(models)

    @classmethod
    def load(cls, home: Home) -> Prices:
        """Return the shipped prices with those of the user's file. Raise ConfigError for a mistake in it."""
        shipped, own = cls.shipped(), home.config / FILE
        if not own.exists():
            return shipped
        return cls(shipped.date, {**shipped._models, **cls._read(own)._models})

    @classmethod
    def shipped(cls) -> Prices:
        return cls._read(data.directory("config") / FILE)

    @classmethod
    def _read(cls, path: Path) -> Prices:
        try:
            given = tomli.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"it cannot be read: {error}. Fix it or remove it.", path) from None
        models = given.get("models", {})
        if unknown := set(given) - {"date", "models"}:
            raise ConfigError(f"unknown key {min(unknown)!r}. It has `date` and `models`.", path)
        if not isinstance(models, dict):
            raise ConfigError("`models` is not a table.", path)
        found = {_key(name): _price(name, entry, path) for name, entry in models.items()}
        return cls(str(given.get("date", "")), found)

    def of(self, model: str) -> Price | None:
        """Return the price of `model`, as an agent names it; None if it is unknown."""
        name = _key(model)
        if name in self._models:
            return self._models[name]
        known = [
            each for each in self._models if name.startswith(each) and _SUFFIX.fullmatch(name[len(each) :])
        ]
        return self._models[max(known, key=len)] if known else None

    def spent(self, model: str, tokens: Tokens, cost: float | None = None, *, summed: bool = False) -> Spent:
        """Return the use of a request of `tokens`.

        cost:   as reported by the agent, which counts unless it is 0.
        summed: the tokens are the sum of several requests, none of them long.
        """
        if cost:
            return Spent(tokens, cost)
        price = self.of(model)
        if price is None:
            return Spent(tokens, 0.0, tokens.total)
        return Spent(tokens, (replace(price, long=None) if summed else price).cost(tokens))


def _key(model: str) -> str:
    """Return the name as it is compared: without a provider such as `anthropic/` or `us.anthropic.`."""
    name = model.strip().casefold().rpartition("/")[2]
    name = re.sub(r"^([a-z]{2,6}\.)?(anthropic|openai|google|amazon)\.", "", name)
    return name.replace(".", "-")


_PRICES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
_NAMES = {each.name for each in fields(Price)} - {"above"}


def _price(model: str, entry: Any, path: Path, *, long: bool = False) -> Price:
    """Return the price in `entry`. Raise ConfigError for a mistake in it."""
    if not isinstance(entry, dict):
        raise ConfigError(f"the price of {model!r} is not a table.", path)
    known = {*_PRICES, "above"} if long else _NAMES
    for key, value in entry.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"unknown key {key!r} of {model!r}. {hint}".rstrip(), path)
        if key != "long" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
            raise ConfigError(f"{key!r} of {model!r} must be a number, 0 or more.", path)
    if missing := [key for key in ("input", "output") if key not in entry]:
        raise ConfigError(f"{model!r} has no {missing[0]!r}: dollars for a million tokens.", path)
    numbers = {key: float(entry[key]) for key in _PRICES if key in entry}
    read = numbers.get("cache_read", numbers["input"])
    write = numbers.get("cache_write", numbers["input"])
    price = Price(numbers["input"], numbers["output"], read, write, numbers.get("cache_write_1h", write))
    if long or "long" not in entry:
        return price
    more = _price(model, entry["long"], path, long=True)
    return replace(price, above=int(entry["long"].get("above", 0)), long=more)
