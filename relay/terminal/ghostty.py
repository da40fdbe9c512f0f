"""The virtual screen on libghostty-vt, bound with ctypes.

The shared library comes from the PyPI package `pyghostty` (pinned exactly: the ABI below is that of its
libghostty-vt, declared in `pyghostty/_cdef.py`).  The package itself is never imported: that takes 150 ms,
loading the library takes five.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path

from relay.terminal.screen import Drained, Row, ScreenUnavailable

_SLICE = 4096
"""Bytes fed between two drains. The scrollback is bounded, so what one slice scrolls off must fit in it."""

_SCROLLBACK_LINES = 8192
_SCROLLBACK_BYTES = 32 << 20
_OSC_BYTES = 4096

# enum GhosttyResult
_OUT_OF_SPACE = -3
# enum GhosttyFormatterFormat
_PLAIN, _VT = 0, 1
# enum GhosttyPointTag
_ACTIVE, _SCREEN = 0, 2
# enum GhosttyTerminalOption
_OPT_WRITE_PTY = 1
_OPT_SCROLLBACK_MAX_BYTES = 27
_OPT_SCROLLBACK_MAX_LINES = 28
_OPT_UNKNOWN_SEQUENCE = 35
_OPT_UNKNOWN_MAX_BYTES = 36
_OPT_RESIZE_PULL_SCROLLBACK = 40
# enum GhosttyTerminalData
_CURSOR_X, _CURSOR_Y, _PENDING_WRAP = 3, 4, 5
_ACTIVE_SCREEN, _CURSOR_VISIBLE, _KITTY_KEYBOARD_FLAGS = 6, 7, 8
_TITLE, _SCROLLBACK_ROWS, _MODE, _VT_GROUND = 12, 15, 37, 38
# enum GhosttyCellData, and of GhosttyCellWide the value of the cell that is left empty at the right margin
# because a wide character did not fit
_CELL_WIDE, _SPACER_HEAD = 3, 3
# enum GhosttyRowData
_ROW_WRAP = 1
# enum GhosttyTerminalUnknownSequenceTag
_UNKNOWN_OSC = 1

# DEC private modes that outlive their program on a terminal, with the state a terminal starts in (xterm
# ctlseqs, "DEC Private Mode Set"; 2004, 2026, 2027, 2031 and 2048 are their successors' common additions).
_MODES_OFF = (1, 5, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2031, 2048)
_MODES_ON = (7, 25)
_ALTERNATE_MODES = (1049, 1047, 47)


class _String(Structure):
    _fields_ = (("ptr", c_void_p), ("len", c_size_t))


class _GridRef(Structure):
    _fields_ = (("size", c_size_t), ("node", c_void_p), ("x", c_uint16), ("y", c_uint16))


class _Coordinate(Structure):
    _fields_ = (("x", c_uint16), ("y", c_uint32))


class _PointValue(Structure):
    # As wide and as aligned as the union's `uint64_t _padding[2]`.
    _fields_ = (("x", c_uint16), ("y", c_uint32), ("_padding", c_uint64))


class _Point(Structure):
    # GhosttyPoint is a tagged union of 24 bytes; a composite of that size is passed in memory (SysV,
    # AAPCS64), so that a structure of the same layout stands for it: ctypes passes no unions by value.
    _fields_ = (("tag", c_int), ("value", _PointValue))


class _Selection(Structure):
    _fields_ = (("size", c_size_t), ("start", _GridRef), ("end", _GridRef), ("rectangle", c_bool))


class _SelectionFormat(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("emit", c_int),
        ("unwrap", c_bool),
        ("trim", c_bool),
        ("selection", POINTER(_Selection)),
    )


class _ScreenExtra(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("cursor", c_bool),
        ("style", c_bool),
        ("hyperlink", c_bool),
        ("protection", c_bool),
        ("kitty_keyboard", c_bool),
        ("charsets", c_bool),
    )


class _TerminalExtra(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("palette", c_bool),
        ("modes", c_bool),
        ("scrolling_region", c_bool),
        ("tabstops", c_bool),
        ("pwd", c_bool),
        ("keyboard", c_bool),
        ("screen", _ScreenExtra),
    )


class _FormatterOptions(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("emit", c_int),
        ("unwrap", c_bool),
        ("trim", c_bool),
        ("extra", _TerminalExtra),
        ("selection", POINTER(_Selection)),
    )


class _ModeConfig(Structure):
    _fields_ = (("mode", c_uint16), ("value", c_bool))


class _UnknownOsc(Structure):
    _fields_ = (("truncated", c_bool), ("content", _String), ("terminator", c_int))


class _UnknownSequence(Structure):
    # GhosttyTerminalUnknownSequence; of its union only the OSC member is read, and never by value.
    _fields_ = (("tag", c_int), ("osc", _UnknownOsc))


_UnknownFn = CFUNCTYPE(None, c_void_p, c_void_p, POINTER(_UnknownSequence))
_WritePtyFn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)

_SIGNATURES: dict[str, tuple[list[object], object]] = {
    "terminal_new": ([c_void_p, POINTER(c_void_p), c_uint16, c_uint16], c_int),
    "terminal_free": ([c_void_p], None),
    "terminal_set": ([c_void_p, c_int, c_void_p], c_int),
    "terminal_get": ([c_void_p, c_int, c_void_p], c_int),
    "terminal_resize": ([c_void_p, c_uint16, c_uint16, c_uint32, c_uint32], c_int),
    "terminal_vt_write": ([c_void_p, c_char_p, c_size_t], None),
    "terminal_grid_ref": ([c_void_p, _Point, POINTER(_GridRef)], c_int),
    "terminal_grid_ref_track": ([c_void_p, _Point, POINTER(c_void_p)], c_int),
    "tracked_grid_ref_free": ([c_void_p], None),
    "tracked_grid_ref_point": ([c_void_p, c_int, POINTER(_Coordinate)], c_int),
    "tracked_grid_ref_set": ([c_void_p, c_void_p, _Point], c_int),
    "grid_ref_cell": ([POINTER(_GridRef), POINTER(c_uint64)], c_int),
    "cell_get": ([c_uint64, c_int, c_void_p], c_int),
    "grid_ref_row": ([POINTER(_GridRef), POINTER(c_uint64)], c_int),
    "row_get": ([c_uint64, c_int, c_void_p], c_int),
    "terminal_selection_format_buf": (
        [c_void_p, _SelectionFormat, c_void_p, c_size_t, POINTER(c_size_t)],
        c_int,
    ),
    "formatter_terminal_new": ([c_void_p, POINTER(c_void_p), c_void_p, _FormatterOptions], c_int),
    "formatter_format_buf": ([c_void_p, c_void_p, c_size_t, POINTER(c_size_t)], c_int),
    "formatter_free": ([c_void_p], None),
}


def library_path() -> Path:
    """Where pyghostty's shared library lies, found without importing pyghostty."""
    try:
        files = importlib.metadata.files("pyghostty") or []
    except importlib.metadata.PackageNotFoundError:
        raise ScreenUnavailable(
            "the package pyghostty is not installed, so relay cannot follow full-screen programs. "
            "Install it with: pip install pyghostty==0.1.3"
        ) from None
    for file in files:
        if file.name.startswith("libghostty-vt."):
            return Path(str(file.locate()))
    raise ScreenUnavailable(
        "the installed pyghostty has no shared library. "
        "Install it anew: pip install --force-reinstall pyghostty==0.1.3"
    )


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    try:
        lib = ctypes.CDLL(str(path))
        for name, (arguments, result) in _SIGNATURES.items():
            function = getattr(lib, f"ghostty_{name}")
            function.argtypes = arguments
            function.restype = result
    except (OSError, AttributeError) as error:
        raise ScreenUnavailable(
            f"the library {path} cannot be used on this system ({error}). "
            "Full-screen programs are forwarded, but what they say is not read."
        ) from None
    return lib


