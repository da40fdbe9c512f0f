"""The columns that text takes on a terminal: measure a character or a text, and cut or pad a text to fit."""

from __future__ import annotations

import os
import re
import sys
from functools import cache, lru_cache

# Grapheme clusters: a flag; an emoji with a variation selector, skin tone or keycap, or joined to others.
_CLUSTER = (
    "[\U0001f1e6-\U0001f1ff]{1,2}"
    "|[#*0-9\u00a9-\U0001faff](?:[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff]|\u200d[\u2190-\U0001faff])+"
)

_ROW = 512  # characters of a text that is worth remembering


@cache  # 12 ms for both; most texts are ASCII
def cluster() -> re.Pattern[str]:
    """Return a regular expression for a grapheme cluster of several characters."""
    return re.compile(_CLUSTER)


@cache
def _piece() -> re.Pattern[str]:
    return re.compile(f"{_CLUSTER}|.", re.DOTALL)


@lru_cache(maxsize=8192)
def width(character: str) -> int:
    """Return how many columns a terminal uses for `character`: 0, 1 or 2 (UAX #11)."""
    if character < "\u0300":
        return 1
    import unicodedata  # 1 ms, needed only for characters beyond Latin

    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def columns_of(text: str) -> int:
    """Return how many columns `text` takes, as the virtual screen and most terminals count them."""
    if text.isascii():
        return len(text)
    return _measured(text) if len(text) <= _ROW else _measured.__wrapped__(text)


@lru_cache(maxsize=4096)
def _measured(text: str) -> int:
    """Do what `columns_of` does. The rows of a screen are measured again and again."""
    return sum(map(width, cluster().sub(_first, text)))


def cut(text: str, columns: int) -> str:
    """Return `text` cut to at most `columns` columns (1 or more); a cut text ends in an ellipsis."""
    if columns_of(text) <= columns:
        return text
    parts, left = [], columns - 1
    for piece in _piece().finditer(text):
        left -= columns_of(piece[0])
        if left < 0:
            break
        parts.append(piece[0])
    return "".join([*parts, "…"])


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """Return `text` cut or padded to exactly `columns` columns, flush left, or flush `right`."""
    text = cut(text, columns)
    blanks = " " * (columns - columns_of(text))
    return blanks + text if right else text + blanks


def _first(found: re.Match[str]) -> str:
    """Return a character that takes as many columns as `found`: 2 with variation selector 16 (UTS #51)."""
    first = found[0][0]
    return "👍" if "\ufe0f" in found[0] or "\U0001f1e6" <= first <= "\U0001f1ff" else first


def columns_of_terminal() -> int:
    """Return the columns of the user's terminal, 80 if unknown, as shutil does, which loads all archivers."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            columns = 0
    return columns or 80
