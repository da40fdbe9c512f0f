"""The timeline of a recording: its markers, and the session's journal entries at their times.

The entries are in the `.events.jsonl` file next to the asciicast, each with `at`, seconds of the recording.
A table below lists which fields of an event are shown, and in which order; of other events, all are.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from relay.dataclass import dataclass
from relay.recording.asciicast import LONGEST, MAX_LINE, Cast, CastPart
from relay.recording.store import events_of
from relay.storage import journal
from relay.text import one_line

MOST = 100_000
"""Maximum number of moments read from a recording."""

WIDTH = 500
"""Maximum length of a moment's text, in characters."""

MARKER = "marker"
"""The kind of a moment that is a marker in the asciicast itself."""

_BASIC = frozenset({"time", "event", "session", "name", "at"})

_FIELDS = {
    "session_start": ("agent", "cwd"),
    "session_end": ("code",),
    "state": ("state", "prompt", "reason"),
    "hook": ("hook", "tool"),
    "hook_fired": ("hook_name", "outcome", "matched_rule_count"),
    "injection": ("source", "hook_event", "result", "detail"),
    "message_sent": ("to", "body"),
    "message_received": ("sender", "body"),
    "message_outcome": ("to", "state", "body"),
    "denied": ("tool", "reason"),
    "allowed": ("tool", "input", "rule"),
    "notice": ("text", "source"),
    "escalated": ("kind", "lines"),
}
"""For each event, the fields that say most, shown without their names. A hook's rules follow it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event on the timeline. at: seconds of the recording; entry: the journal's, {} for a marker."""

    at: float
    kind: str
    text: str
    entry: dict[str, Any]

    @property
    def label(self) -> str:
        return self.text if self.kind == MARKER else f"{self.kind}: {self.text}"

    def public(self) -> dict[str, Any]:
        """Return the JSON object of `relay replay --events --json`."""
        return {**self.entry, "at": round(self.at, 3), "kind": self.kind, "text": self.text}


class Timeline:
    """Moments in chronological order."""

    def __init__(self, moments: Sequence[Moment] = ()) -> None:
        self.moments = sorted(moments, key=lambda moment: moment.at)

    @property
    def seconds(self) -> float:
        """The time of the last moment, 0 if there is none."""
        return self.moments[-1].at if self.moments else 0.0

    def until(self, time: float, most: int) -> Sequence[Moment]:
        """Return the last `most` moments up to `time`."""
        end = bisect_right(self.moments, time, key=lambda moment: moment.at)
        return self.moments[max(0, end - most) : end]

    def after(self, time: float) -> Moment | None:
        at = bisect_right(self.moments, time, key=lambda moment: moment.at)
        return self.moments[at] if at < len(self.moments) else None

    def before(self, time: float) -> Moment | None:
        at = bisect_left(self.moments, time, key=lambda moment: moment.at)
        return self.moments[at - 1] if at else None


def read(cast: Cast) -> Timeline:
    """Read the markers in each part of a recording and the journal's entries next to it, at most MOST."""
    return Timeline(list(islice(chain.from_iterable(map(_moments, cast.parts)), MOST)))


def _moments(part: CastPart) -> Iterator[Moment]:
    yield from (Moment(each.time, MARKER, one_line(each.data, WIDTH), {}) for each in part.markers())
    try:
        with open(events_of(part.path), encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(MAX_LINE):  # a piece of a longer line is not an entry
                entry = journal.parse(line)
                at = None if entry is None else _seconds(entry.get("at"))
                if entry is not None and at is not None:
                    kind = one_line(str(entry["event"]), 40)
                    yield Moment(max(0.0, part.start + at), kind, _text(entry), entry)
    except OSError:
        return


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= LONGEST:
        return None
    return max(0.0, value)


def _text(entry: dict[str, Any]) -> str:
    event = str(entry["event"])
    if event == "directive":
        return one_line(f"@{entry.get('namespace')}:{entry.get('target')} {entry.get('body', '')}", WIDTH)
    first = _FIELDS.get(event, ())
    words = [_shown(entry[name]) for name in first if not _is_empty(entry.get(name))]
    if event == "hook_fired":
        words += _rules(entry.get("rules"))
    elif not first:
        rest = (name for name in entry if name not in _BASIC)
        words += [f"{name}={_shown(entry[name])}" for name in rest if not _is_empty(entry[name])]
    return one_line(" · ".join(words), WIDTH)


def _rules(rules: object) -> list[str]:
    """Return, for each rule that ran, its name, its exit code unless 0, and what it printed."""
    found = []
    for rule in rules if isinstance(rules, list) else []:
        if isinstance(rule, dict):
            code = rule.get("exit_code")
            parts = [f"exit {code}" if code else None, rule.get("problem"), rule.get("output_preview")]
            said = ", ".join(_shown(part).strip() for part in parts if not _is_empty(part))
            found.append(f"{_shown(rule.get('name'))}: {said}" if said else _shown(rule.get("name")))
    return found


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == []


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
