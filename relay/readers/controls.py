"""Control sequences: their syntax, which ones leave the line, and the text of a line without them.

The syntax is ECMA-48's (5.4 for CSI, 5.6 for strings), with BEL as a second terminator of OSC (xterm).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from relay.columns import width

# A string ends at BEL or ST; CAN, SUB and any other escape abort it.
_STRING = r"[\]P^_X][^\x07\x18\x1a\x1b]*(?:\x07|\x1b\\|[\x18\x1a]|(?=\x1b)|\Z)"
_CSI = r"\[[0-?]*[ -/]*[@-~]"
_ESCAPE = r"[ -/]*[0-~]"

_TOKEN = re.compile(
    rf"\x1b(?:(?P<csi>{_CSI})|{_STRING}|(?P<escape>{_ESCAPE}))|[^\x00-\x1f\x7f\x1b]+|[\x00-\x1f\x7f]"
)
_SEQUENCE = re.compile(rf"\x1b(?:{_CSI}|{_STRING}|{_ESCAPE})")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CONTROL_BYTE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_EDIT = re.compile(r"\r(?!\Z)|[\x08\x0b\x0c]|\x1b(?:\[[0-?]*[ -/]*[@-HJKPXZ`abdf]|[78DEMc])")
_SPLIT_STRING = re.compile(rb"\x1b[\]P^_X][^\x07\x18\x1a\x1b\n]*+(?:\n[^\x07\x18\x1a\x1b]*+|\Z)")
_STRING_END = re.compile(rb"[\x07\x18\x1a\x1b]")

_LEAVES_LINE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-9;:]*[ABEFHfdLMST]"  # vertical and absolute movement, line insertion, scrolling
    rb"|\[[1-3]J"  # erasing above the cursor or everything (0 erases below, as zsh does at each prompt)
    rb"|\[[0-9;]*[ru]"  # scroll region, restored cursor
    rb"|\[\?[0-9;]*(?:1049|1047|47)[0-9;]*h"  # the alternate screen
    rb"|[8DMc]"  # restored cursor, index, reverse index, reset
    rb")"
)
_NO_COLOUR = re.compile(rb"\x1b(?!\[[0-9;:]*+m)")
_CUT = re.compile(
    rb"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,4}|[ -/]{1,4})?"
    rb"|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
_C1 = re.compile(rb"\xc2([\x80-\x9f])|(?<![\x80-\xff])([\x80-\x9f])")


# Characters that a terminal does not draw, in UTF-8: zero-width characters, bidirectional controls, invisible
# operators, tags, byte order mark. Joiners and variation selectors only where they follow nothing to modify.
_JOINER = rb"\xe2\x80\x8d|\xef\xb8[\x80-\x8f]"
_HIDDEN = (
    rb"(?:\xe2\x80[\x8b\x8c\x8e\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xcd\x8f|\xd8\x9c"
    rb"|\xe1\xa0\x8e|\xf3\xa0[\x80\x81\x84-\x87][\x80-\xbf]|(?<![\x80-\xbf])(?:" + _JOINER + rb"))"
)
_BEHIND_HIDDEN = rb"(?:[ \t]|\x1b\[[0-9;:]*m|" + _JOINER + rb"|" + _HIDDEN + rb"){0,64}"
_HIDDEN_END = re.compile(_HIDDEN + _BEHIND_HIDDEN + rb"\Z")


class _OnlyColours:
    """True if every escape sequence in some bytes is a colour change (SGR).

    The last answer is cached: in a flood, readers and screens ask about the same bytes in turn.
    """

    def __init__(self) -> None:
        self._last = b""
        self._answer = True

    def __call__(self, data: bytes) -> bool:
        if data is not self._last:
            self._last, self._answer = data, b"\x1b" not in data or _NO_COLOUR.search(data) is None
        return self._answer


only_colours = _OnlyColours()


def leaves_line(data: bytes) -> int:
    """Return the offset of the first sequence in `data` after which text is on another line, or -1."""
    found = None if only_colours(data) else _LEAVES_LINE.search(data)
    return found.start() if found else -1


def cut(data: bytes) -> int:
    """Return the offset of the unfinished character or short sequence that ends `data`, or its length."""
    found = _CUT.search(data, max(0, len(data) - 72))
    end = found.start() if found else len(data)
    if not data.isascii() and (hidden := _HIDDEN_END.search(data, max(0, end - 72), end)):
        end = hidden.start()  # a marker may follow (`reveal`)
    return end


def revealing(marker: bytes) -> Callable[[bytes], bytes]:
    """Return a function that replaces hidden characters before a `marker` with U+FFFD.

    A screen draws nothing for them, so the line would seem to begin with the marker.
    """

    @cache
    def hidden() -> re.Pattern[bytes]:
        return re.compile(_HIDDEN + rb"(?=" + _BEHIND_HIDDEN + re.escape(marker) + rb")")

    def reveal(data: bytes) -> bytes:
        if marker not in data or data.isascii():
            return data
        return hidden().sub("\ufffd".encode(), data)

    return reveal


def seven_bit(data: bytes) -> bytes:
    """Return `data` with C1 controls, raw or as UTF-8, replaced by their two-byte forms (ECMA-48, 5.3).

    `data` begins at a character boundary.
    """
    if data.isascii():
        return data
    return _C1.sub(lambda match: b"\x1b" + bytes([(match[1] or match[2])[0] - 0x40]), data)


def outside_strings(data: bytes, *, inside: bool) -> tuple[list[tuple[int, int]], bool]:
    """Return (start, end) of each part of `data` outside split strings, and whether one is still open.

    A split string is an OSC, DCS, SOS, PM or APC string with a newline in it, or one that does not end within
    `data`; what ends it belongs to the next part.

    inside: `data` begins within one.
    """
    at = 0
    if inside:
        end = _STRING_END.search(data)
        if end is None:
            return [], True
        at = end.start()
    parts = []
    if not only_colours(data):
        for string in _SPLIT_STRING.finditer(data, at):
            parts.append((at, string.start()))
            at = string.end()
    return [*parts, (at, len(data))], bool(parts) and at == len(data)


def plain(raw: bytes, columns: int) -> list[str]:
    """Return the text that `raw`, a line without its newline, leaves on a terminal of `columns` columns.

    There is one text, unless the line moves the cursor off itself: then one for each place.
    """
    if _CONTROL_BYTE.search(raw) is None:
        return [raw.decode("utf-8", "replace")]
    text = raw.decode("utf-8", "replace").rstrip("\r")
    if _EDIT.search(text) is not None:
        return _Cells(columns).run(text)
    return [_CONTROL.sub("", _SEQUENCE.sub("", text))]


class _Cells:
    """The cells of one logical line, and a cursor that moves within it.

    The line may have any length; `columns` only decides where its rows begin, because a carriage return goes
    to the beginning of the row.
    """

    def __init__(self, columns: int) -> None:
        self._columns = max(columns, 1)
        self._cells: list[str] = []
        self._x = 0
        self._row = 0
        self._last = " "
        self._done: list[str] = []

    def run(self, text: str) -> list[str]:
        for token in _TOKEN.finditer(text):
            if (csi := token["csi"]) is not None:
                self._csi(csi)
            elif (escape := token["escape"]) is not None:
                if escape in "78DEMc":
                    self._leave()
            elif token[0] < " " or token[0] == "\x7f":
                self._control(token[0])
            elif token[0][0] != "\x1b":
                for character in token[0]:
                    self._print(character)
        self._leave()
        return self._done or [""]

    def _leave(self) -> None:
        text = "".join(self._cells).rstrip()
        if text:
            self._done.append(text)
        self._cells, self._x, self._row = [], 0, 0

    def _print(self, character: str) -> None:
        cells = width(character)
        if cells == 0:
            if self._x and self._x <= len(self._cells):
                # A combining mark joins the character before it; the right half of a wide one is "".
                back = self._x - 1
                while back and not self._cells[back]:
                    back -= 1
                self._cells[back] += character
            return
        self._row = self._x // self._columns
        self._cells += " " * (self._x + cells - len(self._cells))
        self._blank_halves(self._x, self._x + cells)
        self._cells[self._x] = character
        if cells == 2:
            self._cells[self._x + 1] = ""
        self._x += cells
        self._last = character

    def _blank_halves(self, start: int, end: int) -> None:
        """Blank the other half of each wide character that is half overwritten."""
        if start < len(self._cells) and self._cells[start] == "" and start:
            self._cells[start - 1] = " "
        if end < len(self._cells) and self._cells[end] == "":
            self._cells[end] = " "

    def _control(self, character: str) -> None:
        start = self._row * self._columns
        if character == "\r":
            self._x = start
        elif character == "\b":
            self._x = max(start, self._x - 1)
        elif character == "\t":
            self._move(self._x - start + 8 - (self._x - start) % 8)
        elif character in "\x0b\x0c":
            self._leave()

    def _move(self, column: int) -> None:
        """Go to `column` (zero-based) of the cursor's row."""
        self._x = self._row * self._columns + min(max(column, 0), self._columns - 1)

    def _csi(self, sequence: str) -> None:
        final, parameters = sequence[-1], sequence[1:-1]
        if parameters[:1] in ("?", ">", "<", "="):
            return
        first = parameters.split(";")[0].split(":")[0]
        number = min(int(first), 1 << 16) if first.isdigit() else 0
        count = number or 1
        column = self._x - self._row * self._columns
        end = (self._row + 1) * self._columns
        match final:
            case "C" | "a":
                self._move(column + count)
            case "D":
                self._move(min(column, self._columns - 1) - count)
            case "G" | "`":
                self._move(count - 1)
            case "K" if number == 1:
                self._erase(self._row * self._columns, self._x + 1)
            case "K" if number == 2:
                self._erase(self._row * self._columns, end)
            case "K" | "J" if number == 0:
                self._erase(self._x, len(self._cells) if final == "J" else end)
            case "X":
                self._erase(self._x, min(self._x + count, end))
            case "P":
                self._blank_halves(self._x, self._x + count)
                del self._cells[self._x : self._x + count]
            case "@":
                if self._x < len(self._cells):
                    self._cells[self._x : self._x] = " " * min(count, self._columns)
            case "b":
                for _ in range(min(count, self._columns)):
                    self._print(self._last)
            case "A" | "B" | "E" | "F" | "H" | "f" | "d" | "J":
                self._leave()

    def _erase(self, start: int, end: int) -> None:
        end = min(end, len(self._cells))
        if start < end:
            self._blank_halves(start, end)
            self._cells[start:end] = " " * (end - start)
