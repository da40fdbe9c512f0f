"""The virtual screen: a headless terminal on libghostty-vt that holds what a program has drawn.

    bytes of the program → VirtualScreen.feed ─┬→ drain    rows that scrolled off, each once
                                               ├→ rows     rows of the active screen
                                               └→ repaint  bytes that redraw it on another terminal

Where the library is not available (musl, old glibc, old macOS), opening a screen raises ScreenUnavailable,
and relay continues with the lines reader alone.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from ctypes import Structure, c_bool, c_int, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

from relay import lazy_re
from relay.columns import width
from relay.dataclass import dataclass, field
from relay.shim.modes import ALTERNATE, AT_REST, MODES_OFF, MODES_ON, ORIGIN, OSC_RESETS, POP_KEYBOARD
from relay.terminal import libghostty as vt
from relay.terminal.libghostty import ScreenUnavailable
from relay.terminal.pen import Pen, may_hide, palette_colour

_HISTORY = 2000
"""Scrolled-off rows kept for `history`."""

_SLICE = 2048
"""Bytes fed between two drains. The scrollback is bounded: the rows that one slice scrolls off must fit."""

_SCROLLBACK_LINES = 100_000
_SCROLLBACK_BYTES = 2 << 20
_SCROLLBACK_COLUMN = 32 << 10
"""Bytes of scrollback per column: `_SLICE` rows of cells, and as much for the library's pages."""

_MAX_COLUMNS, _MAX_ROWS = 2000, 1000
"""The largest screen that we draw. A terminal may claim 65535 x 65535 cells, which would exhaust memory."""

_CLUSTERS = 2027
"""DEC private mode: draw a grapheme cluster as one character. (On in most terminals that support it.)"""

_SEQUENCE = lazy_re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\-~])"
)

_TOKEN = lazy_re.compile(rb"(?P<sequence>%s)|[\x00-\x7f\xc0-\xff][\x80-\xbf]*" % _SEQUENCE.pattern)
"""A control sequence, or a character in UTF-8."""

_LOOK = lazy_re.compile(rb"\x1b\](\d{1,3})(?:;([^\x07\x1b]{0,200}))?(?:\x07|\x1b\\)|\x1b\[\d* q")
"""OSC sequences, and DECSCUSR, the cursor's shape."""

_LOOK_BEGINS = lazy_re.compile(rb"\x1b(?:\][^\x07\x1b]{0,210}\x1b?|\[\d{0,3} ?)?\Z")
"""The beginning of one that the next output may end."""

_LOOKS = 300
"""Maximum of them to keep: a palette has 256 colours."""

T = TypeVar("T")
V = TypeVar("V", bool, int)


class Colours(NamedTuple):
    """The colours of a cell as 0xRRGGBB, None for the terminal's default; reverse video is not applied."""

    foreground: int | None = None
    background: int | None = None


class Row(NamedTuple):
    """One row of the screen.

    text:    without trailing blanks.
    wrapped: the row soft-wraps into the next one.
    colours: of the row's first text that `note` named, or None.
    hidden:  some of the row is invisible; only checked if `note` asked for it.
    """

    text: str
    wrapped: bool = False
    colours: Colours | None = None
    hidden: bool = False


@dataclass(slots=True)
class Drained:
    """Rows that scrolled off the top since the last drain, oldest first.

    lost:    earlier rows were pruned before we could read them (a flood of scrolling sequences).
    history: the texts of the last rows that scrolled off, already drained or not.
    """

    rows: list[Row]
    lost: bool = False
    history: deque[str] = field(default_factory=lambda: deque(maxlen=_HISTORY))


@dataclass(slots=True)
class _Notes:
    """What rows report in addition to their text: see VirtualScreen.note. hides: there may be hidden text."""

    texts: tuple[str, ...] = ()
    colours: bool = False
    hides: bool = False


