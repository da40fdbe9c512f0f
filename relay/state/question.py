"""The question on an agent's screen: a menu, or a one-line question.

Do you want to proceed?          lines
❯ 1. Yes                         options; the mark points at the selected one
  2. No

Which colour?
❯ Red                            without numbers, they are directly above the row that names their keys
  Blue
↑/↓ select · enter accept

  Allow once   Reject            here, and in some lists with numbers, a colour is the mark
⇆ select  enter confirm

Run shell command? (Y)es/(N)o [Yes]:
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from relay import lazy_re
from relay.agents.profile import Profile
from relay.dataclass import dataclass, replace
from relay.errors import UsageError
from relay.state.agent_terminal import AgentTerminal

MAX_LINES = 20
"""Rows above the first option that may belong to the question."""

GAP = 6
"""Maximum distance in rows between two options, which may have descriptions or a rule between them."""

LINE_ROWS = 6
"""Rows to show of a one-line question, including the prompt's own row."""

_BOX = lazy_re.compile(r"^\s*[│┃║]|[│┃║█▐▕]\s*$")  # or a scroll bar, which comes and goes
_EDGE = lazy_re.compile(r"^\s*(?:[╭┌╔]|[─━═]{10})")
_ORNAMENT = lazy_re.compile(r"^[\s\u2500-\u259f]*$")  # box drawing and block elements
_SIDED = lazy_re.compile(r"^\s*[│┃║]")
_BESIDE = lazy_re.compile(r"\s{3,}")  # a column beside the options
_OPTION = lazy_re.compile(r"^(?P<lead>\s*(?P<mark>[❯›●▶➤>]?)\s*)(?P<number>\d{1,2})[.)]\s*(?P<text>\S.*)$")
_MARKED = lazy_re.compile(r"^(?P<lead>\s*[❯›●▶➤>] )(?P<text>\S.*)$")
_LABEL = lazy_re.compile(r"\S+(?: \S+)*")
_BUTTONS = lazy_re.compile(r"^\W*(?P<labels>\S+(?: \S+)*(?: {3}(?!ctrl\+)\S+(?: \S+)*)+)")
_CHECKBOX = lazy_re.compile(r"^(\[.?\]|[☐☒☑])")
_KEYED = lazy_re.compile(r"\((?P<key>\w)\)(?P<rest>[\w']*)")  # (Y)es/(N)o/(D)on't ask again
_SHOWN_KEY = lazy_re.compile(r"\((?P<key>[A-Za-z]|esc)\)$")  # after an option of a menu
_SLASHED = lazy_re.compile(r"[\[(](?P<keys>[A-Za-z]+(?:/[A-Za-z]+)+)[\])]")  # [Y/n], (yes/no)
_WORDS = {"y": "yes", "n": "no", "a": "all", "q": "quit"}


@dataclass(frozen=True, slots=True)
class Option:
    """A possible answer. key: the text to type at a line prompt; "" in a menu."""

    number: int
    text: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class ScreenQuestion:
    """A question on the screen.

    lines:    the rows of the question, without the options.
    options:  the possible answers, by number.
    selected: the number of the option that a menu's mark points at; 0 for a one-line question.
    across:   the options are side by side.
    free:     the option that takes a text, or None.
    """

    lines: tuple[str, ...]
    options: tuple[Option, ...] = ()
    selected: int = 0
    across: bool = False
    free: Option | None = None

    @property
    def token(self) -> str:
        """A digest of the question, independent of the selected option, and of a text in it."""
        options = ("" if each == self.free else each.text for each in self.options)
        said = "\0".join((*self.lines, *options))
        return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:8]

    def choose(self, choice: str) -> Option:
        """Return the option that `choice` names, ignoring case.

        Match its number, its whole text, the key shown for it ("y" for "Yes, proceed (y)"), or else the
        start of its text. Raise UsageError if none or several match, or for a check box.
        """
        wanted = choice.strip().casefold()
        if wanted.isdigit():
            found = [each for each in self.options if each.number == int(wanted)]
        else:
            named = ([each for each in self.options if by(each, wanted)] for by in _NAMES)
            found = next(filter(None, named), []) if wanted else []
        if not found:
            listed = _listed(self.options) or "none is known"
            raise UsageError(f"{choice!r} is not one of its options ({listed}). Use the number.")
        if len(found) > 1:
            raise UsageError(
                f"{choice!r} could be {_listed(found, ' or ')}. Use the number, or more of the text."
            )
        if _CHECKBOX.match(found[0].text):
            raise UsageError("the question allows several choices: answer it in the agent's terminal.")
        return found[0]


