"""How an agent draws what are not its own words: the echo of what was typed, what a tool printed, and code.

The pattern file of the agent says so, in colours and in signs at the beginning of a row.  A row that belongs
to the sign above it (the second row of a paste, of a tool's output) stands right below, indented to the text
behind the sign.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from relay.profile import ANY_COLOUR, CodeStyle, EchoStyle
from relay.terminal.screen import Colours, Row, Screen


@dataclass(frozen=True, slots=True)
class Drawing:
    """The styles of one agent; with the defaults, every row is the agent's own words."""

    echo: EchoStyle = field(default_factory=EchoStyle)
    code: CodeStyle = field(default_factory=CodeStyle)

    def is_echo(self, row: Row) -> bool:
        """Whether `row` is not the agent's words, by its colours or a sign of its own."""
        return self.sign(row.text) > 0 or _drawn_in(self.echo, row.colours)

    def is_code(self, row: Row) -> bool:
        """Whether `row` is drawn as a line of code."""
        return _drawn_in(self.code, row.colours) or _matched(self.code.lines, row.text) > 0

    def text_columns(self, screen: Screen) -> int:
        """The columns of a full-screen program that are left of a panel at the right, drawn as echoes are."""
        columns, bottom = screen.columns, screen.height - 1
        panel = screen.colours(columns - 1, 0).background if self.echo.backgrounds else None
        if not _one_of(self.echo.backgrounds, panel):
            return columns
        x = columns
        while x and screen.colours(x - 1, 0).background == panel:
            x -= 1
        whole = (
            screen.colours(x, bottom).background == panel == screen.colours(columns - 1, bottom).background
        )
        return x if whole and x * 2 > columns else columns

    def sign(self, text: str) -> int:
        """The column at which the text behind an echo's sign begins; 0 where there is no such sign."""
        end = _matched(self.echo.lines, text)
        while 0 < end < len(text) and text[end] in " \u00a0":
            end += 1
        return end


def _matched(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    for pattern in patterns:
        if (found := pattern.search(text)) is not None:
            return max(found.end(), 1)
    return 0


def _drawn_in(style: EchoStyle | CodeStyle, colours: Colours | None) -> bool:
    if colours is None:
        return False
    return _one_of(style.foregrounds, colours.foreground) or _one_of(style.backgrounds, colours.background)


def _one_of(known: frozenset[int], colour: int | None) -> bool:
    return colour is not None and (colour in known or ANY_COLOUR in known)


PLAIN = Drawing()
"""Every row is the agent's own words."""
