"""Detects invisible text: concealed, or in the colour of its background.

A Pen tracks the graphic rendition (SGR: ECMA-48, 8.3.117; colours: xterm ctlseqs, ITU-T T.416) of a program's
output, across lines.  Most output takes one search, because it neither conceals nor sets a background.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from relay import lazy_re

# The parameters of SGR; or DECSTR, which resets like SGR without parameters. Terminals execute control
# characters in the middle of a sequence.
_CHANGE = lazy_re.compile(rb"\x1b\[(?:([0-9;:\x00-\x17\x19\x1c-\x1f]*)m|!p)")
_OPEN = lazy_re.compile(rb"\x1b(?:\[[0-9;:\x00-\x17\x19\x1c-\x1f]*)?\Z")
_CONTROLS = bytes(range(32))

_HARMLESS = rb"(?:0?[0-79]?|[239][0-79]|28|38;5;[0-9]{1,3}|38;2;[0-9]{1,3};[0-9]{1,3};[0-9]{1,3})"
_MAY_HIDE = lazy_re.compile(
    rb"\x1b(?:\Z|\[(?!(?:[0-79]?|[239][0-79])m|"
    + _HARMLESS
    + rb"(?:;"
    + _HARMLESS
    + rb")*m|[0-?]*[ -/]*[@-ln-~]))"
)

# Control sequences, controls and blanks; and U+2500 to U+259F, which programs use for drawing, not writing.
_NOT_TEXT = lazy_re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]P^_X][^\x07\x18\x1a\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
    rb"|[\x00-\x20\x7f]+|\xc2\xa0|\xe2(?:[\x94\x95][\x80-\xbf]|\x96[\x80-\x9f])"
)

# The first 16 colours of xterm's palette; other terminals may show them differently.
_BASIC = (
    *(0x000000, 0xCD0000, 0x00CD00, 0xCDCD00, 0x0000EE, 0xCD00CD, 0x00CDCD, 0xE5E5E5),
    *(0x7F7F7F, 0xFF0000, 0x00FF00, 0xFFFF00, 0x5C5CFF, 0xFF00FF, 0x00FFFF, 0xFFFFFF),
)


_NEAR = 4096
"""Bytes at the end of harmless output in which to look for its last colour."""


def may_hide(data: bytes) -> bool:
    """Return False if nothing in `data` conceals or sets a background."""
    return b"\x1b" in data and _MAY_HIDE.search(data) is not None


class _Rendition(NamedTuple):
    """The part of the rendition that can hide text. Colours are 0xRRGGBB; None is the terminal's default."""

    concealed: bool = False
    foreground: int | None = None
    background: int | None = None

    @property
    def hides(self) -> bool:
        return self.concealed or (self.foreground is not None and self.foreground == self.background)


_DEFAULT = _Rendition()


class Pen:
    """Tracks the rendition of one program's output, from its start.

    hidden: some text of the line is hidden.
    calm:   text without a control sequence cannot be hidden.
    """

    def __init__(self) -> None:
        self.hidden = False
        self.calm = True
        self._rendition = _DEFAULT
        self._open = b""  # a sequence split by the end of a line

    def state(self) -> list[bool | int | None]:
        return [self.hidden, *self._rendition]

    def restore(self, state: list[bool | int | None]) -> None:
        hidden, concealed, foreground, background = state
        self.hidden = bool(hidden)
        self._rendition = _Rendition(bool(concealed), foreground, background)
        self._note()

    def passes(self, data: bytes) -> bool:
        """Track `data` and return True if one search shows that it hides nothing. Else do nothing."""
        if not self.calm:
            return False
        if b"\x1b" in data:
            if _MAY_HIDE.search(data) is not None:
                return False
            self.skip(data, 0, len(data))
        return True

    def write(self, data: bytes) -> None:
        """Track `data`, a part of a line."""
        at = 0
        if b"\x1b" in data or self._open:
            data = self._open + data
            for change in _CHANGE.finditer(data):
                self._draw(data[at : change.start()])
                self._rendition = _changed(self._rendition, change[1] or b"")
                at = change.end()
            broken = _OPEN.search(data, max(at, len(data) - 64))
            self._open = broken[0] if broken else b""
            data = data[at : len(data) - len(self._open)]
            self._note()
        self._draw(data)

    def write_row(self, data: bytes) -> bool:
        """Track `data`, a whole row with whole sequences; return whether some of its text is hidden."""
        hidden, self._rendition = _row(self._rendition, data)
        return hidden

    def end_line(self) -> bool:
        """Start another line; return the last line's `hidden`."""
        hidden, self.hidden = self.hidden, False
        return hidden

    def skip(self, data: bytes, start: int, end: int) -> None:
        """Track the part of `data` from `start` to `end` without looking for hidden text."""
        reset = data.rfind(b"\x1b[0m", start, end)
        reset = max(reset, data.rfind(b"\x1b[m", max(reset, start), end))
        if reset >= 0:
            self._rendition, start = _DEFAULT, reset
        elif end - start > _NEAR and self.calm and not _MAY_HIDE.search(data, start, end):
            start = end - _NEAR
        # Changes are idempotent: the last of equal ones suffices.
        changes = dict.fromkeys(reversed(_CHANGE.findall(data, start, end)))
        for parameters in reversed(changes):
            self._rendition = _changed(self._rendition, parameters)
        self._note()

    def _note(self) -> None:
        self.calm = not self._open and not self._rendition.concealed and self._rendition.background is None

    def _draw(self, data: bytes) -> None:
        if self._rendition.hides and _NOT_TEXT.sub(b"", data):
            self.hidden = True


