"""Reads a table of a backend's configuration: camelCase or snake_case, flat or with a nested `config`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from relay import names
from relay.errors import ConfigError
from relay.memory.config import snake

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def camel(key: str) -> str:
    """Return `key` in camelCase, as shown to the user."""
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)


def options(
    table: object,
    where: str,
    known: Mapping[str, type],
    aliases: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the options of `table` by their snake_case names; those that are None are left out.

    where:   what the table is called in messages, such as `embedder`.
    known:   the options and their types; an int is not accepted as a bool, nor a bool as an int.
    aliases: other names of options.
    refused: options that mem0 has and relay does not accept, with the reason.
    Raise ConfigError for an unknown option, a wrong type, and two values for one option.
    """
    found: dict[str, Any] = {}
    for key, value in _flat(table, where):
        name = snake(key)
        name = (aliases or {}).get(name, name)
        if name in (refused or {}):
            raise ConfigError(f"{where} has {key!r}: {(refused or {})[name]}")
        if name not in known:
            raise ConfigError(
                f"{where} has no option {key!r}. "
                f"{names.did_you_mean(name, known, '{!r}')}Options: {', '.join(map(camel, known))}."
            )
        if value is None:
            continue
        if not _is(value, known[name]):
            raise ConfigError(
                f"{key!r} of {where} is {value!r}, and must be {_A[known[name]]}. Correct the value."
            )
        if name in found and found[name] != value:
            raise ConfigError(f"{where} has two values for {camel(name)!r}. Keep one.")
        found[name] = value
    return found


_A: Mapping[type, str] = {str: "a string", int: "a whole number", bool: "true or false", dict: "a table"}


def _is(value: object, kind: type) -> bool:
    if kind is dict:
        return isinstance(value, Mapping)
    if kind is str:
        return isinstance(value, str) and bool(value.strip())
    return type(value) is kind


def _flat(table: object, where: str) -> list[tuple[str, Any]]:
    """Return the pairs of `table`, including those of a nested `config`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {table!r}, and must be a table like {{'provider': ...}}.")
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        if not isinstance(key, str):
            raise ConfigError(f"{where} has an option {key!r}. Option names must be strings.")
        if snake(key) == "config" and value is not None:
            pairs += _flat(value, f"config of {where}")
        elif snake(key) != "config":
            pairs.append((key, value))
    return pairs


def positive(number: int | None, where: str) -> int | None:
    """Return `number`. Raise ConfigError if it is less than 1."""
    if number is not None and number < 1:
        raise ConfigError(f"{where} is {number}, and must be at least 1.")
    return number


def without_secrets(url: str) -> str:
    """Return `url` without user, password and query, which may be secrets."""
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    return (scheme[0] if scheme else "") + rest.partition("?")[0].rpartition("@")[2]
