"""The reader for programs that draw: logical lines by their place on the virtual screen.

feed → VirtualScreen ─(a look between two frames)→ DrawnText ─→ lines that have scrolled off or settled
                                                                             ↓
                                                                Emitter: each once, no echo → Line
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from relay.agents.profile import BlockEnd
from relay.dataclass import asdict, dataclass
from relay.place import PlaceCounter
from relay.readers.drawing import PLAIN, Drawing
from relay.readers.drawn import LAYOUT, DrawnText
from relay.readers.echo import Echo
from relay.readers.flood import FENCES, FLOOD, directive, visible_part
from relay.readers.line import Line
from relay.readers.page import PageLine
from relay.terminal.screen import VirtualScreen

QUIET = 0.008
"""Seconds of silence after which a frame counts as complete."""

PAUSE = 0.05
"""Seconds between two pieces of output from which they are always read separately."""

READ_EVERY = 0.1
"""Seconds after which a change gets a look even if the program is never silent."""

_BACKLOG = 256 * 1024
"""Bytes fed without a look after which one is due: rows that scroll off in between stay in memory."""

_FRAME = 10.0
"""Maximum seconds to wait for the rest of an unfinished synchronized update (mode 2026)."""

_SIZES = 10.0
"""Seconds after a resize in which a busy program may draw for the old size or the new one."""

_ECHO = 10.0
"""Seconds within which a drawing program, possibly busy, shows typed text."""

_MAX_LOOKS = 128
"""Maximum looks within one feed; a program that needs more shows an animation."""

_TURN = re.compile(
    rb"\x1b\[\?[0-9;]*(?:1049|1047|47)[0-9;]*[hl]"  # to or from the alternate screen
    rb"|\x1b\[(?:1?;?1)?H\x1b\[0?J|\x1b\[[23]J|\x1bc"  # erasing everything
)
_FRAME_END = re.compile(rb"\x1b\[\?2026l")  # of a synchronized update
_LIVE_END = re.compile(rb"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)+\r?\n\x1b\[\?25h")  # of rich's live display
# `>>>`, also as a quote in quotes (opencode, pi, qwen)
_CLOSES = re.compile(r"\s*(?:[│┃▎▌]\s*)*(?:>\s*){2,3}\Z")


@dataclass(slots=True)
class _Unseen:
    """The output fed since the last look.

    size:       bytes. since: when the first of them came, in seconds.
    line_feeds: counted where lines may scroll away without scrolling off.
    matters:    it may contain lines of a directive.
    """

    size: int = 0
    since: float = 0.0
    line_feeds: int = 0
    matters: bool = False

    def add(self, size: int, now: float) -> None:
        if not self.size:
            self.since = now
        self.size += size

    def due(self, now: float) -> bool:
        """Return True if a look is due even though the program is not silent."""
        return now - self.since >= READ_EVERY or self.size >= _BACKLOG


class ScreenReader:
    """Feeds a virtual screen and turns it into lines for an AutoReader, which documents the methods.

    marker: begins a directive.
    """

    def __init__(
        self, screen: VirtualScreen, marker: bytes, drawing: Drawing, echo: Echo, places: PlaceCounter
    ) -> None:
        text = marker.decode("utf-8", "replace")
        self._screen = screen
        self._text = DrawnText(screen, text, drawing)
        self._emitter = _Emitter(text, echo, places, drawing.block_end)
        self._hit = re.compile(directive(marker) + rb"|" + FENCES)  # all that matters in plain text
        self._coarse = re.compile(re.escape(marker) + rb"|" + FENCES)
        self._end = 0  # offset of the next output
        self._fed = self._ticked = self._frame = 0.0  # seconds; what came after `_frame` is one frame
        self._resized = -math.inf  # seconds
        self._unseen = _Unseen()
        echo.seconds = _ECHO
        screen.note(text, "```", "~~~", ">>>", colours=drawing != PLAIN)
        screen.collect()

    def begin(self, unfinished: str, settled: str, offset: int, now: float) -> None:
        """Take over from the lines reader after `offset` bytes.

        That reader has returned all lines on the screen, and the part `settled` of the `unfinished` one.
        """
        self._fed = now
        self._end = offset
        self._look(offset, now)
        for line in self._text.lines:
            if not (self._text.at_cursor(line) and unfinished.removeprefix(settled).strip()):
                line.emitted = line.key

    def state(self) -> dict[str, Any]:
        clock = self._fed, self._ticked, self._frame, self._resized
        form = self._emitter.gap, self._emitter.form
        unseen, text = tuple(asdict(self._unseen).values()), self._text.state()
        return {"end": self._end, "clock": clock, "form": form, "unseen": unseen, "text": text}

    def restore(self, state: dict[str, Any]) -> None:
        self._end = state["end"]
        self._fed, self._ticked, self._frame, self._resized = state["clock"]
        self._emitter.gap, form = state["form"]
        self._emitter.form = None if form is None else _Form(*form)
        self._unseen = _Unseen(*state["unseen"])
        self._text.restore(state["text"])

    def feed(self, data: bytes, end: int, begun: float, now: float) -> list[Line]:
        """Take output that ends at the offset `end`; return the lines that it completed."""
        lines = self.tick(begun)
        start, self._end = self._end, end
        if not data:
            return lines
        self._fed = now
        self._frame = now - QUIET if now - begun < QUIET else now
        if (tail := self._skippable(data)) is not None:
            return lines + self._skip(data, tail, begun, now)
        at, apart = 0, len(data) // _MAX_LOOKS
        for turn in self._turns(data):
            lines += self._draw(data[at : turn.start()], start + at, now, apart)
            at, offset = turn.end(), min(start + turn.start(), end)
            if turn.re is _FRAME_END:
                self._screen.feed(turn[0])
                # What the primary screen shows stays, or scrolls off.
                if self._unseen.matters and self._text.alternate and now - self._resized >= _SIZES:
                    lines += self._look(offset, now)
                continue
            if self._redraws(turn):
                self._screen.feed(turn[0])
                continue
            lines += self._look(offset, now)
            if turn.re is _LIVE_END:
                lines += self._emitter.emit(self._text.torn(), offset, now)
            else:
                lines += self._emitter.emit(self._text.complete(), offset, now, self._shown(turn))
                if turn[0].startswith(b"\x1b[?"):
                    self._text.cover()
                else:
                    self._text.wipe(now)
            self._screen.feed(turn[0])  # separately: what follows may be on the other screen
        lines += self._draw(data[at:], start + at, now, apart)
        self._text.drawn(data, now)
        self._unseen.add(len(data), begun)
        return lines

    def tick(self, now: float) -> list[Line]:
        self._ticked = now
        if self._midway(now):
            return []
        lines: list[Line] = []
        if self._unseen.size:
            if now - self._fed < QUIET and not self._unseen.due(now):
                return []
            lines += self._look(self._end, now)
        return lines + self._emitter.emit(self._text.settled(now), self._end, now)

    def drawing(self, now: float) -> bool:
        return self._midway(now) or self._text.unread(now)

    def waiting(self, now: float, *, sure: bool = True) -> list[Line]:
        lines = self._look(self._end, now)
        if sure and (sign := self._text.prompt()):
            self._emitter.echo.prompts.learn(sign)
        lines += self._emitter.emit(self._text.lines, self._end, now)
        self._emitter.form = None
        return lines

    def gap(self, end: int, now: float) -> list[Line]:
        lines = self.tick(now) + self._look(self._end, now)
        self._end = end
        self._emitter.gap = True
        return lines

    @property
    def look_due(self) -> float:
        """The time of the next look, regardless of what is fed before; infinity: nothing is unseen."""
        return self._unseen.since + READ_EVERY if self._unseen.size else math.inf

    @property
    def settling(self) -> bool:
        if self._unseen.size:
            return True
        return self._ticked - self._fed <= LAYOUT and self._text.pending

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        lines = self.tick(now) + self._look(self._end, now)
        self._screen.resize(columns, rows)
        self._fed = self._resized = now
        self._text.resized(now)
        return lines + self._look(self._end, now)

    def close(self, now: float) -> list[Line]:
        lines = self._look(self._end, now)
        return lines + self._emitter.emit(self._text.covered, self._end, now) + self.waiting(now)

    def _midway(self, now: float) -> bool:
        """Return True in the middle of a frame, for up to `_FRAME` seconds of silence."""
        return self._screen.synchronized and now - self._fed < _FRAME

    def _draws_downwards(self) -> bool:
        """Return True in the middle of a full-page frame from which no line has scrolled away."""
        framed = self._screen.alternate and self._screen.synchronized and not self._text.scrolls
        return framed and self._screen.cursor[1] < self._screen.height - 1

    def _shown(self, turn: re.Match[bytes]) -> float:
        """Return the time from which lines that `turn` erases were never on the screen."""
        covers = turn[0].startswith(b"\x1b[?") and turn[0].endswith(b"h")  # the primary screen comes back
        return math.inf if covers else self._frame

    def _redraws(self, turn: re.Match[bytes]) -> bool:
        """Return True if `turn` erases a full-screen page in mid-frame: nobody sees the empty page."""
        erases = turn.re is _TURN and not turn[0].startswith((b"\x1b[?", b"\x1bc"))
        return erases and self._text.alternate and self._screen.alternate and self._screen.synchronized

    def _turns(self, data: bytes) -> list[re.Match[bytes]]:
        """Return the sequences in `data` before which a look is due, and frame ends, which may matter."""
        found = sorted([*_TURN.finditer(data), *_LIVE_END.finditer(data)], key=re.Match.start)[:_MAX_LOOKS]
        frames = [*_FRAME_END.finditer(data)][-_MAX_LOOKS:]
        return sorted([*found, *frames], key=re.Match.start)

    def _draw(self, data: bytes, start: int, now: float, apart: int) -> list[Line]:
        """Feed `data`, which begins at the offset `start` of the output.

        Look every half page, but at least `apart` bytes apart, where lines that matter may scroll away
        without scrolling off.
        """
        lines: list[Line] = []
        self._text.follow_regions(data)
        fed = seen = at = 0
        if self._screen.alternate or self._text.scrolls:
            while at := data.find(b"\n", at) + 1:
                self._unseen.line_feeds += 1
                if self._unseen.line_feeds < max(self._screen.height // 2, 1) or at - seen < apart:
                    continue
                self._unseen.line_feeds = 0
                self._unseen.matters = self.matters(data[seen:at])
                seen = at
                if self._unseen.matters:
                    self._screen.feed(data[fed:at])
                    fed = at
                    if not self._draws_downwards():
                        lines += self._look(min(start + at, self._end), now)
        self._unseen.matters = self.matters(data[seen:])
        self._screen.feed(data[fed:])
        return lines

    def matters(self, data: bytes) -> bool:
        """Return True if a line of a directive may be in `data`, or is incomplete on the screen."""
        if self._unseen.matters or self._emitter.form is not None or self._coarse.search(data) is not None:
            return True
        return any(self._emitter.marker in line.text and line.pending for line in self._text.lines)

    def _skippable(self, data: bytes) -> bytes | None:
        """Return the part of `data` that the screen needs if it is a flood of text with nothing to find."""
        drawn = self._text.alternate or self._text.scrolls
        if len(data) < FLOOD or drawn or self._emitter.form or self._hit.search(data) is not None:
            return None
        tail = visible_part(data, self._screen)
        return tail if len(tail) < len(data) // 2 else None

    def _skip(self, data: bytes, tail: bytes, begun: float, now: float) -> list[Line]:
        """Feed only the end of the line already begun, and the `tail`; the rest has nothing to find."""
        self._screen.feed(data[: data.index(b"\n") + 1])
        lines = self._look(self._end, now) + self._emitter.emit(self._text.lines, self._end, now)
        self._screen.feed(tail)
        self._screen.drain()
        self._text.restart()
        self._unseen.add(len(data), begun)
        self._emitter.gap = True
        return lines

    def _look(self, offset: int, now: float) -> list[Line]:
        """Bring the text up to date after `offset` bytes; emit the lines that have scrolled away."""
        if self._text.stale:
            return []
        self._unseen = _Unseen()
        lines = self._emitter.emit(self._text.turn(now), offset, now, self._frame)
        gone, lost = self._text.look(self._fed)
        self._emitter.gap = self._emitter.gap or lost
        return lines + self._emitter.emit(gone, offset, now)


class _Form(NamedTuple):
    """An open `<<<` form.

    since: seconds; an older rule below the form is the frame of the input, where the form stops.
    fence: the column of a code fence in it, or -1.
    """

    since: float
    fence: int = -1

    def after(self, line: PageLine) -> _Form:
        column = len(line.text) - len(line.text.lstrip())
        if not line.text[column:].startswith(("```", "~~~")) or self.fence not in (-1, column):
            return self
        return self._replace(fence=column if self.fence < 0 else -1)


class _Emitter:
    """Turns the lines of a page into Lines: each once, without echoes and drafts.

    marker: begins a directive.
    echo:   the typed lines.
    gap:    output was lost or skipped before the next line.
    form:   the open `<<<` form.
    """

    def __init__(self, marker: str, echo: Echo, places: PlaceCounter, block_end: BlockEnd) -> None:
        self.marker = marker
        self.echo = echo
        self._places = places
        self._block_end = block_end
        self.gap = False
        self.form: _Form | None = None

    def emit(self, lines: list[PageLine], offset: int, now: float, shown: float = math.inf) -> list[Line]:
        """Return the pending ones of `lines`, which are complete after `offset` bytes of output.

        shown: those that changed later than this time are hidden: they are gone before anyone could see them.
        """
        emitted: list[Line] = []
        above = ""
        for line in lines:
            if line.pending and not self.echo.drafted(line.text):
                line.emitted = line.key
                typed = self.echo.continues(above, line.text) or self.echo.consume(line.text, now)
                if not typed and not line.echo and not (self.form and line.footer_since < self.form.since):
                    emitted += self._lines(line, offset, now, hidden=line.hidden or line.changed > shown)
            above = line.text
        return emitted

    def _lines(self, line: PageLine, offset: int, now: float, *, hidden: bool) -> list[Line]:
        """Return `line` as Lines, with the empty ones above it."""
        emitted: list[Line] = []
        if self.form and self.form.fence < 0 and self._block_end == "blank" and line.blanks > 1:
            emitted.append(self._line(">>>", offset, now))
        emitted += [Line("", now, self._places.at(offset)) for _ in range(min(line.blanks, 2))]
        text = ">>>" if self.form and _CLOSES.match(line.text) else line.text
        if (said := self.echo.behind_prompt(text)).lstrip().startswith(self.marker):
            text = said
        emitted.append(self._line(text, offset, now, code=line.code, hidden=hidden))
        if hidden:
            return emitted
        if text.endswith("<<<") and self.marker in text:
            self.form = _Form(line.born if line.footer_since == math.inf else -math.inf)
        elif self.form:
            self.form = self.form.after(line)
        return emitted

    def _line(self, text: str, offset: int, now: float, *, code: bool = False, hidden: bool = False) -> Line:
        unmarked = self._block_end == "none"
        line = Line(text, now, self._places.at(offset), self.gap, code, unmarked, hidden)
        if text.strip() == ">>>" and not hidden:
            self.form = None
        self.gap = False
        return line
