"""What a recorded terminal showed, and when: recordings, played on relay's own virtual screen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from relay.recording.asciicast import Cast
from relay.terminal.render import render
from relay.terminal.screen import VirtualScreen

TICKS = 20
"""Frames for each second, at most: what a program draws within one tick is one frame."""


class Frame(NamedTuple):
    """A screen from a tick on. rows: text with SGR sequences; cursor: (x, y), None if it is hidden."""

    tick: int
    rows: tuple[str, ...]
    cursor: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Pane:
    """One terminal: what it showed, frame by frame. title: what is written above it."""

    title: str
    columns: int
    height: int
    frames: tuple[Frame, ...]

    @classmethod
    def play(cls, path: Path) -> Pane:
        """Play the recording `path`; raise RecordingError if it is none."""
        cast = Cast(path, strict=True)
        screen = VirtualScreen(cast.header.columns, cast.header.rows)
        frames: dict[int, Frame] = {}
        for event in cast:
            if event.kind != "o":
                continue
            screen.feed(event.encoded)
            tick = int(event.time * TICKS)
            if not screen.synchronized:
                rows, cursor = render(screen, screen.columns, screen.height)
                frames[tick] = Frame(tick, tuple(rows), cursor)
        height = screen.height
        screen.close()
        return cls(cast.header.title, cast.header.columns, height, tuple(frames.values()))


def shorten(panes: Sequence[Pane], longest: int) -> tuple[Pane, ...]:
    """Return `panes`, which share a timeline, with every pause in all of them cut to `longest` ticks."""
    before = sorted({frame.tick for pane in panes for frame in pane.frames})
    after, now = [], 0
    for at, tick in enumerate(before):
        now += min(tick - before[at - 1], longest) if at else 0
        after.append(now)
    moved = dict(zip(before, after, strict=True))
    return tuple(
        Pane(
            pane.title,
            pane.columns,
            pane.height,
            tuple(frame._replace(tick=moved[frame.tick]) for frame in pane.frames),
        )
        for pane in panes
    )


def at_tick(pane: Pane, tick: int) -> Frame | None:
    """Return the frame that `pane` shows at `tick`, None before its first."""
    number = bisect_right([frame.tick for frame in pane.frames], tick)
    return pane.frames[number - 1] if number else None
