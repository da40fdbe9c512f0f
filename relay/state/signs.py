"""Signs on any agent's screen that it asks something or is working.

A sign prevents *ready*: typed text would answer the dialog or disturb the work. The sign may be old, or a
quotation; only the agent's own evidence can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from relay import lazy_re
from relay.dataclass import dataclass

ROWS = 25
"""Non-blank rows above the input, or at the bottom, that count."""

NEAR = 2
"""Rows of words below a sign of a dialog that may belong to it: descriptions, a footer."""

WIDTH = 400
"""Characters to read of each row."""

_SCROLLBAR = lazy_re.compile(r"\s{2,}[█│┃▐▕░▒]\Z")
_FRAME = lazy_re.compile(r"\A\s*[│┃║|]\s?|\s*[│┃║|]\Z")
_ORNAMENT = lazy_re.compile(r"[\s\u2500-\u259f=_+~-]*\Z")  # box drawing and block elements

_WORK = lazy_re.compile(
    r"(?i)\b(?:esc(?:ape)?|ctrl[+-]?c|\^c)(?: twice| again)? to (?:interrupt|stop)\b"
    r"|\([^()]*\besc(?:ape)? to cancel\b[^()]*\)"
    r"|\besc (?:again to )?interrupt\b.*\d"
)
_KEY = lazy_re.compile(r"(?i)\s{0,4}(?:(?:ctrl|shift|alt|cmd)\+\S+|esc(?:ape)?|tab|enter)(?: twice)? to \w")
_SPINNER = lazy_re.compile(
    r"\s{0,4}(?:─+ )?[\u2801-\u28ff◐◓◑◒]\S? \S"
    r"|\s{0,2}[·✢✳✶✻✽*+] \S[^(]*(?:…|\.\.\.)(?:\s*\(.*)?\Z"
    r"|\s{0,4}[•●] (?:Working|Thinking)\b.*\(\d+[hms]"
)
_SPOKEN = lazy_re.compile(r"\s{0,3}[●⏺•✦◆■]")  # starts an answer in the agents that relay knows
_FINISHED = lazy_re.compile(r"\s{0,2}[✢✳✶✻✽] \S+ for \d")

_KEYS = lazy_re.compile(
    r"(?i)\besc(?:ape)?(?:/ctrl[+-]c)?(?: again)?(?: to |: ?)"
    r"(?:cancel|go back|back|exit|dismiss|reject|close|decline|abort|deny|skip|quit)\b"
    r"|\bctrl[+-]c(?: to |: ?)cancel\b"
    r"|(?:\benter|\breturn|⏎|↵)(?: or \w+)?(?: to |: ?| )"
    r"(?:select|confirm|submit|continue|approve|accept|save|toggle|choose|answer|allow)\b"
    r"|\b(?:press|hit)\s+(?:the\s+|a\s+)?[<\[]?(?:enter|return|any key|space)\b"
    r"|[↑↓]\s?/?\s?[↑↓]:?\s+(?:to )?(?:navigate|select|move|choose|highlight)\b"
    r"|\barrow[- ]keys\b|\btab to amend\b|<space> to select"
)
_WORDS = lazy_re.compile(
    r"(?i)\bpermission required\b|\bwaiting for (?:user |your )?(?:confirmation|approval)\b"
    r"|\A\W*action required\b"
)
_YES_NO = lazy_re.compile(
    r"(?i)[\[(]\s*(?:y(?:es)?\s*[/|,]\s*n(?:o)?|n(?:o)?\s*[/|,]\s*y(?:es)?)\b[^\])]*[\])][\s:?>.\"'`]*\Z"
    r"|\(y\)(?:es)?\b.*\(n\)o?\b.*[:?\]]\s*\Z"
    r"|[●○◉◯] ?yes\b.*[●○◉◯] ?no\b|[●○◉◯] ?no\b.*[●○◉◯] ?yes\b"
    r"|\b(?:yes\s*/\s*no|no\s*/\s*yes)\b\s*[:?›>]*\s*\Z"
)
_BUTTONS = lazy_re.compile(
    r"(?i)\A\W*(?:allow|approve|accept|yes|ok)(?: \w+)?(?:\W{2,}\w+(?: \w+)?)*"
    r"\W{2,}(?:reject|deny|decline|cancel|no)\W*\Z"
)
_SECRET = lazy_re.compile(r"(?i)\b(?:pass(?:word|phrase|code)|pin|otp|token)\b.{0,80}[:>]\s*\Z")
_OPTION = lazy_re.compile(
    r"(?P<lead>\s*(?P<mark>[❯›▶►◉➤→▸»>●•]?)\s{0,3})(?P<number>\d{1,2})[.)]\s+(?P<text>\S.*)\Z"
)
_CERTAIN = "❯›▶►◉➤▸»"  # other marks may be bullets or quotations: they need another option nearby
_ANSWER = lazy_re.compile(r"(?i)(?:yes|no|allow|approve|accept|reject|deny|cancel)\b")
_CHOICE = lazy_re.compile(r"(?P<lead>\s*(?:[❯›▶►➤→▸»]\s?[◯◉○●◻◼☐☑]?|[◯◉○●◻◼☐☑⊙✔]|\[[ x*]\])\s+)\S")
_PROMPT = lazy_re.compile(r"\? \S|◆  \S")  # of inquirer and similar libraries; of clack
_MENU = lazy_re.compile(
    r"(?i)\W*(?:please )?(?:select|choose|pick|which|enter|what would you|menu)\b.*[:?]\s*\Z"
)
_MARK = lazy_re.compile(r"\s*[>❯›»→]\s*\Z")
_ASKS = lazy_re.compile(r"\s*[?◆◇] |.*[?:…›]\s*\Z")


_MARKS = " │❯›▶►➤→▸»◯◉○●◻◼☐☑⊙✔[]x*"
_SIGNS = (
    ("keys of a dialog", _KEYS),
    ("yes or no", _YES_NO),
    ("words of a dialog", _WORDS),
    ("words of a dialog", _BUTTONS),
    ("secret", _SECRET),
)


@dataclass(frozen=True, slots=True)
class Sign:
    """One row that indicates a dialog or work.

    name: of the rule, for `relay explain`; lines: the rows, stripped; last: there are no words below it.
    """

    state: Literal["prompting", "working"]
    name: str
    lines: tuple[str, ...]
    last: bool = True


class _Row(NamedTuple):
    """What one row shows by itself. plain: its text, without a scroll bar and the sides of boxes."""

    plain: str
    sign: str  # the name of a sign of a dialog, or ""
    option: re.Match[str] | None
    choice: re.Match[str] | None
    work: str  # the name of a sign of work
    spoken: bool  # the agent has spoken or finished, so signs of work above are old


def find_sign(
    rows: Sequence[str], *, bullets: str = "", loose: bool = False, idle: bool = False
) -> Sign | None:
    """Return the lowest sign of a dialog among the last ROWS of `rows`, or else one of work.

    bullets: marks that start what this agent says, and never point at an option.
    loose:   the program is unknown: a list without numbers counts, too.
    idle:    its title says that it is idle: signs of work are old.
    """
    last = [_read(row) for row in rows if row][-ROWS:]
    for y in range(len(last) - 1, -1, -1):
        if name := _dialog(last, y, bullets, loose):
            words = sum(_is_said(row, bullets) for row in last[y + 1 :])
            return Sign("prompting", name, (last[y].plain.strip(),), words <= NEAR)
    for y in () if idle else range(len(last) - 1, -1, -1):
        row = last[y]
        if row.work and not _is_key_of_list(last, y):
            return Sign("working", row.work, (row.plain.strip(),))
        if row.spoken:
            return None  # any work above this row has ended
    return None


@lru_cache(maxsize=4096)
def _read(row: str) -> _Row:
    """Return what `row` shows; cached, because most rows stay the same between two looks."""
    plain = _SCROLLBAR.sub("", row[:WIDTH])
    working = "spinner" if _SPINNER.match(plain) else "key that interrupts" if _WORK.search(plain) else ""
    spoken = bool(_FINISHED.match(plain) or (_SPOKEN.match(plain) and not working))
    if _ORNAMENT.match(plain):
        return _Row("", "", None, None, working, spoken)
    plain = _FRAME.sub(lambda found: " " * len(found[0]), plain).rstrip()
    signs = () if _WORK.search(plain) else _SIGNS
    sign = next((name for name, pattern in signs if pattern.search(plain)), "")
    return _Row(plain, sign, _OPTION.match(plain), _CHOICE.match(plain), working, spoken)


def _is_key_of_list(rows: Sequence[_Row], y: int) -> bool:
    """Return True if row `y` starts five rows of keys only, as an agent lists them at startup."""
    listed = rows[y : y + 5]
    return len(listed) == 5 and all(_KEY.match(row.plain) for row in listed)


def _is_said(row: _Row, bullets: str) -> bool:
    """Return True if `row` is neither an option of a dialog nor part of a frame."""
    said = row.plain.lstrip()[:1]
    return bool(said) and (said in bullets or not (row.option or row.choice))


def _dialog(rows: Sequence[_Row], y: int, bullets: str, loose: bool) -> str:
    if rows[y].sign:
        return rows[y].sign
    if _numbered(rows, y, bullets):
        return "numbered options"
    if loose and (_listed(rows, y) or _PROMPT.match(rows[y].plain)):
        return "list of options"
    return ""


def _numbered(rows: Sequence[_Row], y: int, bullets: str) -> bool:
    """Return True if a mark points at the numbered option in row `y`, or if it is a yes or no option."""
    option = rows[y].option
    if option is None:
        return False
    mark = option["mark"]
    if mark and mark in _CERTAIN and mark not in bullets:
        return True
    beside = [
        other
        for near in (*rows[max(y - 4, 0) : y], *rows[y + 1 : y + 5])
        if (other := near.option) is not None
        and abs(int(other["number"]) - int(option["number"])) == 1
        and len(other["lead"]) == len(option["lead"])
    ]
    if mark and mark not in bullets and any(not other["mark"] for other in beside):
        return True
    return bool(_ANSWER.match(option["text"])) and any(_ANSWER.match(other["text"]) for other in beside)


def _listed(rows: Sequence[_Row], y: int) -> bool:
    """Return True if row `y` is the selected one of a list below a question."""
    choice = rows[y].choice
    if choice is None:
        return False
    column = len(choice["lead"])
    near = [row.plain for row in (*rows[max(y - 1, 0) : y], *rows[y + 1 : y + 2])]
    aligned = any(not row[:column].strip(_MARKS) and row[column:].strip() for row in near)
    return aligned and any(_ASKS.match(row.plain) for row in rows[max(y - 8, 0) : y])


def is_listed(rows: Sequence[str], y: int) -> bool:
    """Return True if row `y` is the selected one of a list below a question."""
    return _listed([_read(row) for row in rows], y)


def is_menu(rows: Sequence[str]) -> bool:
    """Return True if the last of `rows` is a bare prompt mark directly below a numbered list of choices."""
    last = [row for row in rows if row.strip()][-ROWS:]
    if not last or not _MARK.match(last[-1]):
        return False
    y = len(last) - 2
    while y >= 0 and _read(last[y]).option:
        y -= 1
    return 0 <= y < len(last) - 3 and bool(_MENU.match(last[y]))