class _Looks:
    """What a program has set that the library does not draw: colours, the shapes of cursor and pointer.

    numbers: those of its OSC sequences that leave something set (relay.shim.modes.OSC_RESETS).
    plain:   no control sequence so far: there is no mode to undo.
    """

    def __init__(self) -> None:
        self.plain = True
        self.numbers: set[int] = set()
        self.unfinished = b""
        self._set: dict[bytes, bytes] = {}  # the last sequence for each

    def note(self, data: bytes) -> None:
        data = self.unfinished + data
        found = _LOOK_BEGINS.search(data)
        self.unfinished = found[0] if found else b""
        for match in _LOOK.finditer(data):
            number, value = match[1], match[2] or b""
            if number is None:
                self._set[b"cursor"] = match[0]
            elif value.endswith(b"?"):
                continue  # a query
            elif int(number) in OSC_RESETS:
                self.numbers.add(int(number))
                each = value.partition(b";")[0] if number in (b"4", b"5") else b""
                if number not in (b"8", b"9") and len(self._set) < _LOOKS:
                    self._set[number + each] = match[0]
            elif len(number) == 3 and int(number[1:]) in OSC_RESETS and not value:
                for key in [key for key in self._set if key.startswith(number[1:].lstrip(b"0"))]:
                    del self._set[key]

    def drawn(self) -> bytes:
        """Return bytes that set it again."""
        return b"".join(self._set.values())


class _CallFailed(Exception):
    """The library refused a call."""


