"""The text being typed: kept for the next session, in case this one dies in the middle.

    begin ─→ end                    kept in the agent's progress by the session that types
      └─ nothing ─→ restore ─→ decide
             its echo, and it was read      injected, if the program takes lines
             alone in the input             Enter, once
             Enter was pressed, it is gone  injected
             anything else                  uncertain

The ring shows what was written since: the text, one Enter or none, and the user's keys.  If the user has
typed since, the outcome is uncertain, and relay does not press Enter.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

from relay.agents.profile import Profile
from relay.dataclass import dataclass, field, fields, replace
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style, closing_mark, opening_mark
from relay.injection.typist import Typist
from relay.shim.process_wait import SCREEN_QUIET
from relay.state.agent_terminal import INPUT_BORDER, AgentTerminal
from relay.state.detection import ScreenSnapshot, detect
from relay.state.input_box import find_input
from relay.state.readiness import TerminalSnapshot, danger
from relay.state.view import AgentView
from relay.storage.progress import Progress

OUTCOME_TIMEOUT = 5.0
"""Seconds for the screen to show the outcome of the text."""

SUBMITTED = "an earlier session typed it and ended; the next one pressed Enter"
"""The detail of a text that was alone in the input."""

UNKNOWN = Outcome(Result.UNCERTAIN, "the session ended while it was being typed", "typed", "user")
"""The outcome if nothing is certain."""

_NO_TEXT = re.compile(
    rf"[\s{re.escape(INPUT_BORDER)}]+"
)  # what a program draws around a text, or wraps it with
_TAIL = 64 * 1024  # bytes of output to search for an echo
_END = 2_000  # characters: an input taller than the screen shows no more of a long text


class Step(Enum):
    """The next step for a text left by an earlier session."""

    WAIT = "wait"
    SUBMIT = "submit"


@dataclass(slots=True)
class _Left:
    """A text that an earlier session was typing.

    digest:    of the text as typed. end: its end, bare. lines: the program took lines.
    position:  in the ring, before it was typed.
    outcome:   as that session saw it, but may not have recorded it; None if it saw none.
    written:   the text was written. entered: so was Enter. touched: anything else was, or the user typed.
    """

    mark: str
    digest: str
    end: str
    lines: bool
    position: int
    injections: tuple[Injection, ...]
    outcome: Outcome | None
    written: bool = False
    entered: bool = False
    touched: bool = False
    seen: bytearray = field(default_factory=bytearray)


class Unfinished:
    """Keeps the last text typed, and determines the outcome of one left by an earlier session.

    ids: of the injections in the text left.
    """

    def __init__(self, terminal: AgentTerminal, view: AgentView, progress: Progress) -> None:
        self._terminal = terminal
        self._view = view
        self._progress = progress
        self._left: _Left | None = None
        self.ids: frozenset[str] = frozenset()

    # In the session that types.

    def begin(self, text: str, style: Style, mark: str, injections: Sequence[Injection]) -> None:
        """Record that `text`, which contains `injections`, is about to be typed."""
        self._progress.keep(
            {
                "mark": mark,
                "digest": _digest(text),
                "end": _bare(text)[-_END:],
                "lines": style is Style.LINES,
                "position": self._terminal.position,
                "injections": [_fields(each) for each in injections],
                "outcome": None,
            }
        )

    def end(self, outcome: Outcome) -> None:
        self._progress.keep({**self._progress.kept, "outcome": _fields(outcome)})

    # In the session that follows.

    def restore(self) -> None:
        """Load what an earlier session left."""
        try:
            self._left = _left(self._progress.kept)
        except (TypeError, ValueError, KeyError):
            return  # truncated by a kill, or nothing was typed
        self.ids = frozenset(each.id for each in self._left.injections)

    @property
    def mark(self) -> str:
        """The mark of the text whose outcome is still unknown, or ""."""
        return self._left.mark if self._left is not None else ""

    @property
    def injections(self) -> tuple[Injection, ...]:
        return self._left.injections if self._left is not None else ()

    @property
    def known(self) -> bool:
        """True if the earlier session saw the text's outcome."""
        return self._left is not None and self._left.outcome is not None

    def close(self, outcome: Outcome) -> None:
        """Stop looking: record this outcome."""
        if self._left is not None:
            self._left = None
            self.end(outcome)

    async def submit(self, typist: Typist) -> Outcome:
        outcome = await typist.submit(self.mark)
        return replace(outcome, detail=SUBMITTED) if outcome.result is Result.INJECTED else outcome

    def typed(self, position: int) -> None:
        """Record that the user has pressed a key. position: the key's in the ring."""
        if (left := self._before(position)) is not None:
            left.touched = True

    def written(self, data: bytes, position: int) -> None:
        if (left := self._before(position)) is None:
            return
        left.touched = left.touched or (left.written and data != b"\r")
        left.entered = left.entered or (left.written and data == b"\r")
        left.written = True

    def output(self, data: bytes, position: int) -> None:
        if (left := self._before(position)) is not None and left.lines:
            left.seen += data
            del left.seen[:-_TAIL]

    def _before(self, position: int) -> _Left | None:
        """Return the text left, if it was begun before `position` in the ring."""
        left = self._left
        return left if left is not None and position > left.position else None

    def decide(self) -> Outcome | Step:
        """Return the outcome of the text left, or what to do about it now."""
        left = self._left
        assert left is not None
        if left.outcome is not None:
            return left.outcome
        if self._terminal.output_pending():  # not everything since then has been read
            return Step.WAIT
        if left.touched or self._terminal.read_from > left.position:
            return UNKNOWN
        if left.lines:
            seen = closing_mark(left.mark).encode() in left.seen and not self._terminal.unread_keys()
            return Outcome(Result.INJECTED, "", "typed", "user", "echo") if seen else Step.WAIT
        sight = self._view.look()
        if sight.unwritten or sight.quiet < SCREEN_QUIET or not left.written:
            return Step.WAIT
        alone = self._alone(left, sight)
        if left.entered:
            gone = not alone and self._gone(left, sight)
            return Outcome(Result.INJECTED, "", "typed", "user", "screen") if gone else Step.WAIT
        safe = danger(sight, self._view.profile) is None and not sight.tty.canonical
        return Step.SUBMIT if alone and safe else Step.WAIT

    def _alone(self, left: _Left, sight: TerminalSnapshot) -> bool:
        """Return True if the input holds exactly the typed text, or shows just its end."""
        found = find(sight.drawn, left.mark, left.end)
        if found is None or not (found.cut or _digest(found.text) == left.digest):
            return False
        if self._view.ruled:
            return alone(ScreenSnapshot(sight.drawn, sight.title), found, self._view.profile)
        return self._terminal.unfinished().rstrip(INPUT_BORDER).endswith(closing_mark(left.mark))

    def _gone(self, left: _Left, sight: TerminalSnapshot) -> bool:
        """Return True if the screen shows the text, and an input without it."""
        end = closing_mark(left.mark)
        if _bare(end) not in _bare("".join(sight.drawn)):
            return False
        if self._view.ruled:
            return self._view.state() in {"ready", "working"}
        return _bare(end) not in _bare(self._terminal.unfinished())


