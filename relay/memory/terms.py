"""The terms of a query, as FTS5 expressions: words, and days by their date.

FTS5's own syntax (quotes, NEAR, *, ^, column filters; https://sqlite.org/fts5.html section 3) is never
exposed: whatever the query is, its terms are quoted letters and digits.
"""

from __future__ import annotations

import re

from relay import lazy_re

MAX_TERMS = 100
"""Maximum distinct terms of a query that count; more, as in a pasted page, add time and no meaning."""

# English function words, which are in every memory.
_FUNCTION_WORDS = """
    a about all also am an and any are as at be because been but by can could d did do does for from had has
    have he her him his how i if in into is it its just ll m me my no not of on or our out re s she should so
    some t than that the their them then there these they this those to too up us ve was we were what when
    where which while who why will with would you your
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())

_MONTH_NAMES = """
    january february march april may june july august september october november december
"""
_MONTHS = _MONTH_NAMES.split()
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name != "may" else name for name in _MONTHS) + "|sept"
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"

# The same runs that FTS5's unicode61 tokenizer sees (letters and digits, without the underscore), and dates.
_TERM = lazy_re.compile(
    rf"""
      (?<![^\W_]) (?P<iso> [0-9]{{4}}-[0-9]{{2}} (?:-[0-9]{{2}})? ) (?![0-9])
    | (?<![^\W_]) {_DAY} \s+ (?:of\s+)? (?P<month> {_MONTH} ) (?![^\W_])
    | (?<![^\W_]) (?P<month_first> {_MONTH} ) \s+ {_DAY.replace("<day>", "<day_last>")} (?![^\W_])
    | (?P<word> [^\W_]+ )
    """,
    re.VERBOSE,
)
_MONTH_OF_MAY = lazy_re.compile(
    r"\bMay\b|\b(?:by|in|last|of|since|until)\s+may\b|[0-9](?:st|nd|rd|th)?\s+may\b|\bmay\s+[0-9]"
)


def terms(query: str) -> list[str]:
    """Return the distinct terms of any text as FTS5 expressions, in order; none if it has no word.

    Stop words count only if there is nothing else; so does `may`, unless it is the month.
    A day is one term (`2026-03-04`, `4 March`, `March 4th`); its month is another one.
    """
    stop_words = _STOP_WORDS if _MONTH_OF_MAY.search(query) else _STOP_WORDS | {"may"}
    found: dict[str, bool] = {}
    for match in _TERM.finditer(query.lower()):
        if match["iso"]:
            found[f'"{match["iso"]}"'] = True
        elif match["word"]:
            found[f'"{match["word"]}"'] = match["word"] not in stop_words
        else:
            month = _whole(match["month"] or match["month_first"])
            day = int(match["day"] or match["day_last"])
            found[f'("{day} {month}" OR "{month} {day}")'] = True
            found[f'"{month}"'] = True
    chosen = [term for term, counts in found.items() if counts] or list(found)
    return chosen[:MAX_TERMS]


def _whole(month: str) -> str:
    return next(name for name in _MONTHS if name.startswith(month[:3]))
