"""Takes the secrets out of a terminal's output before it is written, and keeps the screen's geometry.

    output, sizes, markers → held back → Page: what one reads → Redactor → `*` over what it found → events

A secret comes in pieces: in two reads, with colours in between, typed slowly, wrapped over two rows.  So the
last HOLD characters are held back until more has come or the recording ends, and secrets are looked for in
all that is held.  A value that was found once is covered wherever it comes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from relay.recording.page import Page
from relay.redact import Redactor, Secret

HOLD = 512
"""Characters of text that are held back."""

MAX_HOLD = 1 << 16
"""Characters of output that are held back at most."""

KEY = 8192
"""Characters of text after a private key's first line in which its last line is waited for."""

HEADER = "PRIVATE KEY-----"

CONTEXT = 256
"""Characters before those held back that are looked at with them."""

FRAME = 8
"""Columns at the right that a program may leave empty, for a frame, where it wraps a line itself."""

_CLIPBOARD = "52;"
"""OSC 52 puts something on the clipboard, in base64: nobody would find a secret in it, so it is left out."""

_COVERED = re.compile(r"[^\s\x00-\x1f\x7f]")
_ROW = re.compile(r"[^\r\n]*")
_BREAK = re.compile(r"[\r\n]{1,4}[ \t]{0,8}[│┃|>]?[ \t]{0,8}(?=[^\s│┃|])")
_FRAME = " \t│┃|"
_LAST_WORD = re.compile(rf"\S{{1,{HOLD}}}\Z")

Span = tuple[int, int]


class Event(NamedTuple):
    """One event of a recording. at: seconds since its beginning; kind, data: as in an asciicast."""

    at: float
    kind: str
    data: str


class Veil:
    """Events in, events out, in the same order and with the same times. columns: of the terminal."""

    def __init__(self, redactor: Redactor, columns: int) -> None:
        self.held = 0
        """Characters of output that are held back."""
        self._redactor = redactor
        self._columns = columns
        self._events: list[Event] = []
        self._before = ""  # text that was let go last

    def put(self, event: Event) -> None:
        """Hold `event` back until `take`."""
        if event.kind == "o":
            self.held += len(event.data)
        elif event.kind == "r":
            self._columns = int(event.data.partition("x")[0])
        self._events.append(event)

    def take(self, *, quiet: bool = False, all: bool = False) -> list[Event]:
        """The events that may be written now.

        quiet: nothing has come for a while, so only a word that is not over is held back. all: nothing is.
        """
        raw = "".join(event.data for event in self._events if event.kind == "o")
        page = Page.of_terminal(raw)
        spans = self._secrets(page)
        end = len(raw) if all else self._settled(raw, page, spans, quiet)
        shown = self._covered(raw, page, spans)
        self._before = (self._before + page.text[: page.index(end)])[-CONTEXT:]
        return self._let_go(shown, end)

    def skip(self) -> None:
        """Forget the events that are held back; what comes is still read as going on from there."""
        raw = "".join(event.data for event in self._events if event.kind == "o")
        self._before = (self._before + Page.of_terminal(raw).text)[-CONTEXT:]
        self._events, self.held = [], 0

    def _secrets(self, page: Page) -> list[Span]:
        """Where in the page's text secrets are, in order. The redactor learns what they are."""
        offset = len(self._before)
        text = self._before + page.text
        found = self._redactor.find(text)
        wrapped = self._wrapped(text, page, offset)
        if self._learn([text[s.start : s.end] for s in found], found):
            found = self._redactor.find(text)
        spans = [*((s.start, s.end) for s in found), *wrapped]
        return sorted((max(start - offset, 0), end - offset) for start, end in spans if end > offset)

    def _learn(self, values: list[str], secrets: list[Secret]) -> bool:
        news = False
        for value, secret in zip(values, secrets, strict=True):
            if secret.kind != "private-key":
                news |= self._redactor.learn(value, secret.kind)
        return news

    def _wrapped(self, text: str, page: Page, offset: int) -> list[Span]:
        """Parts of secrets that go over the end of a row, which the program itself has wrapped."""

        least = self._columns - FRAME
        breaks: list[Span] = []
        for match in _ROW.finditer(text):
            start, end = match.span()
            indent = page.columns.get(start - offset, 0)
            if indent + end - start < least or (after := _BREAK.match(text, end)) is None:
                continue
            end = start + len(match[0].rstrip(_FRAME))
            if indent + end - start >= least:
                breaks.append((end, after.end()))
        if not breaks:
            return []
        rows = Page.without(text, breaks)
        spans: list[Span] = []
        for secret in self._redactor.find(rows.text):
            parts = list(rows.ranges(secret.start, secret.end))
            if len(parts) > 1:
                self._learn([rows.text[secret.start : secret.end]], [secret])
                spans += parts
        return spans

    def _settled(self, raw: str, page: Page, spans: list[Span], quiet: bool) -> int:
        """Up to where in `raw` it is known by now what is a secret."""
        text = page.text
        keep = len(text) - HOLD
        if quiet:
            word = _LAST_WORD.search(text, max(len(text) - HOLD, 0))
            keep = len(text) if word is None else word.start()
        for start, end in spans:
            if start < keep < end or end == len(text):  # it may go on
                keep = min(keep, start)
        header = text.rfind(HEADER, 0, max(keep, 0))
        if header >= 0 and self._key_goes_on(text, header + len(HEADER), spans):
            keep = text.rfind("\n", 0, header) + 1
        return max(page.source(max(keep, 0)), len(raw) - MAX_HOLD)

    def _key_goes_on(self, text: str, body: int, spans: list[Span]) -> bool:
        if len(text) - body > KEY or "-----END " in text[body:]:
            return False
        return len(text) - body < CONTEXT or any(start == body for start, _ in spans)

    def _covered(self, raw: str, page: Page, spans: list[Span]) -> str:
        """`raw` with `*` for each character of a secret; of what is left out NULs are left."""
        covers: list[tuple[int, int, str]] = []
        for start, end in spans:
            covers += [(first, last, "*") for first, last in page.ranges(start, end)]
        for start, end, content in page.strings:
            if raw.startswith(_CLIPBOARD, content):
                covers.append((start, end, "\0"))
            else:
                found = self._redactor.find(raw[content:end])
                covers += [(content + s.start, content + s.end, "*") for s in found]
        return _cover(raw, covers)

    def _let_go(self, shown: str, end: int) -> list[Event]:
        """Split what is held at `end` of its output, of which `shown` is what may be seen."""
        ready: list[Event] = []
        held: list[Event] = []
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
        self.held = position - min(end, position)
        return ready


def _cover(raw: str, covers: Iterable[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    position = 0
    for start, end, character in sorted(covers):
        if end > position:
            start = max(start, position)
            covered = _COVERED.sub("*", raw[start:end]) if character == "*" else character * (end - start)
            parts += [raw[position:start], covered]
            position = end
    return "".join([*parts, raw[position:]])
