"""The grid of a terminal: rows of cells, each with the place of its character in the output.

    output → controls, sequences, text → rows of cells ─ settle → Passage: text, and where it came from

Programs place words by column, and redraw only the cells that have changed: users read the rows, not the
output in its order. Text that is about to be overwritten, erased or scrolled away is kept once, as it was, so
that nothing drawn goes unread. Colours are ignored, and so are left and right margins, tab stops, and
line-drawing character sets.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from relay import lazy_re
from relay.columns import width

SEQUENCE = 4096
"""Maximum characters of an unfinished control sequence; a longer one is treated as text."""

HISTORY = 100
"""Rows remembered above the screen: the next text may continue them."""

NOWHERE = -1
"""The place of a blank that nothing drew."""

SHARE, BURST = 4, 1 << 16
"""Characters that may be kept per character of output, and in advance, so that even a program that constantly
overwrites its text takes time linear in its output."""

_TOKEN = lazy_re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"  # CSI (ECMA-48, 5.4)
    r"|(?P<control>[\r\n\x08\t\x0b\x0c])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"  # OSC (xterm ctlseqs)
    r"|\x1b[PX^_](?P<string>[^\x1b]*)\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*(?P<escape>[0-OQ-WYZ\\`-~])"  # other escape sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"  # controls that write nothing
)
_UNFINISHED = lazy_re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")
_KEY_ROW = lazy_re.compile(r"[\W\d]{0,12}[A-Za-z0-9+/=]{16,128}\W*|.*PRIVATE KEY.*")
_ALTERNATE = frozenset({"?47", "?1047", "?1049"})


class Passage(NamedTuple):
    """Rows that are, or were, one below the other on the screen.

    origins: for each character of the text, its place in the output, or NOWHERE.
    """

    text: str
    origins: list[int]


class GridRow:
    """One row, without trailing blanks.

    cells, origins: the characters, and the place of each in the output.
    wraps: it is full, and continues in the next one.
    changed: something was drawn since the last `settle`.
    """

    __slots__ = ("cells", "changed", "origins", "wraps")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.origins = array("q")  # a fifth of a list's size
        self.wraps = False
        self.changed = False

    @property
    def text(self) -> str:
        return "".join(self.cells)


class _KeptPassages:
    """The passages of a grid that have not been taken yet.

    settled:   the place in the output up to which the passages cover the grid.
    allowance: characters that may still be kept.
    """

    def __init__(self) -> None:
        self.settled = 0
        self.allowance = BURST
        self._passages: list[Passage] = []

    def keep(self, rows: list[GridRow]) -> None:
        text: list[str] = []
        origins: list[int] = []
        for row in rows:
            line = row.text
            if row.wraps:
                text.append(line)
                origins += row.origins
            else:
                line = line.rstrip()
                text += (line, "\n")
                origins += row.origins[: len(line)]
                origins.append(NOWHERE)
        self.allowance -= len(origins)
        self._passages.append(Passage("".join(text), origins))

    def take(self) -> list[Passage]:
        taken, self._passages = self._passages, []
        self.allowance = BURST
        return taken


class Grid:
    """A terminal of `columns` x `height`, blank at first.

    read:    characters of output read so far; an unfinished control sequence is read later.
    strings: (start, end, start of the content) of the OSC and DCS sequences, which contain text, too.
    rows:    those of the screen, and above them some that scrolled off.
    """

    def __init__(self, columns: int, height: int) -> None:
        self.columns = max(columns, 1)
        self.height = max(height, 1)
        self.read = 0
        self.strings: list[tuple[int, int, int]] = []
        self._rest = ""
        self.rows = [GridRow() for _ in range(self.height)]  # those above the screen first
        self._primary: list[GridRow] | None = None  # while the alternate screen is shown
        self._x = self._y = 0
        self._saved = (0, 0)
        self._margins = (0, self.height - 1)
        self._kept = _KeptPassages()

    def feed(self, output: str) -> None:
        """Draw the next part of the output."""
        source, base = self._rest + output, self.read
        self._kept.allowance = min(self._kept.allowance, BURST) + SHARE * len(output)
        position = 0
        for match in _TOKEN.finditer(source):
            start = match.start()
            if start > position:
                self._print(source[position:start], base + position)
            position = match.end()
            self.read = base + position
            kind = match.lastgroup
            if kind == "final":
                final = match["final"]
                if final != "m":
                    self._csi(final, match["parameters"])
            elif kind == "control":
                self._control(match["control"])
            elif kind == "escape":
                self._escape(match["escape"])
            elif kind is not None:
                self.strings.append((base + start, base + position, base + match.start(kind)))
        end = len(source)
        unfinished = _UNFINISHED.search(source, position)
        if unfinished is not None and end - unfinished.start() <= SEQUENCE:
            end = unfinished.start()
        if end > position:
            self._print(source[position:end], base + position)
        self._rest = source[end:]
        self.read = base + end

    def resize(self, columns: int, height: int) -> None:
        """Change the size; leave the text as it is, because programs redraw it."""
        self.settle()
        self.columns, self.height = max(columns, 1), max(height, 1)
        self._margins = (0, self.height - 1)
        self._fill()
        self._move(self._x, self._y)

    def settle(self) -> None:
        """Keep the rows that have changed since the last call, as they are, with the adjacent rows."""
        rows, here = self.rows, 0
        for at in [number for number, row in enumerate(rows) if row.changed]:
            if at < here:
                continue
            first, here = self._context(at), at
            while here < len(rows) and (rows[here].changed or (here and rows[here - 1].wraps)):
                rows[here].changed = False
                here += 1
            self._kept.keep(rows[first : here + 1])
        self._kept.settled = self.read
        if (above := len(rows) - self.height - HISTORY) > 0:
            del rows[:above]

    def passages(self) -> list[Passage]:
        """Return the passages kept since the last call, including what is on the screen now."""
        self.settle()
        return self._kept.take()

    def before_cursor(self, most: int) -> tuple[str, Sequence[int]]:
        """Return the text left of the cursor and its origins, with the rows that wrap into it."""
        here = self._top + self._y
        row = self.rows[here]
        cells, origins = row.cells[: self._x], row.origins[: self._x]
        if len(cells) < self._x:
            return "", []
        while len(cells) < most and here and self.rows[here - 1].wraps:
            here -= 1
            cells[:0], origins[:0] = self.rows[here].cells, self.rows[here].origins
        return "".join(cells), origins

    def _context(self, here: int) -> int:
        """Return the index of the first row that is kept together with the one at `here`."""
        rows = self.rows
        first = max(here - 1, 0)
        while first and (rows[first - 1].wraps or _KEY_ROW.fullmatch(rows[first].text)):
            first -= 1
        return first

    def _lose(self, row: GridRow, start: int = 0, end: int | None = None) -> None:
        """Keep cells that are about to disappear and have not been kept."""
        lost = row.origins[start:end] if row.changed and self._kept.allowance > 0 else ()
        if max(lost, default=NOWHERE) >= self._kept.settled:
            self.settle()

    @property
    def _top(self) -> int:
        return len(self.rows) - self.height

    def _print(self, text: str, at: int) -> None:
        cells, origins = _cells(text, at)
        done, total = 0, len(cells)
        while done < total:
            if self._x >= self.columns:
                self.rows[self._top + self._y].wraps = True
                self._feed_line()
                self._x = 0
            x = self._x
            count = min(self.columns - x, total - done)
            row = self.rows[self._top + self._y]
            if x < len(row.cells):
                self.read = at + done  # a passage kept now does not contain this text
                self._lose(row, x, x + count)
            elif x > len(row.cells):
                row.origins.extend([NOWHERE] * (x - len(row.cells)))
                row.cells += " " * (x - len(row.cells))
            row.cells[x : x + count] = cells[done : done + count]
            row.origins[x : x + count] = array("q", origins[done : done + count])
            row.changed = True
            if x + count < self.columns:
                row.wraps = False
            self._x += count
            done += count

    def _control(self, control: str) -> None:
        if control == "\r":
            self._x = 0
        elif control == "\x08":
            self._x = max(min(self._x, self.columns - 1) - 1, 0)
        elif control == "\t":
            self._x = min((self._x // 8 + 1) * 8, self.columns - 1)
        else:
            self._feed_line()

    def _escape(self, final: str) -> None:
        if final == "7":
            self._saved = self._x, self._y
        elif final == "8":
            self._move(*self._saved)
        elif final in "DE":
            self._feed_line()
            if final == "E":
                self._x = 0
        elif final == "M":
            if self._y == self._margins[0]:
                self._insert(self._y, 1)
            else:
                self._move(self._x, self._y - 1)
        elif final == "c":
            self._margins = (0, self.height - 1)
            self._clear(0, self.height)
            self._move(0, 0)

    def _csi(self, final: str, parameters: str) -> None:
        if final in "hl":
            if not _ALTERNATE.isdisjoint(parameters.split(";")):
                self._switch(final == "h")
            return
        if parameters[:1] in ("<", "=", ">", "?") and final not in "JK":
            return
        numbers = [int(each[:5]) if each.isdecimal() else 0 for each in parameters.lstrip("?").split(";")]
        first = numbers[0]
        count = max(first, 1)
        if final in "Hf":
            self._move((numbers[1] if len(numbers) > 1 else 1) - 1, count - 1)
        elif final in "G`":
            self._move(count - 1, self._y)
        elif final == "d":
            self._move(self._x, count - 1)
        elif final in "Ca":
            self._move(self._x + count, self._y)
        elif final == "D":
            self._move(min(self._x, self.columns - 1) - count, self._y)
        elif final in "ABEFe":
            self._move(0 if final in "EF" else self._x, self._y + (-count if final in "AF" else count))
        elif final == "J":
            self._erase_screen(first)
        elif final == "K":
            self._erase_line(first)
        elif final in "X@P":
            self._shift(final, count)
        elif final in "LM":
            if self._margins[0] <= self._y <= self._margins[1]:
                self._insert(self._y, count, delete=final == "M")
        elif final == "T" and len(numbers) == 1:
            self._insert(self._margins[0], count)
        elif final == "S":
            for _ in range(min(count, self.height)):
                self._scroll()
        elif final == "r":
            bottom = min(numbers[1] if len(numbers) > 1 and numbers[1] else self.height, self.height) - 1
            if count - 1 < bottom:
                self._margins = (count - 1, bottom)
                self._move(0, 0)
        elif final in "su":
            self._escape("7" if final == "s" else "8")
        elif final == "p":  # DECSTR
            self._margins = (0, self.height - 1)

    def _move(self, x: int, y: int) -> None:
        self._x = min(max(x, 0), self.columns - 1)
        self._y = min(max(y, 0), self.height - 1)

    def _feed_line(self) -> None:
        if self._y == self._margins[1]:
            self._scroll()
        else:
            self._y = min(self._y + 1, self.height - 1)

    def _scroll(self) -> None:
        """Scroll up by one row between the margins; rows that leave the top of the screen stay above it."""
        top, bottom = self._margins
        if top:
            self._insert(top, 1, delete=True)
            return
        self.rows.insert(self._top + bottom + 1, GridRow())
        if len(self.rows) <= self.height + 2 * HISTORY:
            return
        if self._kept.allowance > 0 and any(row.changed for row in self.rows[:HISTORY]):
            self.settle()
        else:
            del self.rows[: self._top - HISTORY]

    def _insert(self, y: int, count: int, *, delete: bool = False) -> None:
        """Insert blank rows at `y`, or delete the rows there; those between it and the margin move."""
        bottom = self._margins[1]
        old, new = (y, bottom) if delete else (bottom, y)
        for _ in range(min(count, bottom - y + 1)):
            self._lose(self.rows[self._top + old])
            top = self._top
            del self.rows[top + old]
            self.rows.insert(top + new, GridRow())

    def _clear(self, first: int, last: int) -> None:
        for y in range(first, last):
            if (row := self.rows[self._top + y]).cells:
                self._lose(row)
                self.rows[self._top + y] = GridRow()

    def _erase_screen(self, how: int) -> None:
        if how == 0:
            self._erase_line(0)
            self._clear(self._y + 1, self.height)
        elif how == 1:
            self._erase_line(1)
            self._clear(0, self._y)
        elif how == 2:
            self._clear(0, self.height)

    def _erase_line(self, how: int) -> None:
        row = self.rows[self._top + self._y]
        if how == 0:
            self._lose(row, self._x)
            del row.cells[self._x :], row.origins[self._x :]
            row.wraps = False
        elif how == 1:
            self._blank(row, 0, self._x + 1)
        elif how == 2:
            self._lose(row)
            self.rows[self._top + self._y] = GridRow()

    def _shift(self, final: str, count: int) -> None:
        """Erase (ECH), insert (ICH) or delete (DCH) characters at the cursor."""
        row = self.rows[self._top + self._y]
        x, count = self._x, min(count, self.columns)
        if final == "X":
            self._blank(row, x, x + count)
        elif final == "P":
            self._lose(row, x, x + count)
            del row.cells[x : x + count], row.origins[x : x + count]
            row.wraps = False
        elif x < len(row.cells):
            self._lose(row, self.columns - count)
            row.cells[x:x] = " " * count
            row.origins[x:x] = array("q", [NOWHERE]) * count
            del row.cells[self.columns :], row.origins[self.columns :]

    def _blank(self, row: GridRow, start: int, end: int) -> None:
        self._lose(row, start, end)
        count = len(row.cells[start:end])
        row.cells[start : start + count] = " " * count
        row.origins[start : start + count] = array("q", [NOWHERE]) * count

    def _switch(self, alternate: bool) -> None:
        if alternate == (self._primary is not None):
            return
        self.settle()
        if self._primary is None:
            self._primary, self.rows = self.rows, [GridRow() for _ in range(self.height)]
        else:
            self.rows, self._primary = self._primary, None
            self._fill()

    def _fill(self) -> None:
        self.rows += [GridRow() for _ in range(self.height - len(self.rows))]


def _cells(text: str, at: int) -> tuple[Sequence[str], Sequence[int]]:
    """Return the cells and origins of `text`, in which characters may take two cells, or none."""
    widths = {} if text.isascii() else {character: width(character) for character in set(text)}
    if set(widths.values()) <= {1}:
        return text, range(at, at + len(text))
    cells: list[str] = []
    origins: list[int] = []
    for position, character in enumerate(text, start=at):
        if widths[character]:
            cells.append(character)
            origins.append(position)
        if widths[character] == 2:
            cells.append(" ")
            origins.append(NOWHERE)
    return cells, origins