@lru_cache(maxsize=512)
def _row(rendition: _Rendition, data: bytes) -> tuple[bool, _Rendition]:
    """Return whether a row hides text, and the rendition after it. Most rows of a screen stay for long."""
    pen = Pen()
    pen._rendition = rendition
    pen.write(data)
    return pen.hidden, pen._rendition


@lru_cache(maxsize=1024)
def _changed(rendition: _Rendition, parameters: bytes) -> _Rendition:
    """Apply SGR with `parameters` to `rendition`; return the result."""
    words = parameters.translate(None, _CONTROLS).split(b";")
    at = 0
    while at < len(words):
        number, *parts = [_number(part) for part in words[at].split(b":")]
        at += 1
        if number in (38, 48, 58):
            if not parts:  # of the form 38;5;N or 38;2;R;G;B
                size = 4 if words[at : at + 1] == [b"2"] else 2
                parts = [_number(word) for word in words[at : at + size]]
                at += size
            elif parts[0] == 2:
                parts = [2, *parts[-3:]]  # 38:2:R:G:B, or with a colour space before R
            if number == 38:
                rendition = rendition._replace(foreground=_colour(parts))
            elif number == 48:
                rendition = rendition._replace(background=_colour(parts))
        elif number == 0:
            rendition = _DEFAULT
        elif number in (8, 28):
            rendition = rendition._replace(concealed=number == 8)
        elif number == 39 or 30 <= number <= 37 or 90 <= number <= 97:
            rendition = rendition._replace(foreground=_basic(number))
        elif number == 49 or 40 <= number <= 47 or 100 <= number <= 107:
            rendition = rendition._replace(background=_basic(number - 10))
    return rendition


def palette_colour(index: int) -> int:
    """Return the colour `index`, 0 to 255, of xterm's palette as 0xRRGGBB."""
    if index < 16:
        return _BASIC[index]
    if index >= 232:
        return 0x010101 * (8 + 10 * (index - 232))
    red, rest = divmod(index - 16, 36)
    levels = (0, 95, 135, 175, 215, 255)
    return levels[red] << 16 | levels[rest // 6] << 8 | levels[rest % 6]


def _number(word: bytes) -> int:
    """Return the number in `word`. Numbers longer than any terminal knows mean nothing."""
    return int(word[-9:]) if word.isdigit() else 0


def _basic(number: int) -> int | None:
    """Return the colour that SGR `number` sets as a foreground: 30 to 37, 39 (the default), 90 to 97."""
    return None if number == 39 else palette_colour(number - 30 if number < 90 else number - 82)


def _colour(parts: list[int]) -> int | None:
    """Return the colour 5, N or 2, R, G, B; None for anything else."""
    match parts:
        case [5, index, *_] if index < 256:
            return palette_colour(index)
        case [2, red, green, blue]:
            return (red & 255) << 16 | (green & 255) << 8 | blue & 255
    return None