class VirtualScreen:
    """A headless terminal of `columns` x `rows` cells. Not thread-safe: use it from one thread.

    failed: None, or why analysis has stopped: `feed` then does nothing, and everything else shows the last
            state.
    """

    def __init__(self, columns: int, rows: int) -> None:
        """Raise ScreenUnavailable if the library cannot be loaded."""
        self._lib = vt.load()
        self.failed: str | None = None
        self._notes = _Notes()
        self._on_reply: Callable[[bytes], None] | None = None
        self._drained = Drained([])
        self._rows: list[Row] | None = None  # cached rows of the active screen, unless it has changed
        self._looks = _Looks()
        self._take: Callable[[int, int, int], list[Row]] | None = None  # reads the rows that scroll off
        self._size = _bounded(columns, rows)
        self._terminal: c_void_p | None = c_void_p()
        self._mark = c_void_p()
        _check_open(self._lib.ghostty_terminal_new(None, ctypes.byref(self._terminal), *self._size))
        # Keep the callback as long as the screen: the library stores its address.
        self._reply_callback = vt.WritePtyFn(self._reply)
        self._bound_scrollback()
        # A row that scrolled off has been read: it must never return to the screen.
        self._set(vt.OPT_RESIZE_PULL_SCROLLBACK, c_bool(False))
        # Agents count columns by grapheme cluster: an emoji with its joiners and modifiers takes two.
        self._set(vt.OPT_MODE_DEFAULT, vt.ModeConfig(mode=_CLUSTERS, value=True))

    def feed(self, data: bytes, *, keep: bool = True) -> None:
        """Interpret the program's output. Never raise: a failure sets `failed`.

        keep: False drops the rows that scroll off the primary screen meanwhile.
        """
        if self.failed is not None or self._terminal is None:
            return
        self._rows = None
        looks = self._looks
        looks.plain = looks.plain and b"\x1b" not in data and b"\x0e" not in data
        if looks.unfinished or b"\x1b]" in data or b" q" in data:
            looks.note(data)
        elif b"\x1b" in data[-5:]:
            looks.note(data[-5:])
        if not looks.plain and not self._notes.hides:
            self._notes.hides = may_hide(data)
        try:
            size = _SLICE if self._take is not None and keep else len(data)
            for start in range(0, len(data), size or 1):
                piece = data[start : start + size]
                self._lib.ghostty_terminal_vt_write(self._terminal, piece, len(piece))
                if keep:
                    self._collect()
            if not keep and self._take is not None and not self.alternate:
                self._move_mark()
        except _CallFailed as error:
            self.failed = f"the virtual screen stopped: {error}"

    def collect(self, *, drawn: bool = False) -> None:
        """Start keeping the rows that scroll off for `drain`; before this call, they are dropped.

        drawn: their texts are the decoded bytes that draw them (SGR and hyperlinks).
        """
        if self._take is not None or self._terminal is None or self.failed is not None:
            return
        self._take = self._read_drawn if drawn else self._read
        self._bound_scrollback()
        track = self._lib.ghostty_terminal_grid_ref_track
        if (result := track(self._terminal, vt.Point(vt.ACTIVE), ctypes.byref(self._mark))) != 0:
            self.failed = f"the virtual screen stopped: marking it failed with {result}"

    @property
    def history(self) -> deque[str]:
        """The texts of the last rows that scrolled off the primary screen since `collect`."""
        return self._drained.history

    def drain(self) -> Drained:
        """Return and clear the rows that scrolled off the primary screen since the last call."""
        drained = self._drained
        self._drained = Drained([], history=drained.history)
        return drained

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; the primary screen rewraps its soft-wrapped lines."""
        if self.failed is not None or self._terminal is None:
            return
        size = _bounded(columns, rows)
        self._rows = None
        synchronized = self.synchronized and self.ground
        try:
            # The pixel sizes only matter for size reports and images.
            _check(self._lib.ghostty_terminal_resize(self._terminal, *size, 8, 16), "resizing")
            self._size = size
            self._collect()
            self._bound_scrollback()
            if synchronized:  # the library ends the frame, but the program has not
                self.feed(b"\x1b[?2026h")
        except _CallFailed as error:
            self.failed = f"the virtual screen stopped: {error}"

    @property
    def columns(self) -> int:
        return self._size[0]

    @property
    def height(self) -> int:
        """The number of rows of the active screen."""
        return self._size[1]

    @property
    def cursor(self) -> tuple[int, int]:
        """(x, y), zero-based, in the active screen."""
        return self._value(vt.CURSOR_X, c_uint16), self._value(vt.CURSOR_Y, c_uint16)

    @property
    def cursor_visible(self) -> bool:
        """DECTCEM, mode 25."""
        return self._value(vt.CURSOR_VISIBLE, c_bool)

    @property
    def alternate(self) -> bool:
        """The alternate screen is active (modes 47, 1047, 1049)."""
        return self._value(vt.ACTIVE_SCREEN, c_int) == 1

    @property
    def bracketed_paste(self) -> bool:
        """Mode 2004."""
        return self.mode(2004)

    @property
    def synchronized(self) -> bool:
        """Mode 2026: the program is in the middle of a frame."""
        return self.mode(2026)

    @property
    def ground(self) -> bool:
        """The parser is not inside a sequence or a character."""
        return self._value(vt.VT_GROUND, c_bool)

    @property
    def title(self) -> str:
        """The title last set by OSC 0 or OSC 2."""
        out = vt.String()
        self._get(vt.TITLE, out)
        return ctypes.string_at(out.ptr, out.len).decode("utf-8", "replace") if out.len else ""

    def mode(self, number: int) -> bool:
        """Return True if the DEC private mode `number` is set."""
        config = vt.ModeConfig(mode=number)
        self._get(vt.MODE, config)
        return bool(config.value)

    def rows(self) -> list[Row]:
        """Return the rows of the active screen, exactly `height` of them."""
        if self._rows is None:
            blank = [Row("")] * self.height
            self._rows = self._attempt(lambda: self._read(vt.ACTIVE, 0, self.height), blank)
        return list(self._rows)

    def colours(self, x: int, y: int) -> Colours:
        """Return the colours of one cell of the active screen, zero-based."""
        return self._attempt(lambda: self._colours(vt.ACTIVE, x, y), Colours())

    def faint(self, x: int, y: int) -> bool:
        """Return True if a cell of the active screen is faint (SGR 2)."""
        return self._attempt(lambda: bool(self._style(vt.ACTIVE, x, y).faint), False)

    def repaint(self, *, joined: bool = True) -> bytes:
        """Return bytes that draw the active screen with colours, cursor and modes on a fresh terminal.

        joined: wrapped rows have no line end, so the terminal wraps them again; else every row has one.
        """
        if self._terminal is None or self.failed is not None:
            return b""
        enter = b"\x1b[?1049h" if self.alternate else b""
        # Start from a known state: no attributes, whole-screen region, absolute origin, cleared.
        clear = b"\x1b[0m\x1b[r\x1b[?6l\x1b[H\x1b[2J"
        try:
            body = self._format_screen()
            body = self._joined(body) if joined else body
        except _CallFailed:
            return enter + clear
        x, y = self.cursor
        place = b"\x1b[%d;%dH" % (y + 1, x + 1)
        text = self.rows()[y].text
        last = text[-1:] if sum(map(width, text)) >= self.columns else " "
        if self._value(vt.PENDING_WRAP, c_bool) and last.isascii():
            place += last.encode()  # only writing a character in the last column leaves a wrap pending
        visible = b"\x1b[?25h" if self.cursor_visible else b"\x1b[?25l"
        return enter + clear + self._looks.drawn() + body + place + visible

    def _joined(self, body: bytes) -> bytes:
        """Return `body`, rows separated by line ends, without the line ends of soft-wrapped rows."""
        drawn = body.split(b"\r\n")
        if not self.mode(7):
            return body
        for at, (row, below) in enumerate(pairwise(self.rows()[: len(drawn) + 1])):
            if row.wrapped:  # the wrap reappears only if both rows have something drawn in them
                unfit = self._is_spacer_head(self._ref(vt.ACTIVE, self.columns - 1, at))
                drawn[at] += b" " * (unfit if _draws(drawn[at]) else self.columns)
                if not (below.wrapped or _draws(b"".join(drawn[at + 1 : at + 2]))):
                    drawn[at] += b" \r\x1b[X"  # the row's continuation was erased
            elif at < len(drawn) - 1:
                drawn[at] += b"\r\n"
        return b"".join(drawn)

    def modes_reset(self) -> bytes:
        """Return bytes that undo the modes that the program has set, for a terminal it has left."""
        if self._terminal is None or self._looks.plain:
            return b""
        parts = [POP_KEYBOARD] if self._value(vt.KITTY_KEYBOARD_FLAGS, c_uint8) else []
        parts += [b"\x1b[?%dl" % number for number in (ORIGIN, *MODES_OFF) if self.mode(number)]
        parts += [b"\x1b[?%dh" % number for number in MODES_ON if not self.mode(number)]
        if self.alternate:
            used = next((number for number in ALTERNATE if self.mode(number)), 1049)
            parts.append(b"\x1b[?%dl" % used)
        parts += [b"\x1b]%s\x1b\\" % OSC_RESETS[number] for number in sorted(self._looks.numbers)]
        return b"".join(parts) + AT_REST

    def close(self) -> None:
        if self._terminal is not None:
            if self._mark:
                self._lib.ghostty_tracked_grid_ref_free(self._mark)
                self._mark = c_void_p()
            self._lib.ghostty_terminal_free(self._terminal)
            self._terminal = None

    def __del__(self) -> None:
        if getattr(self, "_terminal", None) is not None:
            self.close()

    def note(self, *texts: str, colours: bool) -> None:
        """Make rows that are read together with one of `texts` report whether they are partly hidden.

        colours: rows with one of `texts` also report the text's colours. Both cost time.
        """
        self._notes.texts, self._notes.colours = texts, colours
        self._rows = None

    def answer_queries(self, reply: Callable[[bytes], None] | None) -> None:
        """Pass answers to the program's queries (cursor position, device attributes) to `reply`.

        None (the default): don't answer; the user's terminal does.
        """
        self._on_reply = reply
        callback = None if reply is None else self._reply_callback
        self._lib.ghostty_terminal_set(self._terminal, vt.OPT_WRITE_PTY, callback)

    # Calls into the library

    def _attempt(self, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of `read`; if the library refuses, set `failed` and return `otherwise`."""
        if self._terminal is not None:
            try:
                return read()
            except _CallFailed as error:
                self.failed = f"the virtual screen stopped: {error}"
        return otherwise

    def _set(self, option: int, value: c_size_t | c_bool | vt.ModeConfig) -> None:
        _check_open(self._lib.ghostty_terminal_set(self._terminal, option, ctypes.byref(value)))

    def _get(self, data: int, out: Structure | ctypes._SimpleCData[int] | ctypes._SimpleCData[bool]) -> None:
        if self._terminal is not None:
            self._lib.ghostty_terminal_get(self._terminal, data, ctypes.byref(out))

    def _value(self, data: int, kind: type[ctypes._SimpleCData[V]]) -> V:
        out = kind()
        self._get(data, out)
        return out.value

    def _reply(self, _terminal: int, _userdata: int, data: int, size: int) -> None:
        if self._on_reply is not None:
            self._on_reply(ctypes.string_at(data, size))

    def _bound_scrollback(self) -> None:
        """Let the library keep as much as we may have to drain, and no lines before `collect`."""
        lines = _SCROLLBACK_LINES if self._take is not None else 0
        self._set(vt.OPT_SCROLLBACK_MAX_LINES, c_size_t(lines))
        size = max(_SCROLLBACK_BYTES, self.columns * _SCROLLBACK_COLUMN)
        self._set(vt.OPT_SCROLLBACK_MAX_BYTES, c_size_t(size))

    def _collect(self) -> None:
        """Read the rows that scrolled off since the last call.

        The mark is a reference to the first row that had not scrolled off; the library moves it along.
        """
        if self._take is None or self.alternate:
            return  # the mark stays in the primary screen, and the alternate one has no scrollback
        scrollback = self._value(vt.SCROLLBACK_ROWS, c_size_t)
        where = vt.Coordinate()
        if self._lib.ghostty_tracked_grid_ref_point(self._mark, vt.SCREEN, ctypes.byref(where)) == 0:
            first = where.y
            if first == scrollback:
                return
        else:  # the row was pruned, or erased by a reset, after which nothing has scrolled off
            first = 0
            self._drained.lost |= scrollback > 0
        if first < scrollback:
            rows = self._take(vt.SCREEN, first, scrollback - first)
            self._drained.rows += rows
            self._drained.history.extend(row.text for row in rows)
        self._move_mark()

    def _move_mark(self) -> None:
        move = self._lib.ghostty_tracked_grid_ref_set
        _check(move(self._mark, self._terminal, vt.Point(vt.ACTIVE)), "marking the screen")

    def _ref(self, tag: int, x: int, y: int) -> vt.GridRef:
        ref = vt.GridRef()
        point = vt.Point(tag, vt.PointValue(x, y))
        _check(self._lib.ghostty_terminal_grid_ref(self._terminal, point, ctypes.byref(ref)), "reading a row")
        return ref

    def _read(self, tag: int, first: int, count: int) -> list[Row]:
        """Return `count` rows from row `first` on, in the coordinate system `tag`."""
        selection = self._selection(tag, first, count)
        whole = self._format_rows(selection, True, count)
        texts = whole.split("\n")
        if len(texts) == count:  # the common case: none of these rows wraps into another one
            rows = [Row(text) for text in texts]
            rows[-1] = Row(texts[-1], self._row_has(vt.ROW_WRAP, tag, first + count - 1))
        else:
            lines, texts = texts, self._format_rows(selection, False, count).split("\n")
            texts += [""] * (count - len(texts))
            rows = [
                Row(text, self._row_has(vt.ROW_WRAP, tag, first + y) if wrapped is None else wrapped)
                for y, (text, wrapped) in enumerate(zip(texts, _wraps(lines, texts), strict=True))
            ]
        noted = [text for text in self._notes.texts if text in whole]
        if noted and self._notes.colours:
            for y, row in enumerate(rows):
                at = min((at for text in noted if (at := row.text.find(text)) >= 0), default=-1)
                if at >= 0:
                    rows[y] = row._replace(colours=self._colours(tag, at, first + y))
        if noted and self._notes.hides:
            for y in self._hidden(selection, count):
                rows[y] = rows[y]._replace(hidden=True)
        return rows

    def _selection(self, tag: int, first: int, count: int, *, trim: bool = True) -> vt.Selection:
        start, end = self._ref(tag, 0, first), self._ref(tag, self.columns - 1, first + count - 1)
        if trim and self._is_spacer_head(end):
            end.x -= 1  # else the selection would include the wide character in the next row
        return vt.Selection(start, end, False)

    def _hidden(self, selection: vt.Selection, count: int) -> list[int]:
        """Return the indices (from 0) of the `count` rows of `selection` that are partly or fully hidden."""
        drawn = self._format_rows(selection, False, count, vt.VT)
        # The library writes each attribute as its own sequence.
        if "\x1b[8m" not in drawn and "\x1b[48;" not in drawn:
            return []
        pen = Pen()
        return [y for y, row in enumerate(drawn.encode().split(b"\r\n")[:count]) if pen.write_row(row)]

    def _colours(self, tag: int, at: int, y: int) -> Colours:
        """Return the colours of character `at` in row `y`, assuming one column per character before it."""
        style = self._style(tag, min(at, self.columns - 1), y)
        return Colours(_rgb(style.foreground), _rgb(style.background))

    def _style(self, tag: int, x: int, y: int) -> vt.CellStyle:
        ref, style = self._ref(tag, x, y), vt.CellStyle()
        _check(self._lib.ghostty_grid_ref_style(ctypes.byref(ref), ctypes.byref(style)), "reading a style")
        return style

    def _format_rows(self, selection: vt.Selection, unwrap: bool, count: int, emit: int = vt.PLAIN) -> str:
        options = vt.SelectionFormat(emit, unwrap, True, ctypes.pointer(selection))
        call = partial(self._lib.ghostty_terminal_selection_format_buf, self._terminal, options)
        return _fill(call, count * (self.columns + 1) + 256).decode("utf-8", "replace")

    def _width(self, ref: vt.GridRef) -> int:
        """Return the cell's part in a wide character, as a GhosttyCellWide."""
        raw, wide = c_uint64(), c_int()
        _check(self._lib.ghostty_grid_ref_cell(ctypes.byref(ref), ctypes.byref(raw)), "reading a cell")
        _check(self._lib.ghostty_cell_get(raw, vt.CELL_WIDE, ctypes.byref(wide)), "reading a cell")
        return wide.value

    def _is_spacer_head(self, ref: vt.GridRef) -> bool:
        return self._width(ref) == vt.SPACER_HEAD

    def _row_has(self, what: int, tag: int, y: int) -> bool:
        """Return a row's property, one of GhosttyRowData."""
        ref, raw, has = self._ref(tag, 0, y), c_uint64(), c_bool()
        _check(self._lib.ghostty_grid_ref_row(ctypes.byref(ref), ctypes.byref(raw)), "reading a row")
        _check(self._lib.ghostty_row_get(raw, what, ctypes.byref(has)), "reading a row")
        return has.value

    def _linked(self, drawn: bytes, tag: int, y: int) -> bytes:
        """Return `drawn`, which draws row `y`, with the hyperlinks, which the library's formatter omits."""
        if not self._row_has(vt.ROW_LINKED, tag, y):
            return drawn
        tokens = _TOKEN.finditer(drawn)
        done, link, end = bytearray(), b"", 0
        for x in range(self.columns):
            ref = self._ref(tag, x, y)
            if self._width(ref) in (vt.SPACER_TAIL, vt.SPACER_HEAD):
                continue
            size = c_size_t()
            self._lib.ghostty_grid_ref_graphemes(ctypes.byref(ref), None, 0, ctypes.byref(size))
            uri = _fill(partial(self._lib.ghostty_grid_ref_hyperlink_uri, ctypes.byref(ref)), 256)
            left = max(size.value, 1)
            for token in tokens:
                if token.lastgroup == "sequence":
                    done += token[0]
                    continue
                if uri != link:
                    done += b"\x1b]8;;%s\x1b\\" % uri
                    link = uri
                done += token[0]
                end = len(done)
                left -= 1
                if not left:
                    break
        if link:  # the sequences that follow may open the program's next link
            done[end:end] = b"\x1b]8;;\x1b\\"
        return bytes(done + b"".join(token[0] for token in tokens))

    def _read_drawn(self, tag: int, first: int, count: int) -> list[Row]:
        """Return rows as `_read` does, each as the bytes that draw it."""
        extra = vt.TerminalExtra(screen=vt.ScreenExtra(style=True))
        drawn = ((y, self._format(tag, y, 1, extra, trim=True)) for y in range(first, first + count))
        rows = (self._linked(row, tag, y) for y, row in drawn)
        return [Row(row.decode("utf-8", "replace")) for row in rows]

    def _format_screen(self) -> bytes:
        screen = vt.ScreenExtra(style=True, hyperlink=True, kitty_keyboard=True, charsets=True)
        extra = vt.TerminalExtra(
            modes=True, scrolling_region=True, tabstops=True, keyboard=True, screen=screen
        )
        drawn = self._format(vt.ACTIVE, 0, self.height, extra).split(b"\r\n")
        return b"\r\n".join(self._linked(row, vt.ACTIVE, y) for y, row in enumerate(drawn))

    def _format(
        self, tag: int, first: int, count: int, extra: vt.TerminalExtra, *, trim: bool = False
    ) -> bytes:
        """Return bytes that draw `count` rows from row `first` on. trim: without trailing blanks."""
        selection = ctypes.pointer(self._selection(tag, first, count, trim=trim))
        options = vt.FormatterOptions(emit=vt.VT, trim=trim, extra=extra, selection=selection)
        formatter = c_void_p()
        create = self._lib.ghostty_formatter_terminal_new
        _check(create(None, ctypes.byref(formatter), self._terminal, options), "formatting the screen")
        try:
            call = partial(self._lib.ghostty_formatter_format_buf, formatter)
            return _fill(call, 16 * self.columns * count)
        finally:
            self._lib.ghostty_formatter_free(formatter)