def _shown_key(option: Option) -> str:
    """Return the key that the dialog shows for `option`, in lower case, or ""."""
    shown = _SHOWN_KEY.search(option.text)
    return (option.key or (shown["key"] if shown else "")).casefold()


_NAMES: tuple[Callable[[Option, str], bool], ...] = (
    lambda option, wanted: option.text.casefold() == wanted,
    lambda option, wanted: _shown_key(option) == wanted,
    lambda option, wanted: option.text.casefold().startswith(wanted),
)
"""The ways to name an option, most exact first: a less exact one counts only if no more exact one matches."""


def _listed(options: Sequence[Option], last: str = ", ") -> str:
    *first, end = (f"{each.number} {each.text!r}" for each in options) if options else ("",)
    return last.join(filter(None, [", ".join(first), end]))


Background = Callable[[int, int], int | None]
"""Returns the background of the cell in a column and a row, zero-based; None for the terminal's own."""


def find(
    rows: Sequence[str],
    unfinished: str,
    profile: Profile,
    background: Background = lambda x, y: None,
) -> ScreenQuestion:
    """Return the menu on the screen, or else the question on the cursor's line, `unfinished`, and above.

    A menu may be quoted above: the lowest counts. profile: the agent's, which knows its menus.
    """
    plain = [_unboxed(row) for row in rows]
    options = [_OPTION.match(row) for row in plain]
    marked = max((y for y, option in enumerate(options) if option and option["mark"]), default=-1)
    keys, drawn = -1, dict[str, str]()
    for y, row in enumerate(plain):
        for found in filter(None, (each.search(row) for each in profile.menu_keys)):
            keys, drawn = y, found.groupdict("")
    menu = None
    if keys <= marked:
        menu = _menu(rows, plain, marked)
    elif drawn.get("across"):
        menu = _buttons(rows, plain, keys, background)
    elif not drawn.get("several"):
        numbers = [(y, each["number"]) for y, each in enumerate(options[:keys]) if each]
        lit = [y for y, number in numbers if _lit(background, rows[y].index(number), y)]
        menu = _menu(rows, plain, lit[0]) if len(lit) == 1 else _list(rows, plain, keys)
    if menu is None:
        return _line(rows, unfinished)
    texts = (each for each in menu.options if any(known.search(each.text) for known in profile.text_options))
    return replace(menu, free=next(texts, None))


def on(terminal: AgentTerminal, profile: Profile) -> ScreenQuestion:
    """Return the question that `terminal` shows (`find`)."""
    return find(terminal.screen_text(), terminal.unfinished(), profile, terminal.background)


def drawn(terminal: AgentTerminal, profile: Profile, matched: Collection[str] = ()) -> tuple[str, ...]:
    """Return the rows of the question on `terminal`, including options; () if there are none.

    matched: rows by which it is known to be a question; without readable options, it begins with these.
    """
    rows = terminal.screen_text()
    asked = on(terminal, profile)
    options = tuple(f"{each.number}. {each.text}" for each in asked.options)
    if options:
        return asked.lines + options
    known = {row.strip() for row in matched}
    first = next((y for y, row in enumerate(rows) if row.strip() in known), None)
    if first is None:
        return tuple(matched)
    plain = [_unboxed(row).strip() for row in rows[first:]]
    return tuple(row for row in plain if not _ORNAMENT.match(row))[:MAX_LINES]


def _menu(rows: Sequence[str], plain: Sequence[str], marked: int) -> ScreenQuestion | None:
    """Return the menu with numbers whose row `marked` is selected; None if there is none."""
    matches = [_OPTION.match(row) for row in plain]
    if marked < 0 or (mark := matches[marked]) is None:
        return None
    column, selected = len(mark["lead"]), int(mark["number"])
    found = {selected: marked}
    for step in (-1, 1):
        y, number = marked, selected + step
        while number > 0 and (next_y := _option(matches, y, step, number, column)) is not None:
            found[number] = y = next_y
            number += step
    if min(found) != 1 or len(found) < 2:
        return None
    options = []
    for number, y in sorted(found.items()):
        option = matches[y]
        assert option is not None
        first, *beside = _BESIDE.split(option["text"].strip())
        rest = [] if beside else _wrapped(plain, y, option.start("text"))
        options.append(Option(number, " ".join([first, *rest])))
    return ScreenQuestion(_above(rows, plain, found[1]), tuple(options), selected)


