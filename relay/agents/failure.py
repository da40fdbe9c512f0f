"""Why an agent's turn failed, according to the `[[errors]]` of its pattern file.

    StopFailure hook: error, text ──┐
    its own record:   code, text ───┤
    its screen:       mark, text ───┼─→ Failure(rate_limited, "You've hit your limit · resets 8pm", ...)
    its last lines, as it exits ────┘

A text is what the agent itself says about the error, never what its model says: hooks and records keep the
two apart, and on a screen the agent's mark does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from relay.agents.pattern_file import RESET
from relay.agents.profile import ErrorClass, ErrorSource, Profile
from relay.agents.reset_time import parse_reset
from relay.dataclass import dataclass
from relay.text import one_line

FailureSource = Literal["hook", "transcript", "screen", "exit"]

TRUST: Mapping[FailureSource, int] = {source: n for n, source in enumerate(get_args(FailureSource))}
"""The rank of each source: the lower, the more reliable."""

MAX_TEXT = 500
"""Maximum characters of a failure's text."""

_SEARCHED = 4000  # characters of a text that rules search
_LAST_ROWS = 8  # of a program that has ended: codex's longest message has three rows of 80 columns
_FRAMES = "─━═▀▄▔╭╰│┃"


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a turn, or of the agent, by an error.

    cls:      the class of the error; "other" if no rule knows it.
    text:     the agent's own words about it, as one line.
    reset_at: when the limit ends, in seconds since the epoch; None if unknown.
    """

    cls: ErrorClass
    text: str
    reset_at: float | None
    source: FailureSource

    def to_json(self) -> dict[str, Any]:
        return {"class": self.cls, "text": self.text, "reset_at": self.reset_at, "source": self.source}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Failure:
        """Return the failure that `to_json` wrote. Raise KeyError for anything else."""
        return cls(values["class"], values["text"], values["reset_at"], values["source"])


def of_hook(profile: Profile, fields: Mapping[str, Any], now: float) -> Failure:
    """Return the failure that a StopFailure hook reports. fields: of its payload; now: since the epoch."""
    texts = (fields.get(key) for key in ("last_assistant_message", "error_details", "error"))
    found = [text for text in texts if isinstance(text, str) and text.strip()]
    code = fields.get("error")
    return _best(profile, found, code if isinstance(code, str) else "", now, "hook")


def of_record(profile: Profile, text: str, code: str, now: float) -> Failure:
    """Return the failure that the agent's own record describes. code: the record's name for it, or ""."""
    return _best(profile, [text], code, now, "transcript")


def of_text(profile: Profile, text: str, now: float, source: FailureSource = "transcript") -> Failure | None:
    """Return the failure that `text` describes; None if no rule of the profile matches it."""
    known = _ruled(profile, "text", _plain(text)) is not None
    return _best(profile, [text], "", now, source) if known else None


def of_screen(profile: Profile, rows: Sequence[str], now: float) -> Failure | None:
    """Return the failure that the screen shows as the last thing that happened.

    None if there is none, or no rule of the profile matches it: not every marked text is an error.
    """
    text = drawn_error(profile, rows)
    return None if text is None else of_text(profile, text, now, "screen")


def drawn_error(profile: Profile, rows: Sequence[str]) -> str | None:
    """Return the text of the error that is drawn last, its rows joined; None if something came after it.

    That is another prompt of the user's, or words of the agent. A mark directly below the agent's words is
    that of a tool's output.
    """
    mark = profile.error_mark
    if mark is None:
        return None
    first = next((y for y in reversed(range(len(rows))) if mark.match(rows[y])), None)
    if first is None or (first and _starts(rows[first - 1], _bullets(profile))):
        return None
    end = first + 1
    while end < len(rows) and not _ends(profile, rows[end]):
        end += 1
    below = rows[end:]
    prompts = [row for row in below if _starts(row, _glyphs(profile)) and not _is_choice(row)]
    if len(prompts) > 1 or any(_is_said(profile, row) for row in below):
        return None
    return " ".join([_without_mark(profile, rows[first]), *(row.strip() for row in rows[first + 1 : end])])


def of_exit(profile: Profile, rows: Sequence[str], now: float) -> Failure | None:
    """Return the failure that the last rows of a program that prints lines describe; None if there is none.

    Call this only for a program that has exited with an error: it draws no mark.
    """
    last = [_without_mark(profile, row) for row in rows if row.strip()][-_LAST_ROWS:]
    for first in reversed(range(len(last))):
        if (found := of_text(profile, " ".join(last[first:]), now, "exit")) is not None:
            return found
    return None


def _best(profile: Profile, texts: Sequence[str], code: str, now: float, source: FailureSource) -> Failure:
    """Return a failure by the first text that a rule matches, or else by its code. texts: best first."""
    plain = [_plain(text) for text in texts]
    by_text = (cls for text in plain if (cls := _ruled(profile, "text", text)) is not None)
    cls = next(by_text, None) or _ruled(profile, "code", code) or "other"
    resets = (at for text in plain if (at := _reset(profile, cls, text, now)) is not None)
    return Failure(cls, one_line(texts[0] if texts else code, MAX_TEXT), next(resets, None), source)


def _ruled(profile: Profile, source: ErrorSource, text: str) -> ErrorClass | None:
    """Return the class by the first rule that is found in a text, or matches a whole code."""
    match = re.Pattern.search if source == "text" else re.Pattern.fullmatch
    for rule in profile.errors:
        if rule.source == source and any(match(regex, text) for regex in rule.match):
            return rule.cls
    return None


def _reset(profile: Profile, cls: ErrorClass, text: str, now: float) -> float | None:
    """Return the end of the limit in `text`, by the first rule of the class that finds it."""
    for regex in (regex for rule in profile.errors if rule.cls == cls for regex in rule.reset):
        found = regex.search(text)
        if found is not None and found[RESET] and (at := parse_reset(found[RESET], now)) is not None:
            return at
    return None


def _plain(text: str) -> str:
    """Return `text` with single blanks between its words; some agents write a no-break space."""
    return " ".join(text[:_SEARCHED].split())


def _without_mark(profile: Profile, row: str) -> str:
    found = None if profile.error_mark is None else profile.error_mark.match(row)
    return row[found.end() :].strip() if found else row.strip()


def _ends(profile: Profile, row: str) -> bool:
    """Return True if `row` is not the next row of an error's text."""
    other = _FRAMES + _bullets(profile) + _glyphs(profile)
    return not row.strip() or row.lstrip()[0] in other


def _starts(row: str, marks: str) -> bool:
    return row.lstrip()[:1] in set(marks) and row.lstrip()[1:2] in {" ", "\N{NO-BREAK SPACE}", ""}


def _is_said(profile: Profile, row: str) -> bool:
    """Return True if `row` begins something that the agent has said."""
    return _starts(row, _bullets(profile)) and not any(line.search(row) for line in profile.echo.lines)


def _is_choice(row: str) -> bool:
    """Return True for one of the agent's own commands, such as `❯ /rate-limit-options`, or an option."""
    text = row.lstrip()[1:].strip()
    return text.startswith("/") or text[:1].isdigit()


def _bullets(profile: Profile) -> str:
    return profile.input.bullets if profile.input else ""


def _glyphs(profile: Profile) -> str:
    return profile.input.glyphs if profile.input else ""
