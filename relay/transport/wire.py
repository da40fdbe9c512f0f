"""The payloads on the bus: JSON objects with a version and a kind, whose fields are all checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from relay import names
from relay.errors import InvalidName

VERSION = 1
MAX_SHORT = 1024
"""Maximum bytes of UTF-8 in any text but the body of a message."""

Checks = Mapping[str, Callable[[Any], Any]]
"""The fields of a kind: functions that return the value, or raise ValueError, InvalidName or OverflowError.

A new field needs another version.
"""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_LATEST = 253402300799.0  # the last second of the year 9999; also longer than any sensible ttl


class ForeignPayload(Exception):
    """The payload is not relay's; the error says why, for the log."""


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    value = {"v": VERSION, "kind": kind, **fields}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode(payload: bytes, limit: int, kinds: Mapping[str, Checks]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the object in `payload`, and its fields. Raise ForeignPayload.

    limit: maximum bytes.
    """
    if len(payload) > limit:
        raise ForeignPayload(f"{len(payload)} bytes")
    try:
        value = json.loads(payload)
        version, kind = value.pop("v"), value.pop("kind")
        checks = kinds[kind]
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise ForeignPayload("not JSON of a known kind") from None
    if version != VERSION or not value.keys() <= checks.keys():
        raise ForeignPayload("another version, or unknown fields")
    fields = {}
    for name, check in checks.items():
        try:
            fields[name] = check(value.get(name))
        except (ValueError, InvalidName, OverflowError):
            raise ForeignPayload(f"{name} is invalid") from None
    return kind, fields


def is_id(text: str) -> bool:
    """Return True if `text` could be the id of a message."""
    return _ID.fullmatch(text) is not None


def text(value: Any, limit: int = MAX_SHORT) -> str:
    if isinstance(value, str) and 0 < len(value.encode()) <= limit:  # no lone surrogates
        return value
    raise ValueError(value)


def line(value: Any) -> str:
    if text(value).isprintable():
        return str(value)
    raise ValueError(value)


def message_id(value: Any) -> str:
    """Return an id, safe to use in commands and to show to the user."""
    if is_id(text(value)):
        return str(value)
    raise ValueError(value)


def name(value: Any) -> str:
    return names.validate(text(value))


def channel(value: Any) -> str:
    return names.validate(text(value), "channel")


def seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise ValueError(value)
    return float(value)


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError(value)
    return value


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(value)


def optional(check: Callable[[Any], Any], default: Any = None) -> Callable[[Any], Any]:
    return lambda value: default if value is None else check(value)
