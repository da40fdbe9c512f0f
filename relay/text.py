"""Untrusted text, made safe to show.

An agent's words, a peer's message or a file's content may hold escape sequences that would act on the
reader's terminal, or bidirectional controls that would reorder the text.  Apply `visible` to what is shown,
never to what is stored.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # part of the shim, so it does not import typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# C0 except tab and newline, DEL, C1 (ECMA-48 section 5), the bidirectional controls of UAX #9, the
# invisible line separators, and lone surrogates (bytes that were not UTF-8).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _show(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xDC80 <= code <= 0xDCFF:
        return f"<{code - 0xDC00:02x}>"  # a byte that was not UTF-8 (PEP 383)
    return f"<U+{code:04X}>"


def visible(text: str) -> str:
    """Return `text` with every control and bidirectional character replaced by a visible form."""
    return _UNSAFE.sub(_show, text)


def one_line(text: str, limit: int | None = 80) -> str:
    """Return `text` as one visible line of at most `limit` characters (None: any); a cut one ends in "…"."""
    line = visible(" ".join(text.split()))
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def printable_json(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON in printable ASCII, without escape sequences that a terminal would act on."""
    return json.dumps(value, indent=indent).replace("\x7f", r"\u007f")  # JSON itself does not escape DEL


def count(n: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(words: Sequence[str], most: int = 10) -> str:
    """Return `Alice, Bob, Cy`, or the first `most` and how many more there are."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {count(len(words) - most, 'other')}"


def parse_json(text: str) -> Any:
    """Return the JSON value in `text`; a lone surrogate, which no file can hold, becomes "?".

    Raise ValueError if it is not JSON, RecursionError if it is nested too deeply.
    """
    value = json.loads(text)
    if "\\ud" in text.lower():
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