class _CallFailed(Exception):
    """A call into the library was refused."""


def _check(result: int, what: str) -> None:
    if result != 0:
        raise _CallFailed(f"{what} failed with {result}")


class GhosttyScreen:
    """A `relay.terminal.screen.Screen`."""

    def __init__(self, columns: int, rows: int) -> None:
        self._lib = _library()
        self.failed: str | None = None
        self.base = 0
        self.on_osc: Callable[[bytes], None] | None = None
        self._on_reply: Callable[[bytes], None] | None = None
        self._drained: list[Row] = []
        self._lost = False
        self._collecting = False
        self._size = (max(columns, 1), max(rows, 1))
        self._terminal: c_void_p | None = c_void_p()
        self._mark = c_void_p()
        _check_open(self._lib.ghostty_terminal_new(None, ctypes.byref(self._terminal), *self._size))
        # The callbacks live as long as the screen: the library keeps their addresses.
        self._unknown_callback = _UnknownFn(self._unknown)
        self._reply_callback = _WritePtyFn(self._reply)
        self._set(_OPT_SCROLLBACK_MAX_LINES, c_size_t(_SCROLLBACK_LINES))
        self._set(_OPT_SCROLLBACK_MAX_BYTES, c_size_t(_SCROLLBACK_BYTES))
        # A row that scrolled off has been read: it must never come back on to the screen.
        self._set(_OPT_RESIZE_PULL_SCROLLBACK, c_bool(False))
        self._set(_OPT_UNKNOWN_MAX_BYTES, c_size_t(_OSC_BYTES))
        self._lib.ghostty_terminal_set(self._terminal, _OPT_UNKNOWN_SEQUENCE, self._unknown_callback)

    # What the program did

    def feed(self, data: bytes) -> None:
        if self.failed is not None or self._terminal is None:
            return
        try:
            size = _SLICE if self._collecting else len(data)
            for start in range(0, len(data), size or 1):
                piece = data[start : start + size]
                self._lib.ghostty_terminal_vt_write(self._terminal, piece, len(piece))
                self._collect()
        except _CallFailed as error:
            self.failed = f"the virtual screen stopped: {error}"

    def collect(self) -> None:
        if self._collecting or self._terminal is None or self.failed is not None:
            return
        result = self._lib.ghostty_terminal_grid_ref_track(
            self._terminal, _Point(_ACTIVE), ctypes.byref(self._mark)
        )
        if result != 0:
            self.failed = f"the virtual screen stopped: marking it failed with {result}"
        self._collecting = True

    def drain(self) -> Drained:
        drained = Drained(self._drained, self._lost)
        self.base += len(self._drained)
        self._drained, self._lost = [], False
        return drained

    def resize(self, columns: int, rows: int) -> None:
        if self.failed is not None or self._terminal is None:
            return
        size = (max(columns, 1), max(rows, 1))
        try:
            # The pixel sizes matter to size reports and images only.
            _check(self._lib.ghostty_terminal_resize(self._terminal, *size, 8, 16), "resizing")
            self._size = size
            self._collect()
        except _CallFailed as error:
            self.failed = f"the virtual screen stopped: {error}"

    # What it shows

    @property
    def columns(self) -> int:
        return self._size[0]

    @property
    def height(self) -> int:
        return self._size[1]

    @property
    def cursor(self) -> tuple[int, int]:
        return self._number(_CURSOR_X), self._number(_CURSOR_Y)

    @property
    def cursor_visible(self) -> bool:
        return self._flag(_CURSOR_VISIBLE)

    @property
    def alternate(self) -> bool:
        out = c_int()
        self._get(_ACTIVE_SCREEN, out)
        return out.value == 1

    @property
    def bracketed_paste(self) -> bool:
        return self.mode(2004)

    @property
    def synchronized(self) -> bool:
        return self.mode(2026)

    @property
    def ground(self) -> bool:
        return self._flag(_VT_GROUND)

    @property
    def title(self) -> str:
        out = _String()
        self._get(_TITLE, out)
        return ctypes.string_at(out.ptr, out.len).decode("utf-8", "replace") if out.len else ""

    def mode(self, number: int) -> bool:
        """Whether the DEC private mode `number` is set."""
        config = _ModeConfig(mode=number)
        self._get(_MODE, config)
        return bool(config.value)

    def rows(self) -> list[Row]:
        if self._terminal is None:
            return [Row("")] * self.height
        try:
            return self._read(_ACTIVE, 0, self.height)
        except _CallFailed as error:
            self.failed = f"the virtual screen stopped: {error}"
            return [Row("")] * self.height

    def repaint(self) -> bytes:
        if self._terminal is None or self.failed is not None:
            return b""
        enter = b"\x1b[?1049h" if self.alternate else b""
        # Begin from a known state: no attributes, whole-screen region, absolute origin, cleared.
        clear = b"\x1b[0m\x1b[r\x1b[?6l\x1b[H\x1b[2J"
        try:
            body = self._format_screen()
        except _CallFailed:
            return enter + clear
        x, y = self.cursor
        place = b"\x1b[%d;%dH" % (y + 1, x + 1)
        if self._flag(_PENDING_WRAP) and (last := self.rows()[y].text[-1:]).isascii():
            place += last.encode()  # only a character written in the last column leaves the wrap pending
        visible = b"\x1b[?25h" if self.cursor_visible else b"\x1b[?25l"
        return enter + clear + body + place + visible

    def modes_reset(self) -> bytes:
        if self._terminal is None:
            return b""
        parts = [b"\x1b[<99u"] if self._keyboard_flags() else []
        parts += [b"\x1b[?%dl" % number for number in _MODES_OFF if self.mode(number)]
        parts += [b"\x1b[?%dh" % number for number in _MODES_ON if not self.mode(number)]
        if self.alternate:
            used = next((number for number in _ALTERNATE_MODES if self.mode(number)), 1049)
            parts.append(b"\x1b[?%dl" % used)
        # Attributes, scroll region (saved and restored around, as it homes the cursor), character set,
        # keypad and cursor shape cost nothing to reset and cannot all be asked for.
        return b"".join(parts) + b"\x1b7\x1b[r\x1b8\x1b[0m\x1b(B\x0f\x1b>\x1b[0 q"

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

    @property
    def on_reply(self) -> Callable[[bytes], None] | None:
        return self._on_reply

    @on_reply.setter
    def on_reply(self, callback: Callable[[bytes], None] | None) -> None:
        self._on_reply = callback
        self._lib.ghostty_terminal_set(
            self._terminal, _OPT_WRITE_PTY, None if callback is None else self._reply_callback
        )

    # Calls into the library

    def _set(self, option: int, value: ctypes.c_size_t | ctypes.c_bool) -> None:
        _check_open(self._lib.ghostty_terminal_set(self._terminal, option, ctypes.byref(value)))

    def _get(self, data: int, out: Structure | ctypes._SimpleCData[int] | ctypes._SimpleCData[bool]) -> None:
        if self._terminal is not None:
            self._lib.ghostty_terminal_get(self._terminal, data, ctypes.byref(out))

    def _number(self, data: int) -> int:
        out = c_uint16()
        self._get(data, out)
        return out.value

    def _flag(self, data: int) -> bool:
        out = c_bool()
        self._get(data, out)
        return out.value

    def _keyboard_flags(self) -> int:
        out = c_uint8()
        self._get(_KITTY_KEYBOARD_FLAGS, out)
        return out.value

    def _unknown(self, _terminal: int, _userdata: int, sequence: ctypes._Pointer[_UnknownSequence]) -> None:
        found = sequence.contents
        if self.on_osc is not None and found.tag == _UNKNOWN_OSC and found.osc.content.len:
            self.on_osc(ctypes.string_at(found.osc.content.ptr, found.osc.content.len))

    def _reply(self, _terminal: int, _userdata: int, data: int, size: int) -> None:
        if self._on_reply is not None:
            self._on_reply(ctypes.string_at(data, size))

    def _collect(self) -> None:
        """Read the rows that scrolled off since the last time. The mark is a reference that the library moves
        along with the first row that had not scrolled off."""
        if not self._collecting or self.alternate:
            return  # the mark stays in the primary screen, and the alternate one has no scrollback
        scrollback = c_size_t()
        self._get(_SCROLLBACK_ROWS, scrollback)
        where = _Coordinate()
        if self._lib.ghostty_tracked_grid_ref_point(self._mark, _SCREEN, ctypes.byref(where)) == 0:
            first = where.y
            if first == scrollback.value:
                return
        else:  # pruned, or wiped out by a reset, after which nothing has scrolled off
            first = 0
            self._lost = self._lost or scrollback.value > 0
        if first < scrollback.value:
            self._drained += self._read(_SCREEN, first, scrollback.value - first)
        _check(
            self._lib.ghostty_tracked_grid_ref_set(self._mark, self._terminal, _Point(_ACTIVE)),
            "marking the screen",
        )

    def _ref(self, tag: int, x: int, y: int) -> _GridRef:
        ref = _GridRef(size=ctypes.sizeof(_GridRef))
        point = _Point(tag, _PointValue(x, y))
        _check(self._lib.ghostty_terminal_grid_ref(self._terminal, point, ctypes.byref(ref)), "reading a row")
        return ref

    def _read(self, tag: int, first: int, count: int) -> list[Row]:
        """`count` rows from row `first`, counted in the coordinate system `tag`."""
        start = self._ref(tag, 0, first)
        end = self._ref(tag, self.columns - 1, first + count - 1)
        if self._is_spacer_head(end):
            end.x -= 1  # else the selection would reach for the wide character in the next row
        selection = _Selection(ctypes.sizeof(_Selection), start, end, False)
        joined = self._format_rows(selection, True, count)
        if len(joined) == count:  # no row wraps into another of these, which is the rule
            rows = [Row(text) for text in joined]
            rows[-1] = Row(joined[-1], self._wraps(tag, first + count - 1))
            return rows
        texts = self._format_rows(selection, False, count)
        texts += [""] * (count - len(texts))
        return [Row(text, self._wraps(tag, first + y)) for y, text in enumerate(texts)]

    def _format_rows(self, selection: _Selection, unwrap: bool, count: int) -> list[str]:
        size = ctypes.sizeof(_SelectionFormat)
        options = _SelectionFormat(size, _PLAIN, unwrap, True, ctypes.pointer(selection))

        def call(buffer: ctypes.Array[ctypes.c_char] | None, size: int, needed: c_size_t) -> int:
            return int(
                self._lib.ghostty_terminal_selection_format_buf(
                    self._terminal, options, buffer, size, ctypes.byref(needed)
                )
            )

        return _fill(call, count * (self.columns + 1) + 256).decode("utf-8", "replace").split("\n")

    def _is_spacer_head(self, ref: _GridRef) -> bool:
        raw, wide = c_uint64(), c_int()
        _check(self._lib.ghostty_grid_ref_cell(ctypes.byref(ref), ctypes.byref(raw)), "reading a cell")
        _check(self._lib.ghostty_cell_get(raw, _CELL_WIDE, ctypes.byref(wide)), "reading a cell")
        return wide.value == _SPACER_HEAD

    def _wraps(self, tag: int, y: int) -> bool:
        ref, raw, wrap = self._ref(tag, 0, y), c_uint64(), c_bool()
        _check(self._lib.ghostty_grid_ref_row(ctypes.byref(ref), ctypes.byref(raw)), "reading a row")
        _check(self._lib.ghostty_row_get(raw, _ROW_WRAP, ctypes.byref(wrap)), "reading a row")
        return wrap.value

    def _format_screen(self) -> bytes:
        start = self._ref(_ACTIVE, 0, 0)
        end = self._ref(_ACTIVE, self.columns - 1, self.height - 1)
        selection = _Selection(ctypes.sizeof(_Selection), start, end, False)
        screen = _ScreenExtra(ctypes.sizeof(_ScreenExtra), False, True, False, False, True, True)
        extra = _TerminalExtra(ctypes.sizeof(_TerminalExtra), False, True, True, False, False, True, screen)
        options = _FormatterOptions(
            ctypes.sizeof(_FormatterOptions), _VT, False, False, extra, ctypes.pointer(selection)
        )
        formatter = c_void_p()
        _check(
            self._lib.ghostty_formatter_terminal_new(None, ctypes.byref(formatter), self._terminal, options),
            "formatting the screen",
        )
        try:

            def call(buffer: ctypes.Array[ctypes.c_char] | None, size: int, needed: c_size_t) -> int:
                return int(
                    self._lib.ghostty_formatter_format_buf(formatter, buffer, size, ctypes.byref(needed))
                )

            return _fill(call, 16 * self.columns * self.height)
        finally:
            self._lib.ghostty_formatter_free(formatter)


def _check_open(result: int) -> None:
    if result != 0:
        raise ScreenUnavailable(f"the virtual screen cannot be opened (libghostty-vt answered {result}).")


def _fill(call: Callable[[ctypes.Array[ctypes.c_char] | None, int, c_size_t], int], guess: int) -> bytes:
    """The library's output through `call(buffer, size, needed)`, which says if `guess` was too small."""
    needed = c_size_t()
    buffer = ctypes.create_string_buffer(guess)
    result = call(buffer, guess, needed)
    if result == _OUT_OF_SPACE:
        buffer = ctypes.create_string_buffer(needed.value)
        result = call(buffer, needed.value, needed)
    _check(result, "reading the screen")
    return ctypes.string_at(buffer, needed.value)
