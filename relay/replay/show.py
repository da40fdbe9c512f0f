"""Plays a recording on the user's terminal: the recorded screen, below it what happened, and a status line.

keys ──→ Player ──→ frame(): rendered screen + timeline panel + status ──→ Canvas.show
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable

from relay.recording.asciicast import Cast
from relay.replay.player import Player
from relay.replay.timeline import Timeline
from relay.terminal.canvas import Canvas, Cursor
from relay.terminal.render import clip, render
from relay.text import visible

FRAME = 1 / 30
"""Minimum seconds between two frames; also at least twice what the last one took."""

TICK = 0.5
"""Seconds between two updates of the clock in the status line while nothing else changes."""

PANEL = 5
"""Rows of the timeline panel, at most a third of the terminal."""

_HINT = "space . +/- ←/→ [ ] / n N q"


def play(
    cast: Cast,
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
    """Play until the user quits; return the exit code: 0, or 128 plus the signal that ended it.

    events:       show the timeline panel.
    source, sink: descriptors of one terminal.

    Raise ScreenUnavailable before the terminal is touched.
    """
    terminal = Canvas(source, sink)
    player = Player(cast, timeline, speed=speed, idle=idle, at=at, stopped=terminal.typed)
    try:
        with terminal:
            last = clock()
            while not player.quit and not terminal.killed:
                now = clock()
                player.advance(now - last)
                last = now
                terminal.show(*frame(player, title, *terminal.size, events=events))
                rest = max(FRAME, 2 * (clock() - now))
                for key in terminal.keys(None if player.due is None else max(min(player.due, TICK), rest)):
                    if key == "suspend":
                        terminal.suspend()
                        last = clock()
                    elif key == "interrupt" and player.search.typing is None:
                        terminal.killed = signal.SIGINT
                    elif key == "enter" and player.search.typing:
                        rows, _ = frame(player, title, *terminal.size, events=events)
                        terminal.show([*rows[:-1], " searching…"], None)
                        player.press(key)
                        last = clock()  # the time that a search took is not played
                    else:
                        player.press(key)
    finally:
        player.close()
    return 128 + terminal.killed if terminal.killed else 0


def frame(
    player: Player, title: str, columns: int, rows: int, *, events: bool = False
) -> tuple[list[str], Cursor]:
    """Return what to show now, exactly `rows` rows of at most `columns` columns, and the cursor."""
    height = rows - 1 if rows > 1 else rows
    panel = _panel(player, min(PANEL, rows // 3), columns) if events else []
    height -= len(panel)
    screen, cursor = render(player.seekable.screen, columns, height)
    shown = [*screen, *[""] * (height - len(screen)), *panel]
    if rows == 1:
        return shown, cursor
    if player.search.typing is not None:
        asked = clip(f"/{visible(player.search.typing)}", columns - 1)
        return [*shown, asked], (min(len(asked), columns - 1), rows - 1)
    below = clip(status(player, title, columns, height).ljust(columns), columns)
    return [*shown, f"\x1b[7m{below}\x1b[0m"], cursor


def status(player: Player, title: str, columns: int, rows: int) -> str:
    """Return the status line, for a screen of `columns` x `rows`."""
    sign = "end" if player.ended else "paused" if player.paused else "playing"
    wide, high = player.seekable.recorded
    size = f"{wide}x{high}"
    if wide > columns or high > rows:
        size += f" cut to {min(wide, columns)}x{min(high, rows)}"
    place = f"{clock_time(player.position)}/{clock_time(player.seconds)}"
    parts = [f"{sign} {place}", f"{player.speed:g}x", visible(title), size, visible(player.message) or _HINT]
    return " " + "  ".join(part for part in parts if part)


def _panel(player: Player, rows: int, columns: int) -> list[str]:
    """Return the rows with the last moments up to now, the newest at the bottom."""
    if rows < 1:
        return []
    now = math.inf if player.ended else player.position  # a session's last entries come after its output
    lines = [
        clip(visible(f"{clock_time(each.at):>8}  {each.kind:<16} {each.text}"), columns)
        for each in player.timeline.until(now, rows - 1)
    ]
    return [f"\x1b[2m{'─' * columns}\x1b[0m", *lines, *[""] * (rows - 1 - len(lines))]


def clock_time(seconds: float) -> str:
    """Return `seconds` as `1:05` or `2:00:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