def _wraps(lines: list[str], rows: list[str]) -> list[bool | None]:
    """Return which `rows` wrap into the next one, if they are `lines` when joined.

    None: a blank row makes that unclear. The library's own answer takes three calls for each row.
    """
    unclear: list[bool | None] = [None] * len(rows)
    wraps, padded = list[bool | None](), [*rows, ""]
    for line in lines:
        while (row := padded[len(wraps)]) and line != row and line.startswith(row):
            line = line[len(row) :]
            wraps.append(True)
        if line != row or len(wraps) == len(rows):
            return unclear
        wraps.append(None if row and not padded[len(wraps) + 1] else False)
    left = rows[len(wraps) :]  # `lines` lack the blank rows at the end
    return unclear if any(left) else [*wraps, *[False] * len(left)]


def _draws(formatted: bytes) -> bool:
    """Return True if `formatted`, one row, draws any characters."""
    return _SEQUENCE.sub(b"", formatted) != b""


def _rgb(colour: vt.StyleColor) -> int | None:
    """Return `colour` as 0xRRGGBB; palette colours as in xterm."""
    raw: bytes = colour.value.to_bytes(8, sys.byteorder)
    if colour.tag == vt.COLOR_RGB:
        return int.from_bytes(raw[:3])
    return palette_colour(raw[0]) if colour.tag == vt.COLOR_PALETTE else None


def _bounded(columns: int, rows: int) -> tuple[int, int]:
    return min(max(columns, 1), _MAX_COLUMNS), min(max(rows, 1), _MAX_ROWS)


def _check_open(result: int) -> None:
    if result != 0:
        raise ScreenUnavailable(f"the virtual screen cannot be opened (libghostty-vt returned {result}).")


def _fill(call: Callable[..., int], size: int) -> bytes:
    """Return the output of `call(buffer, size, needed)`; call again if `size` was too small."""
    needed = c_size_t()
    buffer = ctypes.create_string_buffer(size)
    if (result := call(buffer, size, ctypes.byref(needed))) == vt.OUT_OF_SPACE:
        buffer = ctypes.create_string_buffer(needed.value)
        result = call(buffer, needed.value, ctypes.byref(needed))
    _check(result, "reading the screen")
    return ctypes.string_at(buffer, needed.value)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise _CallFailed(f"{what} failed with {result}")
