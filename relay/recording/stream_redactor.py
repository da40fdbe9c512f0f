"""Covers the secrets in a terminal's output before it is written, and keeps the geometry of the screen.

    output, sizes, markers → Grid: the text on the screen → Redactor → `*` over the characters that drew it

A secret may come in pieces: in two reads, with colours or cursor movements in between, typed slowly, wrapped
over two rows. So relay searches the rows of the screen, and holds back text that may still become a secret:
the word at the cursor and, for some seconds, a value that is being drawn elsewhere. A value that was found
once is covered wherever it appears again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from relay import lazy_re
from relay.recording.asciicast import CastEvent
from relay.recording.grid import NOWHERE, Grid, Passage
from relay.redaction import Redactor

WORD = 512
"""Maximum characters held back of the word at the cursor."""

MAX_HOLD = 1 << 16
"""Maximum characters of output held back."""

NAME = 64
"""Characters before a value to search for its name."""

GROWTH = 2.0
"""Seconds to hold back a value at the end of a row: an agent's answer arrives in small pieces."""

FRAME = 8
"""Columns at the right that a program may leave empty, for a frame, when it wraps a line itself."""

_CLIPBOARD = "52;"
"""OSC 52 writes base64 to the clipboard, in which no secret would be found, so it is left out."""

_COVERED = lazy_re.compile(r"[^\s\x00-\x1f\x7f]")
_EDGE = "│┃|"
_BLANK = f" \t{_EDGE}"
_WORDS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/=_-.:\"'`~%")
_LINE = lazy_re.compile(r"[^\n]+")
_NEXT = lazy_re.compile(rf"\n[ \t]{{0,8}}[{_EDGE}>]?[ \t]{{0,8}}(?=([^\s{_EDGE}]{{1,200}}))")
_WORD = lazy_re.compile(r"\S+\Z")
_OPEN = lazy_re.compile(
    r"(?i:(?:pass(?:word|wd|phrase)?|pwd|secret|key|token|credential)[A-Z0-9_\-]{0,20}[\"']?\]?[ \t]{0,4}"
    r"(?:=>|:=|[:=])[ \t]{0,4}[\"'`]?"
    r"|--[A-Z\-]{0,20}(?:pass(?:word|wd|phrase)?|secret|key|token)[= ]"
    r"|bearer[ \t]|authorization[\"']?[:=][ \t]?[\"']?(?:\w{1,8}[ \t])?"
    r"|://[^\s/]{0,128}:"
    r"|\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox\w-|npm_|hf_|pypi-|[rs]k_live_|sg\.|AIza|A[KS]IA|eyJ))"
    r"\S{0,512}\Z"
    r"|PRIVATE KEY-----\s{1,8}[A-Za-z0-9+/=]{0,15}\Z"
)
"""Matches a row that ends in text that may become a secret."""

# A word that ends a row. Tried only where a word begins, and with its end alone: a row may be one long word.
_BEGUN = lazy_re.compile(rf"(?<![^\s=:\"'`])([^\s=:\"'`]{{4,{WORD}}}+)[\"'`]?[ \t{_EDGE}]*\n")
_KEY_LINE = lazy_re.compile(r"[A-Za-z0-9+/=]{24,128}")