@dataclass(frozen=True, slots=True)
class Found:
    """A text on the screen, in its rows from `first` to `last`; before, behind: what is drawn around it.

    cut: only the text's end is shown.
    """

    text: str
    first: int
    last: int
    before: str
    behind: str
    cut: bool = False


def find(rows: Sequence[str], mark: str, end: str = "") -> Found | None:
    """Return the lowest text with `mark`, if it has only a border around it; otherwise None.

    end: the bare end of the text; if its start is not shown, as in an input that scrolls, the shown part must
    match this.
    """
    opening, closing = opening_mark(mark), closing_mark(mark)
    last = next((y for y in reversed(range(len(rows))) if closing in rows[y]), None)
    if last is None:
        return None
    first = next((y for y in reversed(range(last + 1)) if opening in rows[y]), None)
    cut = first is None
    if first is None:
        first = _first_of(rows, last, end)
        before = rows[first][: len(rows[first]) - len(rows[first].lstrip(INPUT_BORDER))]
    else:
        before, _, _ = rows[first].rpartition(opening)
    _, _, behind = rows[last].rpartition(closing)
    text = "\n".join(rows[first : last + 1])[len(before) :].removesuffix(behind)
    if _bare(before + behind) or (cut and not end.endswith(_bare(text))):
        return None
    return Found(text, first, last, before, behind, cut)


def _first_of(rows: Sequence[str], last: int, end: str) -> int:
    """Return the first of the rows up to `last` that together show an `end`."""
    shown, first = _bare(rows[last]), last
    while first and (row := _bare(rows[first - 1])) and end.endswith(row + shown):
        shown, first = row + shown, first - 1
    return first


def alone(screen: ScreenSnapshot, found: Found, profile: Profile) -> bool:
    """Return True if `screen` shows what was `found` alone in the agent's input, by the rules of `profile`.

    The rules detect no other state; a draft, with one word in place of the text; and no draft, without it.
    """

    def state(put: str) -> str | None:
        row = f"{found.before}{put}{found.behind}".rstrip()
        rows = (*screen.rows[: found.first], row, *screen.rows[found.last + 1 :])
        shown = detect(ScreenSnapshot(rows, screen.title), profile)
        return shown.state if shown else None

    now = detect(screen, profile)
    if now is not None and now.state != "draft":
        return False
    box = None if profile.input is None else find_input(screen.rows, profile.input)
    if box is not None and box.top == box.bottom and "".join(screen.rows[found.last + 1 :][:1]).strip():
        return False  # without a frame, the next row may belong to the input
    if any(rule.state == "draft" for rule in profile.states):
        return state("word") == "draft" and state("") in {"ready", None}
    return state("") == "ready"


def _fields(item: Injection | Outcome) -> dict[str, Any]:
    """Return the fields of `item`; `asdict` would copy each value."""
    return {each.name: getattr(item, each.name) for each in fields(item)}


def _bare(text: str) -> str:
    return _NO_TEXT.sub("", text)


def _digest(text: str) -> str:
    """Return a digest of `text` without blanks and borders, which differ on a screen."""
    return hashlib.sha256(_bare(text).encode("utf-8", "surrogatepass")).hexdigest()


def _left(kept: dict[str, Any]) -> _Left:
    """Return what was kept. Raise TypeError, ValueError or KeyError if it is incomplete."""
    outcome = kept["outcome"]
    return _Left(
        kept["mark"],
        kept["digest"],
        kept.get("end", ""),
        kept["lines"],
        int(kept["position"]),
        tuple(map(Injection.from_json, kept["injections"])),
        None if outcome is None else Outcome.from_json(outcome),
    )
