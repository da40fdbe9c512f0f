"""Secrets in text that is written down: keys, tokens and passwords are taken out, always.

    text → anchors: can there be one at all? → detectors, segment by segment → Secret(start, end, kind)
                                                                                  ↓
                            redact: `[secret: github-token]`      relay.recording.stream_redactor: as many `*`

The formats are those of `detect-secrets` (Yelp) and our own (relay.redaction.detectors), imported at
the first text with an anchor.  The text may be hostile: no expression looks further than a segment.  Logs
take 5 to 50 MB a second, the worst lines that we know (megabytes of `secret_access_`) 1 MB.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

from relay.redaction.anchors import anchors_in
from relay.redaction.likely import is_likely

SEGMENT, OVERLAP = 4096, 512
"""Characters that expressions see at once, and how many of them the next ones see again.

The interpreter's lock is held for the time of one expression over one segment.
"""

MIN_KNOWN = 8
"""Characters of a value that is looked for by itself; shorter ones would be found in ordinary words."""

MAX_KNOWN = 384
"""Values that are remembered beside those given; the oldest is forgotten."""


_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PWD|CREDENTIALS?)(?:_|\Z)", re.IGNORECASE)


class Secret(NamedTuple):
    """Where in a text a secret is: text[start:end]. kind: what it is, such as "github-token"."""

    start: int
    end: int
    kind: str


class Redactor:
    """Finds secrets by their formats, and those values that it has been told or has found before.

    known: values that are secret whatever they look like; no output makes it forget them.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._given = frozenset(value for value in known if len(value) >= MIN_KNOWN)
        self._known = dict.fromkeys(self._given, "known")  # and what was learnt
        self._index()

    def learn(self, value: str, kind: str) -> bool:
        """From now on `value`, and what begins like it, is a secret wherever it comes. Is that news?"""
        if len(value) < MIN_KNOWN or value in self._known:
            return False
        learnt = [known for known in self._known if known not in self._given]
        for shorter in [known for known in learnt if value.startswith(known)]:
            del self._known[shorter]  # it was seen before it was complete
            learnt.remove(shorter)
        if len(learnt) >= MAX_KNOWN:
            del self._known[learnt[0]]
        self._known[value] = kind
        self._index()
        return True

    def suspects(self, text: str) -> bool:
        """Whether there may be a secret in `text`, as it is or as JSON has it; quicker than `find`."""
        return bool(self._known) or bool(anchors_in(text))

    def find(self, text: str) -> list[Secret]:
        """The secrets in `text`, in order, none overlapping another."""
        found = [*_formats(text), *self._again(text)]
        return _merged(found) if found else found

    def begins(self, text: str) -> bool:
        """Whether a value that is known begins with `text`."""
        place = bisect(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)

    def redact(self, text: str) -> str:
        """`text` with a mark in place of each secret in it."""
        found = self.find(text)
        if not found:
            return text
        parts, end = [], 0
        for secret in found:
            parts += [text[end : secret.start], f"[secret: {secret.kind}]"]
            end = secret.end
        return "".join([*parts, text[end:]])

    def _again(self, text: str) -> Iterator[Secret]:
        """Known values, and beginnings of them: two thirds, which a line's end or a cut may have left."""
        for beginning, values in self._beginnings.items():
            start = text.find(beginning)
            while start >= 0:
                value, size = _nearest(values, text[start : start + self._longest])
                yield Secret(start, start + size, self._known[value])
                start = text.find(beginning, start + size)

    def _index(self) -> None:
        """Sort the values by what is looked for: an agent may have printed many that begin alike."""
        self._beginnings: dict[str, list[str]] = {}
        self._sorted = sorted(self._known)
        for value in self._sorted:
            enough = max(MIN_KNOWN, len(value) * 2 // 3)
            self._beginnings.setdefault(value[:enough], []).append(value)
        self._longest = max(map(len, self._known), default=0)


def _nearest(values: list[str], text: str) -> tuple[str, int]:
    """Which of the sorted `values` has the longest beginning in common with `text`, and its length."""
    place = bisect(values, text)
    nearest = values[max(place - 1, 0) : place + 1]
    shared = [len(commonprefix((value, text))) for value in nearest]  # noqa: RUF071 (characters are meant)
    return max(zip(nearest, shared, strict=True), key=itemgetter(1))


def known_in(env: Mapping[str, str]) -> list[str]:
    """The values of an environment that are secret, by the names of their variables."""
    return [value for name, value in env.items() if _NAME.search(name) and is_likely(value, 8, quoted=True)]


_stateless = Redactor()


def find(text: str) -> list[Secret]:
    """The secrets in `text` that their format gives away."""
    return _stateless.find(text)


def redact(text: str) -> str:
    """`text` with a mark in place of each secret that its format gives away."""
    return _stateless.redact(text)


def _formats(text: str) -> Iterator[Secret]:
    start = 0
    while start < len(text):
        end = min(start + SEGMENT, len(text))
        if anchors := anchors_in(text[start:end]):
            from relay.redaction import detectors  # 20 ms and 2 MB, for the first text with an anchor

            for first, last, kind in detectors.scan(text, start, end, anchors):
                yield Secret(first, last, kind)
        start = end if end == len(text) else end - OVERLAP
    if "PRIVATE KEY-----" in text:
        from relay.redaction import detectors

        yield from (Secret(first, last, "private-key") for first, last in detectors.private_keys(text))


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
