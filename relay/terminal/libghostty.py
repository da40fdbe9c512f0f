"""libghostty-vt through ctypes: finding its shared library, and the part of its ABI that relay uses.

The library comes from the PyPI package `pyghostty` (pinned exactly: this is the ABI of its libghostty-vt, as
declared in `pyghostty/_cdef.py`).  The package itself is never imported: that takes 150 ms, loading the
library 5 ms.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
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
OPT_RESIZE_PULL_SCROLLBACK = 40
# enum GhosttyTerminalData
CURSOR_X, CURSOR_Y, PENDING_WRAP = 3, 4, 5
ACTIVE_SCREEN, CURSOR_VISIBLE, KITTY_KEYBOARD_FLAGS = 6, 7, 8
TITLE, SCROLLBACK_ROWS, MODE, VT_GROUND = 12, 15, 37, 38
# enum GhosttyCellData, and of GhosttyCellWide the value of the cell that is left empty at the right margin
# because a wide character did not fit
CELL_WIDE, SPACER_HEAD = 3, 3
# enum GhosttyRowData
ROW_WRAP = 1
# enum GhosttyStyleColorTag
COLOR_PALETTE, COLOR_RGB = 1, 2


class ScreenUnavailable(RelayError):
    """This machine has no virtual screen; the message says why."""


class String(Structure):
    _fields_ = (("ptr", c_void_p), ("len", c_size_t))


class GridRef(Structure):
    _fields_ = (("size", c_size_t), ("node", c_void_p), ("x", c_uint16), ("y", c_uint16))


class Coordinate(Structure):
    _fields_ = (("x", c_uint16), ("y", c_uint32))


class PointValue(Structure):
    # As wide and as aligned as the union's `uint64_t _padding[2]`.
    _fields_ = (("x", c_uint16), ("y", c_uint32), ("_padding", c_uint64))


class Point(Structure):
    # GhosttyPoint is a tagged union of 24 bytes; a composite of that size is passed in memory (SysV,
    # AAPCS64), so that a structure of the same layout stands for it: ctypes passes no unions by value.
    _fields_ = (("tag", c_int), ("value", PointValue))


class Selection(Structure):
    _fields_ = (("size", c_size_t), ("start", GridRef), ("end", GridRef), ("rectangle", c_bool))


class SelectionFormat(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("emit", c_int),
        ("unwrap", c_bool),
        ("trim", c_bool),
        ("selection", POINTER(Selection)),
    )


class ScreenExtra(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("cursor", c_bool),
        ("style", c_bool),
        ("hyperlink", c_bool),
        ("protection", c_bool),
        ("kitty_keyboard", c_bool),
        ("charsets", c_bool),
    )


class TerminalExtra(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("palette", c_bool),
        ("modes", c_bool),
        ("scrolling_region", c_bool),
        ("tabstops", c_bool),
        ("pwd", c_bool),
        ("keyboard", c_bool),
        ("screen", ScreenExtra),
    )


class FormatterOptions(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("emit", c_int),
        ("unwrap", c_bool),
        ("trim", c_bool),
        ("extra", TerminalExtra),
        ("selection", POINTER(Selection)),
    )


class StyleColor(Structure):
    # The value is a union: the byte of a palette's index, or the bytes red, green, blue.
    _fields_ = (("tag", c_int), ("value", c_uint64))


class CellStyle(Structure):
    # GhosttyStyle; what follows the colours (bold, italic, ...) is not read.
    _fields_ = (
        ("size", c_size_t),
        ("foreground", StyleColor),
        ("background", StyleColor),
        ("underline", StyleColor),
        ("_attributes", c_bool * 8),
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


def library_path() -> Path:
    """Return the path of pyghostty's shared library, without importing pyghostty.

    Raise ScreenUnavailable where it is not installed.
    """
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
def load() -> ctypes.CDLL:
    """Return the library with its functions declared; raise ScreenUnavailable where it cannot be loaded."""
    path = library_path()
    try:
        lib = ctypes.CDLL(str(path))
        for name, (arguments, result) in SIGNATURES.items():
            function = getattr(lib, f"ghostty_{name}")
            function.argtypes = arguments
            function.restype = result
    except (OSError, AttributeError) as error:
        raise ScreenUnavailable(
            f"the library {path} cannot be used on this system ({error}). "
            "Full-screen programs are forwarded, but what they say is not read."
        ) from None
    return lib