class StreamRedactor:
    """Events in, events out, in the same order and with the same times. columns, rows: of the terminal."""

    def __init__(self, redactor: Redactor, columns: int, rows: int = 24) -> None:
        self._redactor = redactor
        self._grid = Grid(columns, rows)
        self._events: list[CastEvent] = []
        self._released = 0  # characters of the output that `take` has returned
        self._received = 0  # those that `put` has taken
        self._covers: list[tuple[int, int, str]] = []  # of held-back output, by its place
        self._passages: list[Passage] = []  # with characters that are held back
        self._open: list[tuple[int, float]] = []  # values that are being drawn: their place and time

    @property
    def held(self) -> int:
        """The number of characters of output held back."""
        return self._received - self._released

    def put(self, event: CastEvent) -> None:
        """Take `event`, and hold it back until `take`."""
        if event.kind == "o":
            self._received += len(event.data)
            self._grid.feed(event.data)
        elif event.kind == "r":
            self._grid.resize(*event.size)
        self._events.append(event)

    def take(self, now: float, *, all: bool = False) -> list[CastEvent]:
        """Return the events that may be written at `now` (seconds, as in events). all: hold nothing back."""
        passages = self._grid.passages()
        raw = "".join(event.data for event in self._events if event.kind == "o")
        places, news = self._secrets(passages)
        self._passages += passages
        self._open += self._opened(passages)
        if news:
            places += self._secrets(self._passages)[0]  # it may have appeared before
            for text, origins in self._passages:
                for match in _BEGUN.finditer(text):
                    if self._redactor.begins(match[1]):
                        places += origins[match.start(1) : match.end(1)]
        self._covers += [(first, last, "*") for first, last in _runs(places) if last > self._released]
        self._covers += self._hidden(raw)
        end = self._received if all else max(self._settled(now), self._received - MAX_HOLD)
        before = self._released
        shown = _cover(raw, [(first - before, last - before, sign) for first, last, sign in self._covers])
        ready = self._release(shown, end - before)
        self._released = max(end, self._released)
        self._covers = [cover for cover in self._covers if cover[1] > self._released]
        self._passages = [each for each in self._passages if max(each.origins) >= self._released]
        return ready

    def _secrets(self, passages: Iterable[Passage]) -> tuple[list[int], bool]:
        """Return the places of the characters of secrets, and True if the redactor learned any secret."""
        places, news = list[int](), False
        for passage in passages:
            for text, origins in (passage, *_unwrapped(passage, self._grid.columns)):
                for start, end, kind in self._redactor.find(text):
                    places += origins[start:end]
                    value = text[start:end]
                    for each in _KEY_LINE.findall(value) if kind == "private-key" else (value,):
                        news |= self._redactor.learn(each, kind)
        return places, news

    def _hidden(self, raw: str) -> Iterator[tuple[int, int, str]]:
        """Yield the covers of secrets in titles, links and other strings, which are not drawn."""
        released = self._released
        for start, end, content in self._grid.strings:
            if raw.startswith(_CLIPBOARD, content - released):
                yield start, end, "\0"
            else:
                for secret in self._redactor.find(raw[content - released : end - released]):
                    yield content + secret.start, content + secret.end, "*"
        self._grid.strings.clear()

    def _settled(self, now: float) -> int:
        """Return the place in the output before which no secret can still begin."""
        text, origins = self._grid.before_cursor(WORD)
        keep = self._first(origins[_last_word(text) :], self._grid.read)
        self._open = [each for each in self._open if now - each[1] < GROWTH]
        return self._first((place for place, _ in self._open), keep)

    def _opened(self, passages: Iterable[Passage]) -> Iterator[tuple[int, float]]:
        """Yield the place and time of each text at the end of a row that may become a secret."""
        for text, origins in passages:
            position = 0
            for row in text.split("\n"):
                line = row.rstrip()
                word, end = position + _last_word(line), position + len(line)
                if line and _OPEN.search(text, max(word - NAME, 0), end):
                    yield self._first(origins[word:end], self._received), self._time(max(origins[word:end]))
                position += len(row) + 1

    def _first(self, origins: Iterable[int], otherwise: int) -> int:
        """Return the first of the places that is held back; `otherwise` if none is."""
        return min((place for place in origins if place >= self._released), default=otherwise)

    def _time(self, place: int) -> float:
        position = self._released
        for event in self._events:
            if event.kind == "o":
                position += len(event.data)
                if position > place:
                    return event.time
        return 0.0

    def _release(self, shown: str, end: int) -> list[CastEvent]:
        """Split the events at `end` of the held output; `shown` is that output with its covers."""
        ready: list[CastEvent] = []
        held: list[CastEvent] = []
        position = 0
        for event in self._events:
            if event.kind != "o":
                (held if held else ready).append(event)
                continue
            cut = min(max(end - position, 0), len(event.data))
            if data := shown[position : position + cut].replace("\0", ""):
                ready.append(event._replace(data=data))
            if cut < len(event.data):
                held.append(event._replace(data=event.data[cut:]))
            position += len(event.data)
        self._events = held
        return ready


def _unwrapped(passage: Passage, columns: int) -> Iterator[Passage]:
    """Yield the passage with the rows joined that a program seems to have wrapped itself.

    It wraps within a word if a row is full, and between two words if the second does not fit.
    """
    text, origins = passage
    within: list[tuple[int, int]] = []
    between: list[tuple[int, int]] = []
    for match in _LINE.finditer(text):
        line = match[0]
        content = line.rstrip(_BLANK)
        after = _NEXT.match(text, match.end())
        if after is None or not content or content[-1] not in _WORDS:
            continue
        used = (len(content) - 1) % columns + 1
        gap = match.start() + len(content), after.end()
        framed = line[-1] in _EDGE and len(line) - len(content) <= 3
        if framed or used >= columns - FRAME:
            within.append(gap)
        if used + len(after[1]) >= columns - FRAME:
            between.append(gap)
    for gaps, space in ((within, ""), (between, " ")):
        if gaps:
            joined, places, here = "", list[int](), 0
            for start, end in gaps:
                joined += text[here:start] + space
                places += [*origins[here:start], *([NOWHERE] * len(space))]
                here = end
            yield Passage(joined + text[here:], places + origins[here:])


def _last_word(text: str) -> int:
    """Return where the last word of `text` begins; the length of `text` if it ends in a blank."""
    match = _WORD.search(text, max(len(text) - WORD, 0))
    return len(text) if match is None else match.start()


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the places as runs (first, last + 1) of consecutive ones, in order."""
    numbered = enumerate(sorted({place for place in places if place != NOWHERE}))
    for _, run in groupby(numbered, key=lambda each: each[1] - each[0]):
        found = [place for _, place in run]
        yield found[0], found[-1] + 1


def _cover(raw: str, covers: Iterable[tuple[int, int, str]]) -> str:
    """Return `raw` with each (start, end, character) covered; `*` leaves colours and blanks as they are."""
    parts: list[str] = []
    position = 0
    for start, end, character in sorted(covers):
        if end > position:
            start = max(start, position)
            covered = _COVERED.sub("*", raw[start:end]) if character == "*" else character * (end - start)
            parts += [raw[position:start], covered]
            position = end
    return "".join([*parts, raw[position:]])
