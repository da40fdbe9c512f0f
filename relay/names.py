"""Names of agents, teams and channels: their syntax, their comparison, and suggestions for misspelt ones."""

from __future__ import annotations

import os

from relay.errors import InvalidName

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME = 64
"""Maximum characters in a name: enough for people, few enough for a topic level and a title."""

PERSON = "you"
"""The sender's name of the user at the keyboard; no agent can have it."""

DEFAULT_TEAM = "default"
"""The team if neither the command line nor RELAY_TEAM names one."""

_EDGE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_INNER = _EDGE | frozenset("_.-")
_RESERVED = frozenset(
    {"relay", PERSON, "user", "human", "system", "assistant", "all", "everyone", "spawn", "release"}
)
"""What relay, agents and models call themselves, the user and the team; no agent may pose as them."""


def validate(name: str, what: str = "name") -> str:
    """Return `name` if it is a valid `what`. Raise InvalidName, with advice, if it is not."""
    well_formed(name, what)
    if what == "name" and key(name) in _RESERVED:
        raise InvalidName(f"the name {name!r} is reserved; choose another, like 'Alice'.")
    return name


def well_formed(name: str, what: str = "name") -> str:
    """Return `name` if its syntax is that of a `what`. Raise InvalidName, with advice, if it is not."""
    shown = repr(name if len(name) <= 40 else name[:40] + "...")
    if len(name) > MAX_NAME:
        raise InvalidName(
            f"the {what} {shown} has {len(name)} characters; use at most {MAX_NAME}, like 'Alice'."
        )
    if not name or name[0] not in _EDGE or name[-1] not in _EDGE | {"_"} or not _INNER.issuperset(name):
        raise InvalidName(
            f"{shown} is not a valid {what}; use letters, digits, '-', '_' and '.', "
            "beginning with a letter or digit, like 'Alice' or 'api-worker'."
        )
    return name


def is_valid(name: str) -> bool:
    try:
        validate(name)
    except InvalidName:
        return False
    return True


def channel(text: str) -> str:
    """Return the channel that `text` names: `ops` for `ops` and `#ops`. Raise InvalidName, with advice."""
    return validate(text.removeprefix("#"), "channel")


def team(given: str | None) -> str:
    """Return the team: `given`, else RELAY_TEAM, else the default. Raise InvalidName."""
    return validate(given or os.environ.get("RELAY_TEAM") or DEFAULT_TEAM, "team")


def key(name: str) -> str:
    """Return the form in which names are compared: `Alice` and `alice` are one agent."""
    return name.casefold()


def same(a: str, b: str) -> bool:
    """Return True if `a` and `b` are the same name."""
    return key(a) == key(b)


def unique(given: Iterable[str]) -> list[str]:
    """Return each of the names once, as first given."""
    found: dict[str, str] = {}
    for name in given:
        found.setdefault(key(name), name)
    return list(found.values())


def did_you_mean(name: str, known: Iterable[str], form: str = "{}") -> str:
    """Return a question about the known name that `name` probably means, and a blank, or ""."""
    meant = suggest(name, known)
    return f"Did you mean {form.format(meant)}? " if meant else ""


def suggest(name: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """Return the known name that `name` probably means, or None. alike: the least similarity, from 0 to 1."""
    import difflib  # 8 ms, needed only after a mistake

    by_key = {key(k): k for k in known}
    close = difflib.get_close_matches(key(name), by_key, n=1, cutoff=alike)
    return by_key[close[0]] if close else None
