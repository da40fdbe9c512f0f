"""Redaction of secrets: keys, tokens and passwords are removed from all text that relay writes to disk.

    text → anchors: may there be one at all? → formats, segment by segment → Secret(start, end, kind)
                                                                                  ↓
                            redact: `[secret: github-token]`      relay.recording.stream_redactor: as many `*`

The formats are data (relay.redaction.detectors).  The text may be hostile: no expression looks further than a
segment.  Throughput is 5 to 50 MB/s for logs, and 1 MB/s for the worst known lines (megabytes of
`secret_access_`).
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

from relay.redaction.detectors import anchors_in, is_likely, private_keys, scan

SEGMENT, OVERLAP = 4096, 512
"""Characters in one segment, and how many of them the next segment repeats.

The interpreter's lock is held for at most one expression over one segment.
"""

MIN_KNOWN = 8
"""Minimum characters of a value that is searched for by itself; shorter ones would match ordinary words."""

MAX_KNOWN = 384
"""Maximum values remembered besides those given; the oldest is forgotten first."""

_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PWD|CREDENTIALS?)(?:_|\Z)", re.IGNORECASE)


class Secret(NamedTuple):
    """One secret in a text: text[start:end]. kind: its format, such as "github-token"."""

    start: int
    end: int
    kind: str


class Redactor:
    """Finds secrets by their formats, and values that were given or found before.

    known: values that are secret whatever they look like; they are never forgotten.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._given = frozenset(value for value in known if len(value) >= MIN_KNOWN)
        self._known = dict.fromkeys(self._given, "known")  # and what was learned
        self._index()

    def learn(self, value: str, kind: str) -> bool:
        """Treat `value` and text that begins like it as secret from now on. Return False if it was known."""
        if len(value) < MIN_KNOWN or value in self._known:
            return False
        for known in list(self._known):
            if known not in self._given and value.startswith(known):
                del self._known[known]  # it was seen before it was complete
        learned = [known for known in self._known if known not in self._given]
        if len(learned) >= MAX_KNOWN:
            del self._known[learned[0]]
        self._known[value] = kind
        self._index()
        return True

    def suspects(self, text: str) -> bool:
        """Return False if `text`, plain or as JSON, certainly holds no secret; faster than `find`."""
        return bool(self._known) or bool(anchors_in(text))

    def find(self, text: str) -> list[Secret]:
        """Return the secrets in `text`, in order, none overlapping another."""
        found = [*_formats(text), *self._again(text)]
        return _merged(found) if found else found

    def begins(self, text: str) -> bool:
        place = bisect(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)

    def redact(self, text: str) -> str:
        """Return `text` with a mark in place of each secret in it."""
        found = self.find(text)
        if not found:
            return text
        parts, end = [], 0
        for secret in found:
            parts += [text[end : secret.start], f"[secret: {secret.kind}]"]
            end = secret.end
        return "".join([*parts, text[end:]])

    def _again(self, text: str) -> Iterator[Secret]:
        """Yield known values, even if a line end or a cut has left only the first two thirds or more."""
        for beginning, values in self._beginnings.items():
            start = text.find(beginning)
            while start >= 0:
                value, size = _nearest(values, text[start : start + self._longest])
                yield Secret(start, start + size, self._known[value])
                start = text.find(beginning, start + size)

    def _index(self) -> None:
        """Group the values by the prefix to search for: an agent may print many that begin alike."""
        self._beginnings: dict[str, list[str]] = {}
        self._sorted = sorted(self._known)
        for value in self._sorted:
            enough = max(MIN_KNOWN, len(value) * 2 // 3)
            self._beginnings.setdefault(value[:enough], []).append(value)
        self._longest = max(map(len, self._known), default=0)


def _nearest(values: list[str], text: str) -> tuple[str, int]:
    """Return the sorted value with the longest prefix in common with `text`, and the length of that."""
    place = bisect(values, text)
    nearest = values[max(place - 1, 0) : place + 1]
    # Mostly the text has them all. commonprefix compares any sequences.
    shared = [
        len(value if text.startswith(value) else commonprefix((value, text)))  # noqa: RUF071
        for value in nearest
    ]
    return max(zip(nearest, shared, strict=True), key=itemgetter(1))


def known_in(env: Mapping[str, str]) -> list[str]:
    """Return the values of the variables in `env` whose names say that they are secret."""
    return [value for name, value in env.items() if _NAME.search(name) and is_likely(value, 8, quoted=True)]


redact = Redactor().redact
"""Return a text with a mark in place of each secret that is known by its format alone."""


def _formats(text: str) -> Iterator[Secret]:
    start = 0
    while start < len(text):
        end = min(start + SEGMENT, len(text))
        if anchors := anchors_in(text[start:end]):
            for first, last, kind in scan(text, start, end, anchors):
                yield Secret(first, last, kind)
        start = end if end == len(text) else end - OVERLAP
    if "PRIVATE KEY-----" in text:
        yield from (Secret(first, last, "private-key") for first, last in private_keys(text))


def _merged(found: list[Secret]) -> list[Secret]:
    found.sort()
    merged = [found[0]]
    for secret in found[1:]:
        last = merged[-1]
        if secret.start < last.end:
            merged[-1] = last._replace(end=max(last.end, secret.end))
        else:
            merged.append(secret)
    return merged
