"""What is known of a screen's lines, and which of them are the same as before.

A line is known by its place: between the lines that stood above and below it at the last look.  So a repaint
changes nothing, a line said twice stands in two places, and a page that was cleared and printed again is
recognised by the order of its lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence, Set
from difflib import SequenceMatcher
from itertools import accumulate

from relay.readers.wrap import Logical

_HISTORY = 1000
"""Lines remembered above the screen; more than a page that any agent prints again."""

_HIDDEN = 200
"""Lines remembered in a place where something else stands now."""

_DIFF_LIMIT = 400
"""Lines on either side up to which places are compared in full."""

_OVERLAP = 16
"""Characters by which the rest of a line is recognised whose first rows are no longer drawn."""

_NEAR = 3000
"""Characters of a page that a reprint may leave out before a line without a directive."""


class Entry:
    """A logical line in its place.

    spoken:  what has been said of it (without blanks), or None.
    born:    when something first stood there; changed: when its text last changed (seconds).
    visible: whether it stands on the screen; its rows there are `first` to `last`.
    echo:    it is, or was with this text, drawn as what are not the agent's words; code: as code.
    """

    __slots__ = (
        *("blanks", "born", "changed", "code", "echo", "first", "key", "last"),
        *("spoken", "text", "visible"),
    )

    def __init__(self, line: Logical, now: float) -> None:
        self.spoken: str | None = None
        self.born = self.changed = now
        self.visible = True
        self.key = ""
        self.echo = self.code = False
        self.update(line, now)

    def update(self, line: Logical, now: float) -> None:
        if line.key != self.key:
            self.changed = now
            self.echo = self.code = False
        self.echo, self.code = self.echo or line.echo, self.code or line.code
        self.text, self.key = line.text, line.key
        self.first, self.last, self.blanks = line.first, line.last, line.blanks
        self.visible = True

    @property
    def unsaid(self) -> bool:
        """Whether it shows more than, or something other than, what was said of it."""
        return self.spoken is None or not self.spoken.startswith(self.key)


class Page:
    """The lines of one screen (primary or alternate), with those that scrolled off it or are covered.

    scrolls_back: whether the program can show again what scrolled off (the alternate screen).
    """

    def __init__(self, *, scrolls_back: bool) -> None:
        self._scrolls_back = scrolls_back
        self._lines: list[Entry] = []
        self._history: deque[str] = deque(maxlen=_HISTORY)
        self._reprint: _Reprint | None = None

    @property
    def visible(self) -> list[Entry]:
        return [entry for entry in self._lines if entry.visible]

    def expect_reprint(self, now: float) -> None:
        """The program may print again what it has said (after a resize, a clear, a change of screens)."""
        self._reprint = _Reprint([*self._history, *(e.spoken for e in self._lines if e.spoken)], now)

    def wipe(self, now: float) -> None:
        """The screen is cleared, or turned to another page; it may be printed again."""
        self.expect_reprint(now)
        for entry in self._lines:
            if entry.spoken:
                self._history.append(entry.spoken)
        self._lines = []

    def look(self, lines: Sequence[Logical], now: float, *, scrolls: bool) -> list[Entry]:
        """Take the screen as it is now; return the entries that scrolled away within it, in their order.

        scrolls: whether lines can have left the screen otherwise than off its top (a scroll region).
        """
        if self._scrolls_back:
            lines = self._with_rows_above(lines)
        old = [index for index, entry in enumerate(self._lines) if entry.visible]
        pairs = self._align([self._lines[index].key for index in old], lines)
        if old and not pairs:
            self.wipe(now)
            old = []
        if self._reprint is not None and self._reprint.over(now):
            self._reprint = None
        if self._reprint is not None and not old:
            self._reprint.restart()
        # Between two lines that stayed lie those that went and those that came.
        gone: list[Entry] = []
        result: list[Entry] = []
        last_came = max(set(range(len(lines))).difference(j for _, j in pairs), default=-1)
        at = next_line = 0
        for index, j in [*((old[i], j) for i, j in pairs), (len(self._lines), len(lines))]:
            stayed = self._lines[index] if j < len(lines) else None
            moved = lines[j].first - stayed.first if stayed is not None else 0
            fills = j <= last_came  # else the page has shrunk, and nothing has scrolled
            away = gone if scrolls and moved < 0 and fills else None
            result += self._gap(self._lines[at:index], lines[next_line:j], moved, away, now)
            if stayed is not None:
                stayed.update(lines[j], now)
                result.append(stayed)
            at, next_line = index + 1, j + 1
        self._lines = result
        self._forget_hidden()
        return gone

    def _with_rows_above(self, lines: Sequence[Logical]) -> Sequence[Logical]:
        """`lines`, the topmost whole though its first rows, seen at the last look, are no longer drawn.

        (The topmost below an echo, which some agents keep in the first row of a page that scrolls.)
        """
        top = next((number for number, line in enumerate(lines) if not line.echo), -1)
        key = lines[top].key if top >= 0 else ""
        if len(key) < _OVERLAP:
            return lines
        for entry in self._lines:
            at = entry.key.find(key[:_OVERLAP], 1) if entry.visible else -1
            if at > 0 and key.startswith(entry.key[at : at + len(key)]):
                whole = lines[top].below(entry.text, at, echo=entry.echo, code=entry.code)
                return [*lines[:top], whole, *lines[top + 1 :]]
        return lines

    def scroll_off(self, rows: int) -> tuple[list[Entry], int]:
        """Take away the lines that end within the first `rows` rows: they have scrolled off for good.

        Return them, and the number of rows that they took; the rows below are counted from there on.
        """
        count = 0
        for number, entry in enumerate(self._lines, start=1):
            if entry.visible:
                if entry.last >= rows:
                    break
                count = number
        off = [entry for entry in self._lines[:count] if entry.visible]
        for entry in self._lines[:count]:
            self._remember(entry)
        del self._lines[:count]
        taken = min((entry.first - entry.blanks for entry in self._lines if entry.visible), default=rows)
        taken = min(taken, rows)
        for entry in self._lines:
            entry.first -= taken
            entry.last -= taken
        return off, taken

    def _remember(self, entry: Entry) -> None:
        if entry.key:
            self._history.append(entry.spoken or entry.key)

    def _align(self, old: list[str], lines: Sequence[Logical]) -> list[tuple[int, int]]:
        """Which old line (by index) is which new one, in order."""
        new = [line.key for line in lines]
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        pairs = [(i, i) for i in range(head)]
        rest_old, rest_new = old[head : len(old) - tail], new[head : len(new) - tail]
        if rest_old and rest_new and len(rest_old) <= _DIFF_LIMIT and len(rest_new) <= _DIFF_LIMIT:
            for a, b, size in SequenceMatcher(None, rest_old, rest_new, False).get_matching_blocks():
                pairs += [(head + a + k, head + b + k) for k in range(size)]
        return pairs + [(len(old) - k, len(new) - k) for k in range(tail, 0, -1)]

    def _gap(
        self,
        before: list[Entry],
        came: Sequence[Logical],
        moved: int,
        gone: list[Entry] | None,
        now: float,
    ) -> list[Entry]:
        """What stands where `before` stood, above a line that stayed and moved by `moved` rows.

        Appends to `gone`, if lines can have scrolled away there, those that have.
        """
        result: list[Entry] = []
        again = self._scrolled_back(came) if moved > 0 else frozenset()
        at = 0
        for number, line in enumerate(came):
            k = self._same_place(before, at, line)
            if k is None:
                entry = Entry(line, now)
                if number in again:
                    entry.spoken = line.key
                elif self._reprint is not None:
                    entry.spoken = self._reprint.find(line.key, now)
                result.append(entry)
                continue
            result += self._leave(before[at:k], gone)
            before[k].update(line, now)
            result.append(before[k])
            at = k + 1
        return result + self._leave(before[at:], gone)

    def _scrolled_back(self, came: Sequence[Logical]) -> Set[int]:
        """Which of the lines that came, the last ones, are those that were last to scroll off the top."""
        again: set[int] = set()
        number = len(came) - 1
        while self._scrolls_back and number >= 0 and self._history and came[number].key == self._history[-1]:
            self._history.pop()
            again.add(number)
            number -= 1
        return again

    def _same_place(self, before: list[Entry], at: int, line: Logical) -> int | None:
        """The index of the entry that `line` shows, whole or half painted, grown or changed a little."""
        for k in range(at, len(before)):
            if before[k].key == line.key:
                return k
        for k in range(at, len(before)):
            entry = before[k]
            if not entry.visible:
                if entry.spoken and entry.spoken.startswith(line.key):
                    return k
            elif _alike(entry.key, line.key):
                return k
        return None

    def _leave(self, entries: list[Entry], gone: list[Entry] | None) -> list[Entry]:
        """Hide `entries`; return those worth remembering in their place."""
        kept = []
        for entry in entries:
            if entry.visible and gone is not None:
                gone.append(entry)
                self._remember(entry)
                continue
            entry.visible = False
            if entry.spoken:
                kept.append(entry)
        return kept

    def _forget_hidden(self) -> None:
        hidden = sum(1 for entry in self._lines if not entry.visible)
        if hidden > _HIDDEN:
            keep = []
            for entry in self._lines:
                if not entry.visible and hidden > _HIDDEN:
                    hidden -= 1
                    self._remember(entry)
                else:
                    keep.append(entry)
            self._lines = keep


class _Reprint:
    """A page being printed again: its lines, in one string without blanks, and how far it has come.

    One string, because the same text may be wrapped otherwise now.
    """

    _PAUSE = 1.0
    """Seconds of silence that end a reprint; agents redraw at once."""

    def __init__(self, said: list[str], now: float) -> None:
        self._text = "".join(said)
        self._starts = [0, *accumulate(map(len, said))]
        self._at = 0
        self._deadline = now + self._PAUSE

    def over(self, now: float) -> bool:
        return now > self._deadline

    def restart(self) -> None:
        """The page is blank: what is printed on it begins at the top."""
        self._at = 0

    def find(self, key: str, now: float) -> str | None:
        """What was said of the next line of the page, if `key` is it, or its beginning, or its next row."""
        at = self._at
        if not self._text.startswith(key, at):
            near = at + _NEAR if len(key) < 20 else len(self._text)
            at = self._start(key, at, near)
            if at < 0:
                return None
        self._at = at + len(key)
        self._deadline = now + self._PAUSE
        return self._text[at : self._starts[bisect_left(self._starts, self._at)]]

    def _start(self, key: str, at: int, near: int) -> int:
        """Where, from `at` to `near`, a line begins that begins with `key`, or -1."""
        while 0 <= (at := self._text.find(key, at)) <= near:
            if self._starts[bisect_left(self._starts, at)] == at:
                return at
            at += 1
        return -1


def _alike(a: str, b: str) -> bool:
    """Whether `b` is what `a` has become: grown, cut, or with a counter turned."""
    shorter, longer = sorted((a, b), key=len)
    if longer.startswith(shorter):
        return True
    same = 0
    while same < len(shorter) and a[same] == b[same]:
        same += 1
    return same * 10 >= len(longer) * 6
