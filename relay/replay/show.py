"""Plays on the person's terminal: the recorded screen, below it what happened, and a status line.

keys ──→ Player ──→ frame(): picture of the film + panel of the time line + status ──→ Stage.show
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from relay.replay import render
from relay.replay.player import Player
from relay.replay.player_terminal import Cursor, Stage
from relay.replay.render import clip
from relay.replay.tape import Tape
from relay.replay.timeline import Timeline
from relay.text import visible

FRAME = 1 / 30
"""Seconds between two pictures, at least; and twice what the last one cost."""

TICK = 0.5
"""Seconds between two looks at the clock in the status line while nothing else changes."""

PANEL = 5
"""Rows of the time line's panel, at most a third of the terminal."""

_HINT = "space . +/- ←/→ [ ] / n N q"


def play(
    tape: Tape,
    timeline: Timeline,
    title: str,
    *,
    source: int,
    sink: int,
    speed: float,
    idle: float,
    at: float,
    events: bool,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Play until the person quits; the exit code: 0, or 128 and the signal that ended it.

    `events`: with the panel of the time line. `source` and `sink` are descriptors of one terminal. Raises
    ScreenUnavailable before it touches the terminal.
    """
    stage = Stage(source, sink)
    player = Player(tape, timeline, speed=speed, idle=idle, at=at, stopped=stage.typed)
    try:
        with stage:
            _run(player, stage, title, events, clock)
    finally:
        player.close()
    return 128 + stage.killed if stage.killed else 0


def _run(player: Player, stage: Stage, title: str, events: bool, clock: Callable[[], float]) -> None:
    last = drawn = clock()
    rest = 0.0  # seconds that the terminal is left alone after a picture
    while not player.quit and not stage.killed:
        now = clock()
        player.advance(now - last)
        last = now
        stage.show(*frame(player, title, *stage.size, events=events))
        rest = max(FRAME, 2 * (clock() - now))
        drawn = clock()
        for key in _keys(player, stage, rest, drawn, clock):
            if key == "suspend":
                stage.suspend()
                last = clock()
            elif key == "interrupt" and player.typing is None:
                stage.killed = 2
            elif key == "enter" and player.typing:
                stage.show([*frame(player, title, *stage.size, events=events)[0][:-1], " searching…"], None)
                player.press(key)
                last = clock()  # what a search takes is not played afterwards
            else:
                player.press(key)


def _keys(player: Player, stage: Stage, rest: float, drawn: float, clock: Callable[[], float]) -> list[str]:
    """Wait until there is something new to show, but at least `rest` seconds; keys end it."""
    due = player.due
    if due is None:
        return stage.keys(None)
    wait = max(min(due, TICK), rest - (clock() - drawn))
    return stage.keys(wait)


def frame(
    player: Player, title: str, columns: int, rows: int, *, events: bool = False
) -> tuple[list[str], Cursor]:
    """What the terminal shows now, exactly `rows` rows of at most `columns` columns, and the cursor."""
    height = rows - 1 if rows > 1 else rows
    panel = _panel(player, min(PANEL, rows // 3), columns) if events else []
    height -= len(panel)
    taken = render.take(player.film.screen, columns, height)
    shown = [*taken.rows, *[""] * (height - len(taken.rows)), *panel]
    if rows == 1:
        return shown, taken.cursor
    if player.typing is not None:
        asked = clip(f"/{visible(player.typing)}", columns - 1)
        return [*shown, asked], (min(len(asked), columns - 1), rows - 1)
    return [
        *shown,
        f"\x1b[7m{clip(status(player, title, columns, height).ljust(columns), columns)}\x1b[0m",
    ], taken.cursor


def status(player: Player, title: str, columns: int, rows: int) -> str:
    """The status line, for a picture of `columns` x `rows`."""
    sign = "end" if player.ended else "paused" if player.paused else "playing"
    wide, high = player.film.recorded
    size = f"{wide}x{high}"
    if wide > columns or high > rows:
        size += f" cut to {min(wide, columns)}x{min(high, rows)}"
    place = f"{clock_time(player.position)}/{clock_time(player.seconds)}"
    parts = [f"{sign} {place}", f"{player.speed:g}x", visible(title), size, visible(player.message) or _HINT]
    return " " + "  ".join(part for part in parts if part)


def _panel(player: Player, rows: int, columns: int) -> list[str]:
    """The last moments until now, the newest at the bottom."""
    now = math.inf if player.ended else player.position  # a session's last entries come after its output
    moments = player.timeline.until(now, max(0, rows - 1))
    lines = [
        clip(visible(f"{clock_time(each.at):>8}  {each.kind:<16} {each.text}"), columns) for each in moments
    ]
    if rows < 1:
        return []
    return [f"\x1b[2m{'─' * columns}\x1b[0m", *lines, *[""] * (rows - 1 - len(lines))]


def clock_time(seconds: float) -> str:
    """`1:05`, `2:00:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
