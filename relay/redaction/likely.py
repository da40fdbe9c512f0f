"""Tell the value of a secret from the names, types, numbers and examples behind `password =` in code."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(
    r"[<$%{\[(*&#]|@[A-Za-z{]"  # <token>, ${TOKEN}, %s, {{ token }}, [secret: ...], *pointer
    r"|(?:your|my|some|the|an?|new|old|fake|dummy|sample)[-_ ]"
    r"|(?:example|change_?me|placeholder|redacted|hidden|masked|null|none|undefined|(.)\1*)\Z"
    r"|(?:https?|file)://|[.~]{0,2}/|[A-Za-z]:\\",  # a location
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+\Z"  # settings.api_key2
    r"|[^(){}\[\]<>|]{0,512}[(){}\[\]<>|]"  # get_password(), dict[str, str]
    r"|[a-z][a-z0-9]{0,15}(?:_[a-z0-9]{1,15})+\Z"  # token_count_2
    r"|[A-Z][A-Z0-9]{0,15}(?:_[A-Z0-9]{1,15})+\Z"  # API_KEY_2
)
_EXAMPLE = re.compile(r"(?:user)?pass(?:word|wd)?\Z|secret\Z", re.IGNORECASE)
_PATH = re.compile(r"[\w.-]{1,80}(?:/[\w.-]{1,80})+\.\w{1,5}\Z")
_NUMBER = re.compile(r"[\d.,:_+/-]+[a-zA-Z%]{0,3}\Z")  # 1234, 12.5k, 10:30, 2026-01-01


def is_drawn(value: str) -> bool:
    """Return True if `value` may be random: it holds a digit, or both upper and lower case."""
    return any(map(str.isdigit, value)) or not (value.islower() or value.isupper())


def is_written_out(value: str) -> bool:
    """Return True unless `value` is a placeholder: `$PASS`, `<password>`, `PASSWORD`, `****`."""
    return _PLACEHOLDER.match(value) is None and _EXAMPLE.match(value) is None


def is_likely(value: str, least: int, *, quoted: bool = False) -> bool:
    """Return True if `value` looks like a secret of at least `least` characters: letters and something else.

    quoted: the value stood in quotes, so it is no name in code.
    """
    if len(value) < least or _PLACEHOLDER.match(value) or _NUMBER.match(value) or _PATH.match(value):
        return False
    if not quoted and _CODE.match(value):
        return False
    letters = sum(map(str.isalpha, value))
    return 0 < letters < sum(c not in "-_. " for c in value)
