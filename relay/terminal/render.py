"""Renders a virtual screen for the user's terminal: its text and colours, clipped, and nothing else.

The virtual screen returns bytes that would redraw it, including modes.  Only SGR sequences (ECMA-48, 8.3.117)
and printable characters pass; everything else is dropped.  So no mode, title, query, clipboard write or
hyperlink from a recording or a viewed agent reaches the terminal.
"""

from __future__ import annotations

from relay import lazy_re
from relay.columns import width
from relay.terminal.screen import VirtualScreen

# One sequence: SGR, another CSI, a terminated string (OSC, DCS, SOS, PM, APC), another escape; or text.
_TOKEN = lazy_re.compile(
    r"(?P<sgr>\x1b\[[0-9;:]*m)|\x1b\[[^@-~]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[^ -/]?"
    r"|(?P<end>\r?\n)|(?P<text>[^\x1b\r\n]+)"
)
_PLACE = lazy_re.compile(r"\x1b\[[0-9]+;[0-9]+H")
_RESET = "\x1b[0m"

# Controls that a cell may hold, and characters that would reorder or hide their neighbours (relay.text).
_CONTROL = lazy_re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSEEN = lazy_re.compile("[\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]")


def render(screen: VirtualScreen, columns: int, rows: int) -> tuple[list[str], tuple[int, int] | None]:
    """Return (the rows of `screen` that fit `columns` x `rows`, the cursor's (x, y) or None if hidden).

    The rows are the left parts of the last used ones, or of those from the cursor on: text with SGR
    sequences, with no attributes at either end.
    """
    whole = _rows(screen.repaint(joined=False).decode("utf-8", "replace"))
    x, y = screen.cursor
    used = max([y, *(number for number, row in enumerate(whole) if row)])
    top = min(max(0, used - rows + 1), y if screen.cursor_visible else used)
    shown = [clip(row, columns) for row in whole[top : top + rows]]
    inside = screen.cursor_visible and x < columns and 0 <= y - top < rows
    return shown, (x, y - top) if inside else None


def render_row(drawing: str) -> str:
    """Return the row that `drawing` (VirtualScreen.collect) draws, as `render` does, but unclipped."""
    return _rows(drawing)[0]


def clip(row: str, columns: int) -> str:
    """Return the first `columns` columns of a row with SGR sequences."""
    parts, left, styled = [], columns, False
    for token in _TOKEN.finditer(row):
        if token["sgr"]:
            parts.append(token[0])
            styled = token[0] != _RESET
        elif (text := token["text"]) is not None:
            if len(text) > left or not text.isascii():
                text, left = _fitting(text, left)
            else:
                left -= len(text)
            parts.append(text)
            if left <= 0:
                break
    return "".join(parts) + (_RESET if styled else "")


def _fitting(text: str, columns: int) -> tuple[str, int]:
    """Return (the characters of `text` that fit, the columns left: 0 once a character did not fit)."""
    for at, character in enumerate(text):
        if (wide := width(character)) > columns:
            return text[:at], 0
        columns -= wide
    return text, columns


def _rows(drawing: str) -> list[str]:
    """Return the rows in the output of `VirtualScreen.repaint`."""
    places = list(_PLACE.finditer(drawing))
    rows = [""]
    style = ""  # the attributes in force, as the sequences since the last reset
    for token in _TOKEN.finditer(drawing[: places[-1].start()] if places else drawing):
        if token["sgr"]:
            style = "" if token[0] == _RESET else style + token[0]
        elif token["end"]:
            rows.append("")
        elif token["text"]:
            text = _UNSEEN.sub("", _CONTROL.sub("\ufffd", token["text"]))
            rows[-1] += style + text + _RESET if style else text
    return rows
