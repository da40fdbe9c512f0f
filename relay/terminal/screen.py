"""The virtual screen: what the program has drawn, as rows of text, and how to draw it again.

    bytes of the program → Screen.feed ─┬→ Screen.drain   rows that scrolled off, each once
                                        ├→ Screen.rows    rows of the active screen
                                        └→ Screen.repaint bytes that redraw it on another terminal

The implementation is libghostty-vt (`relay.terminal.ghostty`).  Where its library does not exist (musl, old
glibc, old macOS) its `open_screen` raises ScreenUnavailable, and relay goes on with the lines reader alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from relay.errors import RelayError


class ScreenUnavailable(RelayError):
    """The virtual screen cannot be had on this machine; the message says why."""


class Colours(NamedTuple):
    """What a cell is drawn in, as 0xRRGGBB or None for the terminal's own; reverse video is not applied."""

    foreground: int | None = None
    background: int | None = None


class Row(NamedTuple):
    """One row of the screen: its text without trailing blanks, and whether it soft-wraps into the next.

    colours: those of the first of the screen's `marks` in it; None where there is none.
    """

    text: str
    wrapped: bool = False
    colours: Colours | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """Rows that scrolled off the top since the last drain, oldest first.

    lost: rows before these were pruned before they could be read (a flood of scrolling sequences).
    """

    rows: list[Row]
    lost: bool = False


class Screen(Protocol):
    """A headless terminal. Not thread-safe: one thread uses it.

    failed:  None, or why analysis has stopped; then `feed` does nothing and the rest shows the last state.
    marks:   texts at which a row says in which colours it is drawn; asking costs time, so at first none do.
    base:    the number of rows scrolled off and drained so far: the absolute number of the top active row.
    on_osc:  called with the content of each OSC sequence the emulator does not implement (OSC 7501 is one),
             its number included, at most 4,096 bytes.
    on_reply: called with each answer to a query of the program (cursor position, device attributes); while it
             is None nothing is answered: the person's terminal does that.
    """

    failed: str | None
    marks: tuple[str, ...]
    base: int
    on_osc: Callable[[bytes], None] | None
    on_reply: Callable[[bytes], None] | None

    @property
    def columns(self) -> int: ...

    @property
    def height(self) -> int:
        """The number of rows of the active screen."""
        ...

    @property
    def cursor(self) -> tuple[int, int]:
        """(x, y), zero-based, in the active screen."""
        ...

    @property
    def cursor_visible(self) -> bool:
        """DECTCEM, mode 25."""
        ...

    @property
    def alternate(self) -> bool:
        """The alternate screen is active (modes 47, 1047, 1049)."""
        ...

    @property
    def bracketed_paste(self) -> bool:
        """Mode 2004."""
        ...

    @property
    def synchronized(self) -> bool:
        """Mode 2026: the program is in the middle of a frame."""
        ...

    @property
    def ground(self) -> bool:
        """The parser stands between sequences and between characters."""
        ...

    @property
    def title(self) -> str:
        """What OSC 0 or OSC 2 set last."""
        ...

    def feed(self, data: bytes) -> None:
        """Interpret output of the program. Never raises: a failure sets `failed`."""
        ...

    def collect(self) -> None:
        """From now on keep the rows that scroll off, for `drain`; until then they are forgotten."""
        ...

    def drain(self) -> Drained:
        """Return the rows that scrolled off the primary screen since the last call, and forget them."""
        ...

    def rows(self) -> list[Row]:
        """The active screen, exactly `height` rows."""
        ...

    def colours(self, x: int, y: int) -> Colours:
        """Those of one cell of the active screen, zero-based."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; the primary screen's soft-wrapped lines are wrapped anew."""
        ...

    def repaint(self) -> bytes:
        """Bytes that draw the active screen with colours, cursor and modes on a fresh terminal."""
        ...

    def modes_reset(self) -> bytes:
        """Bytes that undo what the program has set, for a terminal whose program is gone."""
        ...

    def close(self) -> None:
        """Free what the screen holds."""
        ...
