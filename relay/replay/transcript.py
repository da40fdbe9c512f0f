"""A recording as text: each line that its program printed or drew, once, however often it was redrawn.

It is read like a session's output, but without an agent's profile: prompts and panels count, too.
`[... 266 kB left out ...]` replaces missing output.
"""

from __future__ import annotations

from collections.abc import Iterator

from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, play
from relay.readers.auto import AutoReader
from relay.recording.asciicast import Cast, gap_marker
from relay.replay.seekable_screen import SeekableScreen

_BEGINNING = "[... beginning no longer kept ...]"


def lines(cast: Cast) -> Iterator[str]:
    """Yield the lines, oldest first, not yet safe to show; less well without a virtual screen."""
    if cast.truncated:
        yield _BEGINNING
    reader = AutoReader(cast.header.columns, cast.header.rows)
    pipeline = OutputPipeline(reader, Grammar(lambda namespace: False))
    left_out = 0
    output = (event for event in cast if event.kind != "i")  # the echo of what was typed is shown, too
    for reading in play(output, pipeline):
        if left_out and reading.lines:
            yield _gap(left_out)
            left_out = 0
        yield from (line.text for line in reading.lines)
        left_out += reading.left_out
    if left_out:
        yield _gap(left_out)


def screen(seekable: SeekableScreen) -> list[str]:
    """Return the rows of the screen, without trailing blank ones, not yet safe to show."""
    texts = [row.text for row in seekable.screen.rows()]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _gap(size: int) -> str:
    return f"[... {gap_marker(size)} ...]"
