"""Draws panes as one animated SVG: CSS keyframes and no script, so that it moves in an <img>, too.

A row that stays the same for some frames is one element, which is visible for just that long. Outside of the
animation (for users who prefer reduced motion, and in viewers without CSS animations) the last frame shows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple, TypeVar

from relay.columns import width
from tools.pictures.frames import TICKS, Pane

_CELL = 8  # pixels of a column
_LINE = 18  # pixels of a row
_SIZE = 13.2  # pixels of the font: most monospaced fonts are 0.6 em wide
_BAR = 30  # pixels of the title bar
_PADDING = 12  # pixels around the text
_GAP = 12  # pixels between two panes

# Foreground, background, frame, title; then the palette, 0 to 15. Those of GitHub's own themes.
_DARK = (
    ("#e6edf3", "#0d1117", "#30363d", "#9198a1"),
    ("#6e7681", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#d2a8ff", "#39c5cf", "#e6edf3"),
)
_LIGHT = (
    ("#1f2328", "#ffffff", "#d1d9e0", "#59636e"),
    ("#24292f", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83", "#57606a"),
)

T = TypeVar("T")

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")


class Style(NamedTuple):
    """How a run of text is drawn: classes of the style sheet, and a colour outside of the palette."""

    classes: frozenset[str] = frozenset()
    fill: str = ""


class Shown(NamedTuple):
    """For which ticks something shows: from `start` up to, but not including, `end`."""

    start: int
    end: int


def draw(panes: Sequence[Pane], hold: int, about: str) -> str:
    """Return the SVG of `panes` side by side.

    hold: ticks for which the last frame stays. about: what it shows, in words.
    """
    end = max(pane.frames[-1].tick for pane in panes) + hold
    elements: dict[Shown, list[str]] = defaultdict(list)
    still, left = [], 0
    for pane in panes:
        right, bottom = _pixels(pane)
        still.append(_window(pane, left, right, bottom))
        for shown, element in _elements(pane, left, end):
            elements[shown].append(element)
        left += right + _GAP
    whole, tall = left - _GAP, max(_pixels(pane)[1] for pane in panes)
    shows = sorted(elements)
    body = []
    for number, shown in enumerate(shows):
        last = "" if shown.end < end else " last"
        moves = "" if shown == (0, end) else f" a{number}"
        body.append(f'<g class="row{last}{moves}">{"".join(elements[shown])}</g>')
    keyframes = [_keyframes(number, shown, end) for number, shown in enumerate(shows) if shown != (0, end)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {tall}" '
            f'width="{whole}" height="{tall}" role="img">',
            f"<title>{escape(about)}</title>",
            f"<style>\n{_sheet(end)}\n@media (prefers-reduced-motion: no-preference) {{",
            *keyframes,
            "}\n</style>",
            *still,
            *body,
            "</svg>\n",
        ]
    )


def _pixels(pane: Pane) -> tuple[int, int]:
    return pane.columns * _CELL + 2 * _PADDING, pane.height * _LINE + 2 * _PADDING + _BAR


def _window(pane: Pane, left: int, right: int, bottom: int) -> str:
    lights = "".join(f'<circle cx="{left + 18 + 16 * at}" cy="15" r="5" class="light"/>' for at in range(3))
    return (
        f'<rect x="{left + 0.5:g}" y="0.5" width="{right - 1}" height="{bottom - 1}" rx="8" class="window"/>'
        f"{lights}"
        f'<text x="{left + right // 2}" y="20" class="bar">{escape(pane.title)}</text>'
    )


def _elements(pane: Pane, left: int, end: int) -> Iterator[tuple[Shown, str]]:
    """Yield what is drawn, and for how long. left: pixels left of the pane; end: the last tick."""
    ticks = [0, *(frame.tick for frame in pane.frames[1:]), end]
    for y in range(pane.height):
        rows = [frame.rows[y] if y < len(frame.rows) else "" for frame in pane.frames]
        for row, shown in _runs(rows, ticks):
            if element := _row(row, left + _PADDING, y):
                yield shown, element
    for cursor, shown in _runs([frame.cursor for frame in pane.frames], ticks):
        if cursor is not None:
            x, y = left + _PADDING + cursor[0] * _CELL, _top(cursor[1])
            yield shown, f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_LINE}" class="cursor"/>'


def _runs(values: Sequence[T], ticks: Sequence[int]) -> Iterator[tuple[T, Shown]]:
    """Yield each run of equal values. ticks: where each begins, and where the last ends."""
    start = 0
    for at in range(1, len(values) + 1):
        if at == len(values) or values[at] != values[start]:
            yield values[start], Shown(ticks[start], ticks[at])
            start = at


def _top(y: int) -> int:
    return _BAR + _PADDING + y * _LINE


def _row(row: str, left: int, y: int) -> str:
    """Return the elements that draw `row`, text with SGR sequences; "" if nothing is in it."""
    parts, boxes, column, style = [], [], 0, Style()
    pieces = _SGR.split(row.rstrip())  # text, parameters, text, ...
    for at, piece in enumerate(pieces):
        if at % 2:
            style = _changed(style, piece)
        elif piece:
            wide = sum(map(width, piece))
            if "inverse" in style.classes:
                x, room = left + column * _CELL, wide * _CELL
                boxes.append(f'<rect x="{x}" y="{_top(y)}" width="{room}" height="{_LINE}" class="box"/>')
            parts.append(_span(piece, style))
            column += wide
    if not column:
        return ""
    text = f'<text x="{left}" y="{_top(y) + 13}" textLength="{column * _CELL}">{"".join(parts)}</text>'
    return "".join([*boxes, text])


def _span(text: str, style: Style) -> str:
    if style == Style():
        return escape(text, quote=False)
    classes = f' class="{" ".join(sorted(style.classes))}"' if style.classes else ""
    fill = f' fill="{style.fill}"' if style.fill else ""
    return f"<tspan{classes}{fill}>{escape(text, quote=False)}</tspan>"


_SETS = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse"}
_CLEARS = {22: {"bold", "faint"}, 23: {"italic"}, 24: {"underline"}, 27: {"inverse"}}


def _changed(style: Style, parameters: str) -> Style:
    """Return `style` after SGR with `parameters` (ECMA-48, 8.3.117)."""
    numbers = [int(number or 0) for number in parameters.replace(":", ";").split(";")]
    while numbers:
        match numbers:
            case [38, 5, index, *numbers]:
                style = _coloured(style, index)
            case [38, 2, red, green, blue, *numbers]:
                style = _coloured(style, -1)._replace(fill=f"#{red:02x}{green:02x}{blue:02x}")
            case [0, *numbers]:
                style = Style()
            case [39, *numbers]:
                style = _coloured(style, -1)
            case [number, *numbers] if number in _SETS:
                style = style._replace(classes=style.classes | {_SETS[number]})
            case [number, *numbers] if number in _CLEARS:
                style = style._replace(classes=style.classes - _CLEARS[number])
            case [number, *numbers] if 30 <= number <= 37 or 90 <= number <= 97:
                style = _coloured(style, number - 30 if number < 90 else number - 82)
            case [number, *_]:
                raise ValueError(f"pictures do not know SGR {number}: teach tools/pictures/svg.py.")
    return style


def _coloured(style: Style, index: int) -> Style:
    """Return `style` in the colour `index` of the palette; -1: in the default one."""
    if index > 15:
        raise ValueError(f"pictures know colours 0 to 15 of the palette, not {index}.")
    classes = {name for name in style.classes if not name.startswith("c")}
    return Style(frozenset(classes | ({f"c{index % 8}"} if index >= 0 else set())))


def _keyframes(number: int, shown: Shown, end: int) -> str:
    """Return the animation that shows something only for `shown`."""
    at = [f"{100 * tick / end:.3f}".rstrip("0").rstrip(".") for tick in shown]
    steps = ["" if shown.start == 0 else "0%{visibility:hidden}", f"{at[0]}%{{visibility:visible}}"]
    steps.append("" if shown.end == end else f"{at[1]}%{{visibility:hidden}}")
    steps.append(f"100%{{visibility:{'visible' if shown.end == end else 'hidden'}}}")
    return f"@keyframes k{number}{{{''.join(steps)}}}.a{number}{{animation-name:k{number}}}"


def _sheet(end: int) -> str:
    fonts = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
    return "\n".join(
        [
            f"text{{font:{_SIZE}px {fonts};white-space:pre;fill:var(--text)}}",
            ".bar{fill:var(--bar);text-anchor:middle}.window{fill:var(--back);stroke:var(--edge)}"
            ".light{fill:var(--edge)}",
            ".cursor{fill:var(--text);opacity:.6}.box{fill:var(--text)}.inverse{fill:var(--back)}",
            ".bold{font-weight:bold}.faint{opacity:.65}.italic{font-style:italic}"
            ".underline{text-decoration:underline}",
            "".join(f".c{index}{{fill:var(--c{index})}}" for index in range(8)),
            f".row{{visibility:hidden;animation:{end / TICKS:g}s step-end infinite}}",
            ".last{visibility:visible}",
            f"svg{{{_variables(_DARK)}}}",
            f"@media (prefers-color-scheme: light) {{svg{{{_variables(_LIGHT)}}}}}",
        ]
    )


def _variables(theme: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    named = dict(zip(("text", "back", "edge", "bar"), theme[0], strict=True))
    named |= {f"c{index}": colour for index, colour in enumerate(theme[1])}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())
