"""The lines of one screen from look to look: which are the same as before, and which are new.

A line is identified by its place between the lines above and below it at the last look.  So a repaint changes
nothing, a repeated line has two places, and a page that was cleared and reprinted is recognized by the order
of its lines.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import Any

from relay.readers.wrap import LogicalLine

_HISTORY = 1000
"""Maximum lines remembered above the screen, more than any agent reprints."""

_HIDDEN = 200
"""Maximum lines remembered in places that other lines now cover."""

_DIFF_LIMIT = 400
"""Lines on either side up to which places are compared in full."""

_OVERLAP = 16
"""Characters that identify the rest of a line whose first rows are no longer drawn.

A shorter rest is recognized by the line below it.
"""

_NEAR = 3000
"""Characters of a page that a reprint may leave out before a short line, such as a code fence."""

_SHORT = 20
"""Characters below which a line may well be new even if it is somewhere on the page."""

_PAUSE = 1.0
"""Seconds of silence that end a reprint; agents redraw at once."""

_FRAME = 10.0
"""The same within an unfinished frame (mode 2026)."""

_RULED = re.compile(r"[\u2500-\u259f]+\Z")


class PageLine:
    """A logical line in its place.

    emitted: the text that was emitted for it (without blanks), or None.
    born:    when something first appeared there; changed: when that last changed (seconds).
    visible: it is on the screen, in the rows from `first` to `last`.
    footer_since: when the rule across the screen that it is below (or is) appeared; infinity: none.
                  -infinity: it is below the cursor of a full-screen program.
    drawn:   whether it is, or was with this text, drawn as something other than the agent's words (echo),
             as code, or partly invisible (hidden).
    """

    __slots__ = (
        *("blanks", "born", "changed", "drawn", "emitted", "first", "footer_since"),
        *("key", "last", "text", "visible"),
    )

    def __init__(self, line: LogicalLine, now: float, emitted: str | None = None) -> None:
        self.emitted = emitted
        self.born = self.changed = now
        self.visible = True
        self.footer_since = math.inf
        self.key = ""
        self.drawn: Sequence[bool] = (False, False, False)
        self.update(line, now)

    def update(self, line: LogicalLine, now: float) -> None:
        if line.key != self.key:
            self.changed = now
            self.drawn = (False, False, False)
        echo, code, hidden = self.drawn
        self.drawn = echo or line.echo, code or line.code, hidden or line.hidden
        self.text, self.key = line.text, line.key
        self.place(line)

    def place(self, line: LogicalLine) -> None:
        self.first, self.last, self.blanks = line.first, line.last, line.blanks
        self.visible = True

    def begins_with(self, line: LogicalLine) -> bool:
        """Return True if it has not been emitted, and `line` is its beginning.

        Its rows, which the agent wrapped at another width, no longer look like one line.
        """
        shorter = self.key != line.key and self.key.startswith(line.key)
        return shorter and self.emitted is None and self.visible

    def stood_at(self, line: LogicalLine) -> bool:
        """Return True if it was drawn where `line` is now, so that is nothing new: a spinner, a counter."""
        return self.visible and self.first == line.first

    @property
    def echo(self) -> bool:
        return self.drawn[0]

    @property
    def code(self) -> bool:
        return self.drawn[1]

    @property
    def hidden(self) -> bool:
        return self.drawn[2]

    @property
    def pending(self) -> bool:
        """True if it shows more than, or something other than, its emitted text."""
        return self.emitted is None or not self.emitted.startswith(self.key)


class Page:
    """The lines of one screen (primary or alternate), with those that scrolled off it or are covered.

    scrolls_back: the program can bring back lines that scrolled off (the alternate screen).
    covered:      columns, rows, and the bytes that draw the screen, from before the other last covered it.
    """

    def __init__(self, *, scrolls_back: bool) -> None:
        self._scrolls_back = scrolls_back
        self.covered: tuple[int, int, str] | None = None
        self._lines: list[PageLine] = []
        self._history: deque[str] = deque(maxlen=_HISTORY)
        self._reprint: _Reprint | None = None

    def state(self) -> dict[str, Any]:
        lines = [[getattr(line, name) for name in PageLine.__slots__] for line in self._lines]
        reprint = None if self._reprint is None else self._reprint.state()
        return {"lines": lines, "history": list(self._history), "reprint": reprint}

    def restore(self, state: dict[str, Any]) -> None:
        for values in state["lines"]:
            line = PageLine.__new__(PageLine)
            for name, value in zip(PageLine.__slots__, values, strict=True):
                setattr(line, name, value)
            self._lines.append(line)
        self._history.extend(state["history"])
        if state["reprint"] is not None:
            self._reprint = _Reprint.restored(state["reprint"])

    @property
    def visible(self) -> list[PageLine]:
        """The lines on the screen, top to bottom."""
        return [known for known in self._lines if known.visible]

    @property
    def pending(self) -> bool:
        for known in self._lines:  # asked for in each tick: a generator would take twice as long
            if known.visible and (known.emitted is None or not known.emitted.startswith(known.key)):
                return True
        return False

    def expect_reprint(self, now: float, within: float = _PAUSE) -> None:
        """Expect a reprint of emitted lines (after a resize, a clear, a change of screens).

        within: seconds in which it begins, if at all; more if one is already expected for longer.
        """
        within = self._patience(now, within)
        self._end_reprint()
        own = list(self._history)
        emitted = [each.emitted for each in self._lines if each.emitted]
        self._reprint = _Reprint([*own, *emitted], len(own), now + within)
        self._history.clear()

    def _patience(self, now: float, within: float) -> float:
        """Return `within`, or the seconds for which a reprint is already expected if that is longer.

        A full-screen program redraws its page as soon as it has cleared the screen.
        """
        if self._reprint is None or self._scrolls_back:
            return within
        return max(within, self._reprint.deadline - now)

    def hold_reprint(self, now: float) -> None:
        """Note that the program has not finished its frame: the frame of a reprint may take long."""
        if self._reprint is not None:
            self._reprint.deadline = max(self._reprint.deadline, now + _FRAME)

    def wipe(self, now: float) -> None:
        """Treat the screen as cleared, or turned to another page; the lines may be reprinted."""
        within = self._patience(now, _PAUSE)
        self._end_reprint([known.emitted for known in self._lines if known.emitted])
        self._lines = []
        self.expect_reprint(now, within)

    def _end_reprint(self, left: Sequence[str] = ()) -> None:
        """Remember the lines that were not reprinted, and those that `left` the page, in order."""
        above, below = ([], []) if self._reprint is None else self._reprint.missing()
        self._history = deque([*above, *self._history, *left, *below], maxlen=_HISTORY)
        self._reprint = None

    def look(self, lines: Sequence[LogicalLine], now: float, *, scrolls: bool) -> list[PageLine]:
        """Read the current screen; return the lines that scrolled away within it, in order.

        scrolls: lines may have left the screen other than off its top (a scroll region).
        """
        if self._scrolls_back:
            lines = self._with_rows_above(lines)
        shown = self.visible
        pairs = _align([known.key for known in shown], [line.key for line in lines])
        came = sorted(set(range(len(lines))).difference(j for _, j in pairs))
        if shown and not pairs:
            self.wipe(now)
            shown = []
        if self._reprint is not None and now > self._reprint.deadline:
            self._end_reprint()
        if self._reprint is not None and not shown:
            self._reprint.at = 0  # the page is blank
        stays = [(shown[i], j) for i, j in pairs]
        uncovered = self._uncover([lines[j] for j in came], {id(known) for known, _ in stays})
        at_index = {id(known): index for index, known in enumerate(self._lines)}
        # Between two lines that stayed are those that left and those that came.
        gone: list[PageLine] = []
        result: list[PageLine] = []
        last_came = max(came, default=-1)
        at = next_line = 0
        down = False  # some lines have moved down: those that came right above the first have, too
        for index, j in [*((at_index[id(known)], j) for known, j in stays), (len(self._lines), len(lines))]:
            stayed = self._lines[index] if j < len(lines) else None
            moved = lines[j].first - stayed.first if stayed is not None else 0
            fills = j <= last_came  # else the page has shrunk, and nothing has scrolled
            away = gone if scrolls and moved < 0 and fills and not down else None
            above = lines[next_line:j]
            again = self._scrolled_back(above) if moved > 0 and not down else {}
            down = down or moved > 0
            if at < index or above:
                result += self._gap(self._lines[at:index], above, uncovered, again, away, now)
            if stayed is not None:
                stayed.update(lines[j], now)
                result.append(stayed)
            at, next_line = index + 1, j + 1
        self._lines = result
        hidden = [known for known in result if not known.visible]
        if gone:
            for known in hidden:
                known.first = -1  # it would not be drawn again where it was
        for known in hidden[: max(0, len(hidden) - _HIDDEN)]:
            self._remember(known)
            self._lines.remove(known)
        return gone

    def _uncover(self, came: Sequence[LogicalLine], stayed: AbstractSet[int]) -> dict[int, PageLine]:
        """Remove the known lines that are among those that `came`; return them by their first rows.

        Hidden lines must be in the same rows: a dialog or a list of choices covered them meanwhile. Visible
        ones must have moved up past others, and so are not among those that `stayed` (by their ids): new
        lines come below.
        """
        rows = {line.first: line.key for line in came}
        first = {line.key: line.first for line in came}
        uncovered = {}
        for known in self._lines:
            if not known.key or id(known) in stayed:
                continue
            if not known.visible and rows.get(known.first) == known.key:
                uncovered[known.first] = known
            elif known.visible and (row := first.get(known.key, known.first)) < known.first:
                uncovered[row] = known
        taken = set(map(id, uncovered.values()))
        self._lines = [known for known in self._lines if id(known) not in taken]
        return uncovered

    def _with_rows_above(self, lines: Sequence[LogicalLine]) -> Sequence[LogicalLine]:
        """Return `lines`, the topmost completed with first rows seen at the last look but not drawn now.

        (The topmost below an echo, which some agents keep in the first row of a page that scrolls.)
        """
        top = next((number for number, line in enumerate(lines) if not line.echo), -1)
        if top < 0:
            return lines
        key, seen = lines[top].key, self.visible
        long = len(key) >= _OVERLAP
        if any(known.key.startswith(key) for known in seen):
            return lines  # it is whole
        joined = _rows_of(lines[top:])
        below = [*(known.key for known in seen[1:]), ""]
        found: list[tuple[int, int, LogicalLine]] = []
        for known, next_key in zip(seen, below, strict=False):
            count, at = len(joined), -1
            while count and not known.key.endswith(joined[count - 1].key):
                count -= 1
            if ends := count > 0:
                at = len(known.key) - len(joined[count - 1].key)
            elif long:  # the line has grown, or its end is not drawn either
                count, at = 1, known.key.find(key[:_OVERLAP], 1)
            follows = top + count < len(lines) and lines[top + count].key == next_key
            if not long and not follows:
                continue
            if at > 0 and joined[count - 1].key.startswith(known.key[at : at + len(key)]):
                drawn = {"echo": known.echo, "code": known.code, "hidden": known.hidden}
                found.append((count, ends + follows, joined[count - 1].below(known.text, at, **drawn)))
        best = [each for each in found if each[1] == max(fits for _, fits, _ in found)]
        if len({whole.key for _, _, whole in best}) == 1:  # else it is ambiguous
            count, _, whole = best[0]
            return [*lines[:top], whole, *lines[top + count :]]
        return lines

    def scroll_off(self, rows: int) -> tuple[list[PageLine], int]:
        """Remove the lines that end within the first `rows` rows: they have scrolled off for good.

        Return them and the number of their rows; the rows below are renumbered from 0.
        """
        count = 0
        for number, known in enumerate(self._lines, start=1):
            if known.visible:
                if known.last >= rows:
                    break
                count = number
        off = [known for known in self._lines[:count] if known.visible]
        for known in self._lines[:count]:
            self._remember(known)
        del self._lines[:count]
        taken = min((known.first - known.blanks for known in self._lines if known.visible), default=rows)
        taken = min(taken, rows)
        for known in self._lines:
            known.first -= taken
            known.last -= taken
        return off, taken

    def _remember(self, known: PageLine) -> None:
        if known.key:
            self._history.append(known.emitted or known.key)

    def _gap(
        self,
        before: list[PageLine],
        came: Sequence[LogicalLine],
        uncovered: dict[int, PageLine],
        again: dict[int, str],
        gone: list[PageLine] | None,
        now: float,
    ) -> list[PageLine]:
        """Return the lines that replace `before`, above a line that stayed.

        again: the full texts of those of `came` that have scrolled back, by their numbers.
        Append those that scrolled away to `gone`, which is None where none can have.
        """
        result: list[PageLine] = []
        at = known_to = 0
        rest = ""  # of a line whose rows no longer look like one line
        for number, line in enumerate(came):
            if line.key and rest.startswith(line.key):
                rest = rest[len(line.key) :]
                result[-1].last = line.last
                continue
            rest = ""
            if (known := uncovered.get(line.first)) is not None:
                known.update(line, now)
                result.append(known)
                continue
            k = self._same_place(before, at, line)
            if k is None:
                if (emitted := again.get(number)) is not None:
                    shown = line if emitted == line.key else line._replace(text=emitted, key=emitted)
                    result.append(PageLine(shown, now, emitted))
                    continue
                emitted = None if self._reprint is None else self._reprint.find(line.key, now)
                result.append(new := PageLine(line, now, emitted))
                new.born = min((one.born for one in before[at:] if one.stood_at(line)), default=now)
                continue
            result += self._leave(before[at:k], gone)
            if self._reprint is not None and before[k].begins_with(line):
                before[k].place(line)
                rest = before[k].key[len(line.key) :]
            else:
                before[k].update(line, now)
            result.append(before[k])
            at, known_to = k + 1, len(result)
        cut = next((k for k in range(len(before) - 1, at - 1, -1) if before[k].visible), at)
        if len(result) == known_to:
            cut = len(before)
        # The lines that came below the last one that left may be the rest of that line.
        left = self._leave(before[at:cut], gone) + self._leave(before[cut:], None)
        return result[:known_to] + left + result[known_to:]  # above what has come: a jump may be undone

    def _scrolled_back(self, came: Sequence[LogicalLine]) -> dict[int, str]:
        """Return the full texts, by number, of those of `came` that had scrolled off the top.

        Only the end of the topmost may be drawn. After a jump, lines never drawn may come between them.
        """
        again: dict[int, str] = {}
        history = list(self._history) if self._scrolls_back else []
        at = len(history)
        for number in range(len(came) - 1, -1, -1):
            key = came[number].key
            for k in range(at - 1, -1, -1):
                old = history[k]
                if old == key or (number == 0 and old.endswith(key)):
                    again[number] = old
                    del self._history[k]
                    at = k
                    break
        return again

    def _same_place(self, before: list[PageLine], at: int, line: LogicalLine) -> int | None:
        """Return the index of the one that `line` shows: whole, half painted, grown or slightly changed."""
        for k in range(at, len(before)):
            if before[k].key == line.key:
                return k
        for k in range(at, len(before)):
            known = before[k]
            hidden = not known.visible and known.emitted and known.emitted.startswith(line.key)
            if hidden or (known.visible and _alike(known.key, line.key)):
                return k
        return None

    def _leave(self, lines: list[PageLine], gone: list[PageLine] | None) -> list[PageLine]:
        """Hide `lines`; return those to remember in their place."""
        kept = []
        for known in lines:
            if known.visible and gone is not None:
                gone.append(known)
                self._remember(known)
                continue
            known.visible = False
            if known.emitted:
                kept.append(known)
        return kept


class _Reprint:
    """A page that is being reprinted: its lines, each of which comes once, in one string without blanks.

    They are one string because the same text may be wrapped differently now.

    own:      the number of lines remembered only here; the rest are still on the page.
    at:       characters up to the end of the line that came last.
    deadline: when the reprint is over, unless more of it comes first.
    """

    def __init__(self, emitted: list[str], own: int, deadline: float) -> None:
        self._text = "".join(emitted)
        self._starts = [0, *accumulate(map(len, emitted))]
        self._own = own
        self._used: set[int] = set()  # numbers of the lines that have come
        self.at = 0
        self.deadline = deadline

    def state(self) -> list[Any]:
        emitted = [self._text[start:end] for start, end in pairwise(self._starts)]
        return [emitted, self._own, self.deadline, sorted(self._used), self.at]

    @classmethod
    def restored(cls, state: list[Any]) -> _Reprint:
        reprint = cls(*state[:3])
        reprint._used, reprint.at = set(state[3]), state[4]
        return reprint

    def missing(self) -> tuple[list[str], list[str]]:
        """Return the lines remembered only here that have not come, above and below the last that came."""
        above, below = list[str](), list[str]()
        for number in range(self._own):
            if number not in self._used:
                start, end = self._starts[number : number + 2]
                (above if start < self.at else below).append(self._text[start:end])
        return above, below

    def find(self, key: str, now: float) -> str | None:
        """Return the emitted text of the line that `key` is, begins or continues; None if it is new.

        A rule or the edge of a box has another width each time and carries no words.
        """
        if _RULED.match(key):
            return key
        at = self._place(key)
        if at < 0:
            return None
        end = at + len(key)
        rest = bisect_left(self._starts, end)
        self._used.update(range(bisect_right(self._starts, at) - 1, rest))
        self.at = end
        self.deadline = max(self.deadline, now + _PAUSE)
        return self._text[at : self._starts[rest]]

    def _place(self, key: str) -> int:
        """Return where `key` is found: where the last line ended, below that, or above it; -1: nowhere."""
        at = self.at
        within = self._starts[bisect_left(self._starts, at)] != at
        if within and self._text.startswith(key, at):
            return at
        far = _NEAR if len(key) < _SHORT else len(self._text)
        below = self._start(key, at, at + far)
        return below if below >= 0 else self._start(key, max(0, at - far), at)

    def _start(self, key: str, at: int, last: int) -> int:
        """Return where, from `at` to `last`, a line that has not come begins with `key`, or -1."""
        while 0 <= (at := self._text.find(key, at)) <= last:
            number = bisect_left(self._starts, at)
            if self._starts[number] == at and number not in self._used:
                return at
            at += 1
        return -1


def _rows_of(lines: Sequence[LogicalLine]) -> list[LogicalLine]:
    """Return the first of `lines` alone, with the next one, and so on, up to an empty row.

    A row above, which is not drawn now, showed that rows that are less than full belong together.
    """
    joined = [lines[0]]
    for line in lines[1:]:
        if line.blanks:
            break
        text, key = f"{joined[-1].text} {line.text.lstrip()}", joined[-1].key + line.key
        joined.append(joined[-1]._replace(text=text, key=key, last=line.last))
    return joined


def _align(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs (old line, new line) that are equal, by index and in order."""
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    pairs = [(i, i) for i in range(head)]
    rest_old, rest_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if rest_old and rest_new and len(rest_old) <= _DIFF_LIMIT and len(rest_new) <= _DIFF_LIMIT:
        repeated = {key for rest in (rest_old, rest_new) for key, n in Counter(rest).items() if n > 1}
        pairs += [(head + i, head + j) for i, j in _blocks(rest_old, rest_new, repeated)]
    return pairs + [(len(old) - k, len(new) - k) for k in range(tail, 0, -1)]


