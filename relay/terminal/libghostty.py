"""libghostty-vt through ctypes: finds its shared library, and declares the part of its ABI that relay uses.

The library comes from the PyPI package `pyghostty` (pinned exactly: this is the ABI of its libghostty-vt, as
declared in `pyghostty/_cdef.py`).  relay never imports the package itself, which would take 150 ms; loading
the library takes 5 ms.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from relay.errors import RelayError

# enum GhosttyResult
OUT_OF_SPACE = -3
# enum GhosttyFormatterFormat
PLAIN, VT = 0, 1
# enum GhosttyPointTag
ACTIVE, SCREEN = 0, 2
# enum GhosttyTerminalOption
OPT_WRITE_PTY = 1
OPT_SCROLLBACK_MAX_BYTES = 27
OPT_SCROLLBACK_MAX_LINES = 28
OPT_MODE_DEFAULT = 33
OPT_RESIZE_PULL_SCROLLBACK = 40
# enum GhosttyTerminalData
CURSOR_X, CURSOR_Y, PENDING_WRAP = 3, 4, 5
ACTIVE_SCREEN, CURSOR_VISIBLE, KITTY_KEYBOARD_FLAGS = 6, 7, 8
TITLE, SCROLLBACK_ROWS, MODE, VT_GROUND = 12, 15, 37, 38
# enum GhosttyCellData; and from GhosttyCellWide, the second cell of a wide character, and the cell left empty
# at the right margin because one did not fit
CELL_WIDE, SPACER_TAIL, SPACER_HEAD = 3, 2, 3
# enum GhosttyRowData
ROW_WRAP, ROW_LINKED = 1, 5
# enum GhosttyStyleColorTag
COLOR_PALETTE, COLOR_RGB = 1, 2


class ScreenUnavailable(RelayError):
    """No virtual screen works on this machine; the message says why."""


def _flags(*names: str) -> list[tuple[str, type[c_bool]]]:
    return [(name, c_bool) for name in names]


class String(Structure):
    _fields_ = (("ptr", c_void_p), ("len", c_size_t))


class Sized(Structure):
    """A structure that starts with its own size in bytes."""

    _fields_: ClassVar[Sequence[Any]] = (("size", c_size_t),)

    def __init__(self, *values: object, **fields: object) -> None:
        super().__init__(ctypes.sizeof(self), *values, **fields)


class GridRef(Sized):
    _fields_ = (("node", c_void_p), ("x", c_uint16), ("y", c_uint16))


class Coordinate(Structure):
    _fields_ = (("x", c_uint16), ("y", c_uint32))


class PointValue(Structure):
    # Same size and alignment as the union's `uint64_t _padding[2]`.
    _fields_ = (("x", c_uint16), ("y", c_uint32), ("_padding", c_uint64))


class Point(Structure):
    # GhosttyPoint is a tagged union of 24 bytes. ctypes does not pass unions by value, but a composite of
    # this size is passed in memory (SysV, AAPCS64), so a structure of the same layout replaces the union.
    _fields_ = (("tag", c_int), ("value", PointValue))


class Selection(Sized):
    _fields_ = (("start", GridRef), ("end", GridRef), ("rectangle", c_bool))


class FormatOptions(Sized):
    _fields_: ClassVar[Sequence[Any]] = (("emit", c_int), ("unwrap", c_bool), ("trim", c_bool))


class SelectionFormat(FormatOptions):
    _fields_ = (("selection", POINTER(Selection)),)


class ScreenExtra(Sized):
    _fields_ = _flags("cursor", "style", "hyperlink", "protection", "kitty_keyboard", "charsets")


class TerminalExtra(Sized):
    _fields_ = (
        *_flags("palette", "modes", "scrolling_region", "tabstops", "pwd", "keyboard"),
        ("screen", ScreenExtra),
    )


class FormatterOptions(FormatOptions):
    _fields_ = (("extra", TerminalExtra), ("selection", POINTER(Selection)))


class StyleColor(Structure):
    # The value is a union: a palette index in one byte, or the bytes red, green, blue.
    _fields_ = (("tag", c_int), ("value", c_uint64))


class CellStyle(Sized):
    # GhosttyStyle; relay reads its colours and `faint`.
    _fields_ = (
        ("foreground", StyleColor),
        ("background", StyleColor),
        ("underline", StyleColor),
        ("_bold", c_bool),
        ("_italic", c_bool),
        ("faint", c_bool),
        ("_attributes", c_bool * 5),
        ("_underline", c_int),
    )


class ModeConfig(Structure):
    _fields_ = (("mode", c_uint16), ("value", c_bool))


WritePtyFn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)

SIGNATURES: dict[str, tuple[list[object], object]] = {
    "terminal_new": ([c_void_p, POINTER(c_void_p), c_uint16, c_uint16], c_int),
    "terminal_free": ([c_void_p], None),
    "terminal_set": ([c_void_p, c_int, c_void_p], c_int),
    "terminal_get": ([c_void_p, c_int, c_void_p], c_int),
    "terminal_resize": ([c_void_p, c_uint16, c_uint16, c_uint32, c_uint32], c_int),
    "terminal_vt_write": ([c_void_p, c_char_p, c_size_t], None),
    "terminal_grid_ref": ([c_void_p, Point, POINTER(GridRef)], c_int),
    "terminal_grid_ref_track": ([c_void_p, Point, POINTER(c_void_p)], c_int),
    "tracked_grid_ref_free": ([c_void_p], None),
    "tracked_grid_ref_point": ([c_void_p, c_int, POINTER(Coordinate)], c_int),
    "tracked_grid_ref_set": ([c_void_p, c_void_p, Point], c_int),
    "grid_ref_cell": ([POINTER(GridRef), POINTER(c_uint64)], c_int),
    "cell_get": ([c_uint64, c_int, c_void_p], c_int),
    "grid_ref_style": ([POINTER(GridRef), POINTER(CellStyle)], c_int),
    "grid_ref_graphemes": ([POINTER(GridRef), c_void_p, c_size_t, POINTER(c_size_t)], c_int),
    "grid_ref_hyperlink_uri": ([POINTER(GridRef), c_void_p, c_size_t, POINTER(c_size_t)], c_int),
    "grid_ref_row": ([POINTER(GridRef), POINTER(c_uint64)], c_int),
    "row_get": ([c_uint64, c_int, c_void_p], c_int),
    "terminal_selection_format_buf": (
        [c_void_p, SelectionFormat, c_void_p, c_size_t, POINTER(c_size_t)],
        c_int,
    ),
    "formatter_terminal_new": ([c_void_p, POINTER(c_void_p), c_void_p, FormatterOptions], c_int),
    "formatter_format_buf": ([c_void_p, c_void_p, c_size_t, POINTER(c_size_t)], c_int),
    "formatter_free": ([c_void_p], None),
}


@cache
def load() -> ctypes.CDLL:
    """Return the library with its functions declared; raise ScreenUnavailable if it cannot be loaded."""
    spec = importlib.util.find_spec("pyghostty")  # importing the package would load cffi
    if spec is None or spec.origin is None:
        raise ScreenUnavailable(
            "the package pyghostty is not installed, so relay cannot follow full-screen programs. "
            "Install it with: pip install pyghostty==0.1.3"
        )
    path = next((str(file) for file in Path(spec.origin).parent.rglob("libghostty-vt.*")), None)
    if path is None:
        raise ScreenUnavailable(
            "the installed pyghostty has no shared library. "
            "Reinstall it: pip install --force-reinstall pyghostty==0.1.3"
        )
    try:
        lib = ctypes.CDLL(path)
        for name, (arguments, result) in SIGNATURES.items():
            function = getattr(lib, f"ghostty_{name}")
            function.argtypes = arguments
            function.restype = result
    except (OSError, AttributeError) as error:
        raise ScreenUnavailable(
            f"the library {path} cannot be used on this system ({error}). "
            "relay forwards full-screen programs, but cannot read them."
        ) from None
    return lib
