"""Signs on a screen that the agent asks something or works, whatever agent it is.

A sign holds *ready* back: typed text would answer the dialog, or would disturb the work. It may be an old
one, or a quotation; only the agent's own record can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ROWS = 25
"""Rows above the input, or at the bottom, that count; blank ones are not counted."""

NEAR = 2
"""Rows of words below a sign of a dialog that may belong to it: descriptions, a footer."""

BULLETS = "●⏺•✦◆■"
"""Marks that begin what an agent says, in agents that relay knows."""

_SCROLLBAR = re.compile(r"\s{2,}[█│┃▐▕░▒]\Z")
_FRAME = re.compile(r"\A\s*[│┃║|]\s?|\s*[│┃║|]\Z")
_ORNAMENT = re.compile(r"[\s\u2500-\u259f=_+~-]*\Z")  # box drawing and block elements

_WORK = re.compile(
    r"(?i)\b(?:esc(?:ape)?|ctrl[+-]?c|\^c)(?: twice| again)? to (?:interrupt|stop)\b"
    r"|\([^()]*\besc(?:ape)? to cancel\b[^()]*\)"
    r"|\besc (?:again to )?interrupt\b.*\d"
)
_SPINNER = re.compile(
    r"\s{0,4}(?:─+ )?[\u2801-\u28ff◐◓◑◒]\S? \S"
    r"|\s{0,2}[·✢✳✶✻✽*+] \S[^(]*(?:…|\.\.\.)(?:\s*\(.*)?\Z"
    r"|\s{0,4}[•●] (?:Working|Thinking)\b.*\(\d+[hms]"
)
_FINISHED = re.compile(r"\s{0,2}[✢✳✶✻✽] \S+ for \d")

_KEYS = re.compile(
    r"(?i)\besc(?:ape)?(?:/ctrl[+-]c)?(?: again)?(?: to |: ?)"
    r"(?:cancel|go back|back|exit|dismiss|reject|close|decline|abort|deny|skip|quit)\b"
    r"|\bctrl[+-]c(?: to |: ?)cancel\b"
    r"|(?:\benter|\breturn|⏎|↵)(?: or \w+)?(?: to |: ?| )"
    r"(?:select|confirm|submit|continue|approve|accept|save|toggle|choose|answer|allow)\b"
    r"|\b(?:press|hit)\s+(?:the\s+|a\s+)?[<\[]?(?:enter|return|any key|space)\b"
    r"|[↑↓]\s?/?\s?[↑↓]:?\s+(?:to )?(?:navigate|select|move|choose|highlight)\b"
    r"|\barrow[- ]keys\b|\btab to amend\b|<space> to select"
)
_WORDS = re.compile(
    r"(?i)\bpermission required\b|\bwaiting for (?:user |your )?(?:confirmation|approval)\b|\A\W*action required\b"
)
_YES_NO = re.compile(
    r"(?i)[\[(]\s*(?:y(?:es)?\s*[/|,]\s*n(?:o)?|n(?:o)?\s*[/|,]\s*y(?:es)?)\b[^\])]*[\])][\s:?>.\"'`]*\Z"
    r"|\(y\)(?:es)?\b.*\(n\)o?\b.*[:?\]]\s*\Z"
    r"|[●○◉◯] ?yes\b.*[●○◉◯] ?no\b|[●○◉◯] ?no\b.*[●○◉◯] ?yes\b"
    r"|\b(?:yes\s*/\s*no|no\s*/\s*yes)\b\s*[:?›>]*\s*\Z"
)
_BUTTONS = re.compile(
    r"(?i)\A\W*(?:allow|approve|accept|yes|ok)(?: \w+)?(?:\W{2,}\w+(?: \w+)?)*\W{2,}(?:reject|deny|decline|cancel|no)\W*\Z"
)
_SECRET = re.compile(r"(?i)\b(?:pass(?:word|phrase|code)|pin|otp|token)\b.{0,80}[:>]\s*\Z")
_OPTION = re.compile(
    r"(?P<lead>\s*(?P<mark>[❯›▶►◉➤→▸»>●•]?)\s{0,3})(?P<number>\d{1,2})[.)]\s+(?P<text>\S.*)\Z"
)
_CERTAIN = "❯›▶►◉➤▸»"  # the others may be a bullet, or a quotation: an option has to stand beside it
_ANSWER = re.compile(r"(?i)(?:yes|no|allow|approve|accept|reject|deny|cancel)\b")
_CHOICE = re.compile(r"(?P<lead>\s*(?:[❯›▶►➤→▸»]\s?[◯◉○●◻◼☐☑]?|[◯◉○●◻◼☐☑⊙✔]|\[[ x*]\])\s+)\S")
_PROMPT = re.compile(r"\? \S|◆  \S")  # of inquirer and those like it, of clack
_MENU = re.compile(r"(?i)\W*(?:please )?(?:select|choose|pick|which|enter|what would you|menu)\b.*[:?]\s*\Z")
_MARK = re.compile(r"\s*[>❯›»→]\s*\Z")
_ASKS = re.compile(r"\s*[?◆◇] |.*[?:…›]\s*\Z")


@dataclass(frozen=True, slots=True)
class Sign:
    """What a row is a sign of.

    name: of the rule, for `relay explain`; lines: the rows, stripped; last: no words stand below it.
    """

    state: Literal["prompting", "working"]
    name: str
    lines: tuple[str, ...]
    last: bool = True


def find_sign(
    rows: Sequence[str], *, bullets: str = "", loose: bool = False, idle: bool = False
) -> Sign | None:
    """Return the lowest sign of a dialog among the last ROWS of `rows`, or else one of work.

    bullets: marks that begin what this agent says, and never point at an option.
    loose:   nothing is known of the program: a list without numbers counts, too.
    idle:    its title says that it is idle: what looks like work is old.
    """
    last = [row for row in rows if row.strip()][-ROWS:]
    plain = [_bare(row) for row in last]
    for y in range(len(plain) - 1, -1, -1):
        if name := _dialog(plain, y, bullets, loose):
            below = sum(_said(row) for row in plain[y + 1 :])
            return Sign("prompting", name, (plain[y].strip(),), below <= NEAR)
    if idle:
        return None
    for y in range(len(last) - 1, -1, -1):
        if _SPINNER.match(last[y]):
            if not _spoken(last[y + 1 :]):
                return Sign("working", "spinner", (last[y].strip(),))
        elif _WORK.search(last[y]) and not _spoken(last[y + 1 :]):
            return Sign("working", "key that interrupts", (last[y].strip(),))
    return None


def _dialog(plain: Sequence[str], y: int, bullets: str, loose: bool) -> str:
    """Return the name of the sign of a dialog in row `y`; "" if there is none."""
    row = plain[y]
    if _WORK.search(row):
        return ""
    if _KEYS.search(row):
        return "keys of a dialog"
    if _YES_NO.search(row):
        return "yes or no"
    if _WORDS.search(row) or _BUTTONS.match(row):
        return "words of a dialog"
    if _SECRET.search(row):
        return "secret"
    if _numbered(plain, y, bullets):
        return "numbered options"
    if loose and (is_listed(plain, y) or _PROMPT.match(row)):
        return "list of options"
    return ""


def _said(row: str) -> bool:
    """Return True if `row` is no option, and no part of a frame."""
    return bool(row.strip()) and not _OPTION.match(row) and not _CHOICE.match(row)


def _numbered(plain: Sequence[str], y: int, bullets: str) -> bool:
    """Return True if a mark points at the numbered option in row `y`, or if it is one of yes and no."""
    option = _OPTION.match(plain[y])
    if option is None:
        return False
    mark = option["mark"]
    if mark and mark in _CERTAIN and mark not in bullets:
        return True
    beside = [
        other
        for near in (*plain[max(y - 4, 0) : y], *plain[y + 1 : y + 5])
        if (other := _OPTION.match(near)) is not None
        and abs(int(other["number"]) - int(option["number"])) == 1
        and len(other["lead"]) == len(option["lead"])
    ]
    if mark and mark not in bullets and any(not other["mark"] for other in beside):
        return True
    return bool(_ANSWER.match(option["text"])) and any(_ANSWER.match(other["text"]) for other in beside)


def is_listed(plain: Sequence[str], y: int) -> bool:
    """Return True if row `y` is the selected one of a list below a question."""
    choice = _CHOICE.match(plain[y])
    if choice is None:
        return False
    column = len(choice["lead"])
    beside = [*plain[max(y - 1, 0) : y], *plain[y + 1 : y + 2]]
    aligned = any(
        near[:column].strip(" │❯›▶►➤→▸»◯◉○●◻◼☐☑⊙✔[]x*") == "" and near[column:].strip() for near in beside
    )
    return aligned and any(_ASKS.match(above) for above in plain[max(y - 8, 0) : y])


def is_menu(rows: Sequence[str]) -> bool:
    """Return True if the last of `rows` is a bare prompt mark right below a numbered list that asks to choose."""
    last = [row for row in rows if row.strip()][-ROWS:]
    if not last or not _MARK.match(last[-1]):
        return False
    y = len(last) - 2
    while y >= 0 and _OPTION.match(last[y]):
        y -= 1
    return 0 <= y < len(last) - 3 and bool(_MENU.match(last[y]))


def _spoken(below: Sequence[str]) -> bool:
    """Return True if the agent has said something, or has finished, below a row that showed its work."""
    return any(
        _FINISHED.match(row)
        or (row.lstrip()[:1] in BULLETS and not _WORK.search(row) and len(row) - len(row.lstrip()) < 4)
        for row in below
    )


def _bare(row: str) -> str:
    """Return `row` without a scroll bar and the sides of boxes, each replaced by a blank."""
    row = _SCROLLBAR.sub("", row)
    if _ORNAMENT.match(row):
        return ""
    return _FRAME.sub(lambda found: " " * len(found[0]), row).rstrip()