def _buttons(
    rows: Sequence[str], plain: Sequence[str], keys: int, background: Background
) -> ScreenQuestion | None:
    """Return the options that are side by side in row `keys` or up to two rows above it."""
    for y in range(keys, max(keys - 3, -1), -1):
        if buttons := _BUTTONS.match(rows[y]):
            labels = [*_LABEL.finditer(rows[y], *buttons.span("labels"))]
            lit = [number for number, each in enumerate(labels, 1) if _lit(background, each.start(), y)]
            if len(lit) == 1:
                options = tuple(Option(number, each[0]) for number, each in enumerate(labels, 1))
                return ScreenQuestion(_above(rows, plain, y), options, lit[0], across=True)
    return None


def _list(rows: Sequence[str], plain: Sequence[str], keys: int) -> ScreenQuestion | None:
    """Return the list above row `keys`, one of whose rows has a mark.

    A row that continues an option counts as an option, too: the mark never reaches it.
    """
    end = keys
    while end and not plain[end - 1].strip():
        end -= 1
    begin = end
    while begin and plain[begin - 1].strip():
        begin -= 1
    marks = [(y, mark) for y in range(begin, end) if (mark := _MARKED.match(plain[y]))]
    if len(marks) != 1:
        return None
    marked, column = marks[0][0], len(marks[0][1]["lead"])

    def option(y: int) -> bool:
        return (
            begin <= y < end and not plain[y][:column].strip() and plain[y][column : column + 1].strip() != ""
        )

    first, last = marked, marked
    while option(first - 1):
        first -= 1
    while option(last + 1):
        last += 1
    if first == last:
        return None
    options = [Option(number, plain[y][column:]) for number, y in enumerate(range(first, last + 1), 1)]
    return ScreenQuestion(_above(rows, plain, first), tuple(options), marked - first + 1)


def _lit(background: Background, x: int, y: int) -> bool:
    """Return True if the text in column `x` has another background than what is before it and its padding."""
    return x >= 2 and background(x, y) != background(x - 2, y)


def _wrapped(plain: Sequence[str], y: int, column: int) -> list[str]:
    """Return the rest of the option in row `y`: the rows below that continue it, at the `column` of its text.

    A row continues the option only if its first word did not fit the row above; else it is a description.
    """
    width = max(len(row) for row in plain)
    found: list[str] = []
    for above, row in pairwise(plain[y:]):
        text = row[column:].rstrip()
        fits = text and len(above) + 1 + len(text.split()[0]) <= width
        if not text or row[:column].strip() or text[0] == " " or fits or _OPTION.match(row):
            break
        found.append(text)
    return found


def _option(
    matches: Sequence[re.Match[str] | None], y: int, step: int, number: int, column: int
) -> int | None:
    """Return the row of option `number`, up to GAP rows from row `y` in the direction of `step`, if any."""
    for at in range(y + step, y + step * (GAP + 1), step):
        option = matches[at] if 0 <= at < len(matches) else None
        if option is not None and int(option["number"]) == number and len(option["lead"]) == column:
            return at
    return None


def _above(rows: Sequence[str], plain: Sequence[str], first: int) -> tuple[str, ...]:
    """Return the rows of the question above row `first`: up to the box's edge or a gap of three rows."""
    found: list[str] = []
    sided = _SIDED.match(rows[first])
    for y in range(first - 1, max(first - 1 - MAX_LINES, -1), -1):
        if sided and not _SIDED.match(rows[y]):
            break
        if _EDGE.match(rows[y]) or not any(row.strip() for row in plain[max(y - 2, 0) : y + 1]):
            break
        if not _ORNAMENT.match(plain[y]):
            found.append(plain[y].strip())
    return tuple(reversed(found))


def _line(rows: Sequence[str], unfinished: str) -> ScreenQuestion:
    drawn = [row.strip() for row in rows if not _ORNAMENT.match(row)][-LINE_ROWS:]
    lines = tuple(drawn) or ((unfinished.strip(),) if unfinished.strip() else ())
    keyed = [(found["key"], found["key"] + found["rest"]) for found in _KEYED.finditer(unfinished)]
    if not keyed and (slashed := _SLASHED.search(unfinished)):
        keyed = [(key, _WORDS.get(key.casefold(), key)) for key in slashed["keys"].split("/")]
    return ScreenQuestion(lines, tuple(Option(n, text, key) for n, (key, text) in enumerate(keyed, 1)))


def _unboxed(row: str) -> str:
    """Return `row` without the sides of the boxes around it and the scroll bar beside it."""
    while (bare := _BOX.sub("", row)) != row:
        row = bare
    return row.rstrip()
