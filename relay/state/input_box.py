"""An agent's input box on its screen, found by its structure: a frame, a prompt mark and its content.

╭───────────╮     ─────────────     > text
│ > text    │     ❯ text              footer
╰───────────╯     ─────────────
  footer            footer
   boxed              ruled           bare
"""

from __future__ import annotations

from collections.abc import Sequence

from relay import lazy_re
from relay.agents.profile import InputStyle
from relay.dataclass import dataclass, replace
from relay.state.signs import is_listed

FOOTER = 10
"""Non-blank rows allowed below an input that does not contain the cursor: a list of keys has up to eight."""

BARE_FOOTER = 4
"""FOOTER for an input without a frame, which is otherwise hard to distinguish from earlier typing."""

HEIGHT = 80
"""Maximum rows of an input: those of the longest text that agents show in full."""

_NO_SHELL = ">"
"""Marks that begin no shell's prompt, which may be at the far end of ssh, docker or script."""

_RULE = lazy_re.compile(
    r"\s{0,4}([─━═╌┄▁▔▄▀_=-])\1+(?: \S.{0,80}? \1+|\1{6,})\s*\Z"
)  # optionally with a label
_TOP = lazy_re.compile(r"\s{0,8}[╭┌╔┏+][─━═-]{6}")
_BOTTOM = lazy_re.compile(r"\s{0,8}[╰└╚┗+][─━═-]{6}")
_SIDES = lazy_re.compile(r"\s{0,8}[│┃║|](?P<inner>.*?)[│┃║|]?\s*\Z")
_OPTION = lazy_re.compile(r"\W{0,8}\d{1,2}[.)] ")
_PLACEHOLDER = lazy_re.compile(
    r"(?:Type|Enter|Write|Send|Ask)(?: a| your| me)? (?:message|prompt|question|anything|something)"
    r"(?: \(.*\)| here| below| or @?\S+| to (?:begin|start|continue|get started))?(?:(?:…|\.\.\.).*)?\Z"
    r'|Try ".*"\Z'
)


@dataclass(frozen=True, slots=True)
class InputBox:
    """An input in the rows `top` to `bottom`, including its frame. text: its content; "" if empty.

    lines: its rows, stripped.
    """

    top: int
    bottom: int
    text: str
    lines: tuple[str, ...]


def find_input(
    rows: Sequence[str],
    style: InputStyle,
    cursor: tuple[int, int] | None = None,
    *,
    suggested: bool = True,
) -> InputBox | None:
    """Return the lowest input on the screen, if there is one.

    cursor: (x, y), zero-based, if known. A text behind it is a placeholder if its words are known to be one
    or it is `suggested`: users, too, can move the cursor before their text. Without a cursor, the words
    decide. The frame around the cursor is the input's, whatever is below it: after resizes, that may be
    remnants of earlier drawing.
    """
    below = 0
    for y in range(len(rows) - 1, max(len(rows) - 1 - HEIGHT, -1), -1):
        if not rows[y].strip():
            continue
        framed = _framed(rows, y, style)
        if framed and below > FOOTER and not (cursor and framed[0] < cursor[1] < y):
            framed = None
        if found := framed or _bare(rows, y, style):
            top, texts, column = found
            text = "\n".join(texts).strip() or (_below(rows, y, cursor) if top == y else "")
            first = y if top == y else top + 1
            at_start = _at_start(text, (column, first), cursor, range(first, y + 1))
            if text and at_start is not False and ((at_start and suggested) or _is_placeholder(text, style)):
                text = ""
            return InputBox(top, y, text, tuple(each.strip() for each in rows[top : y + 1] if each.strip()))
        below += 1
    return None


def _below(rows: Sequence[str], y: int, cursor: tuple[int, int] | None) -> str:
    """Return the text of a frameless input below its first row `y`, where the cursor is, or ""."""
    further = [] if cursor is None else [row.strip() for row in rows[y + 1 : cursor[1] + 1]]
    return "\n".join(further) if all(further) else ""


def _framed(rows: Sequence[str], y: int, style: InputStyle) -> tuple[int, list[str], int] | None:
    """Return (top row, texts, their column) of the input whose frame ends in row `y`."""
    if _RULE.match(rows[y]):
        edge, sides = _RULE, False
    elif _BOTTOM.match(rows[y]):
        edge, sides = _TOP, True
    else:
        return None
    texts: list[str] = []
    offset = 0
    for at in range(y - 1, max(y - HEIGHT, -1), -1):
        row = rows[at]
        if edge.match(row):
            return _entry(at, texts[::-1], offset, style) if texts else None
        if sides:
            side = _SIDES.match(row)
            if side is None:
                return None
            offset, row = side.start("inner"), side["inner"]
        texts.append(row.rstrip())
    return None


def _entry(top: int, texts: list[str], offset: int, style: InputStyle) -> tuple[int, list[str], int] | None:
    """Return the input with these rows inside its frame, or None if the rows are not an input."""
    head = _glyph(texts[0], style)
    if head is None:
        return None
    if style.glyphs and any(text.strip() and not text.startswith(" ") for text in texts[1:]):
        return None  # an input aligns further rows with the text, not with the mark
    return top, [texts[0][head:], *texts[1:]], offset + head


def _bare(rows: Sequence[str], y: int, style: InputStyle) -> tuple[int, list[str], int] | None:
    """Return the frameless input whose first row is `y`; only that row's text counts."""
    if style.assumed:
        style = replace(style, glyphs="".join(filter(_NO_SHELL.__contains__, style.glyphs)))
    head = _glyph(rows[y], style, 1) if style.glyphs else None
    if head is None:
        return None
    text = rows[y][head:]
    rest = rows[y + 1 :]
    more = next((number for number, row in enumerate(rest) if not row.strip()), len(rest)) if text else 0
    below = [row for row in rest if row.strip()]
    if len(below) - more > BARE_FOOTER or any(not row.startswith(" ") or _OPTION.match(row) for row in below):
        return None
    start = next((at + 1 for at in range(y - 1, -1, -1) if not rows[at].strip()), 0)
    return None if is_listed(rows[start : y + 1 + more], y - start) else (y, [text], head)


def _glyph(row: str, style: InputStyle, most: int = 2) -> int | None:
    """Return the column of the text after the prompt mark; None without a mark, or before an option.

    most: maximum number of blanks before the mark.
    """
    if not style.glyphs:
        return len(row) - len(row.lstrip())
    stripped = row.lstrip()
    indent = len(row) - len(stripped)
    if indent > most or not stripped or stripped[0] not in style.glyphs or stripped[1:2].strip():
        return None
    text = stripped[1:].lstrip()
    if _OPTION.match(text):
        return None
    return indent + 2 if not text else len(row.rstrip()) - len(text.rstrip())


def _at_start(text: str, start: tuple[int, int], cursor: tuple[int, int] | None, rows: range) -> bool | None:
    """Return whether the cursor is before `text`; None if it is not in the input, or unknown."""
    if cursor is None or cursor[1] not in rows:
        return None
    return cursor[1] == start[1] and start[0] - 2 <= cursor[0] <= start[0] and text.count("\n") < 2


def _is_placeholder(text: str, style: InputStyle) -> bool:
    words = " ".join(text.split())
    return bool(_PLACEHOLDER.match(words)) or any(each.search(words) for each in style.placeholders)
