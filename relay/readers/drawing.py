"""Recognizes rows that are not the agent's own words by how it draws them: echoes, tool output, and code.

The agent's pattern file names colours, and signs at the beginning of a row.  Where the sign is a corner, as
before tool output, or shows a tool's status, the rows directly below belong to it if they are indented to the
text after it.  (Not so for other signs: codex keeps the last prompt at the top of a page that scrolls.)
"""

from __future__ import annotations

from relay.agents.profile import ANY_COLOUR, BlockEnd, RowStyle
from relay.dataclass import dataclass, field
from relay.terminal.screen import Colours, Row, VirtualScreen

_OF_TOOLS = "⎿└╰↳✓⊶⊷x"


@dataclass(frozen=True, slots=True)
class Drawing:
    """The styles of one agent; with the defaults, every row is the agent's own words.

    block_end: how the agent draws a line `>>>`. settle: seconds in which it may redraw a text.
    """

    echo: RowStyle = field(default_factory=RowStyle)
    code: RowStyle = field(default_factory=RowStyle)
    block_end: BlockEnd = "drawn"
    settle: float = 0.0

    def is_echo(self, row: Row) -> bool:
        """Return True if `row` is not the agent's words, by its colours or its sign."""
        return self.has_sign(row.text) or _drawn_in(self.echo, row.colours)

    def is_code(self, row: Row) -> bool:
        return _drawn_in(self.code, row.colours) or any(line.search(row.text) for line in self.code.lines)

    def text_columns(self, screen: VirtualScreen) -> int:
        """Return the columns of a full-screen program to the left of a panel in the colours of echoes."""
        columns, bottom = screen.columns, screen.height - 1
        panel = screen.colours(columns - 1, 0).background if self.echo.backgrounds else None
        if not _one_of(self.echo.backgrounds, panel):
            return columns
        x = columns
        while x and screen.colours(x - 1, 0).background == panel:
            x -= 1
        whole = all(screen.colours(at, bottom).background == panel for at in (x, columns - 1))
        return x if whole and x * 2 > columns else columns

    def has_sign(self, text: str) -> bool:
        return any(line.search(text) for line in self.echo.lines)

    def hanging(self, text: str) -> int:
        """Return the least indent of rows that belong to the sign of the non-blank `text` above; 0: none."""
        body = text.lstrip()
        if body[0] not in _OF_TOOLS or not self.has_sign(text):
            return 0
        return len(text) - len(body[1:].lstrip())


def _drawn_in(style: RowStyle, colours: Colours | None) -> bool:
    foreground, background = colours or (None, None)
    return _one_of(style.foregrounds, foreground) or _one_of(style.backgrounds, background)


def _one_of(known: frozenset[int], colour: int | None) -> bool:
    return colour is not None and (colour in known or ANY_COLOUR in known)


PLAIN = Drawing()
"""Every row is the agent's own words."""