def _blocks(old: Sequence[str], new: Sequence[str], repeated: AbstractSet[str]) -> list[tuple[int, int]]:
    """Return the pairs of the longest equal blocks.

    Lines that are `repeated` say little: they count only beside others, and then between those.
    Of two crossing blocks of equal length, the last of `old` wins: lines scroll off at the top.
    """
    pairs = list[tuple[int, int]]()
    at, next_line = 0, 0
    upwards = SequenceMatcher(repeated.__contains__, old[::-1], new[::-1], False).get_matching_blocks()
    blocks = [(len(old) - i - size, len(new) - j - size, size) for i, j, size in reversed(upwards[:-1])]
    for i, j, size in [*blocks, (len(old), len(new), 0)]:
        if repeated:
            between = _blocks(old[at:i], new[next_line:j], frozenset())
            pairs += [(at + a, next_line + b) for a, b in between]
        pairs += [(i + k, j + k) for k in range(size)]
        at, next_line = i + size, j + size
    return pairs


def _alike(a: str, b: str) -> bool:
    """Return True if `a` may have become `b`: grown, cut, or with a counter advanced."""
    shorter, longer = sorted((a, b), key=len)
    if longer.startswith(shorter):
        return True
    return _shared(a, b) * 10 >= len(longer) * 6


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix of `a` and `b`."""
    shorter = min(len(a), len(b))
    return next((at for at in range(shorter) if a[at] != b[at]), shorter)
