"""A person's or an agent's words, made an FTS5 query that is valid whatever they wrote.

FTS5's own syntax (quotes, NEAR, *, ^, column filters; sqlite.org/fts5.html section 3) is never exposed: the
words are taken out, stop words are dropped, and what is left is quoted and joined with OR.
"""

from __future__ import annotations

import re

MAX_TERMS = 100
"""Distinct words of a query that count; the rest of a pasted page would add time and no meaning."""

# The same runs that FTS5's unicode61 tokenizer sees: letters and digits, without the underscore.
_WORD = re.compile(r"[^\W_]+")

# English function words: they are in every memory and tell none apart.
_FUNCTION_WORDS = """
    a about all also am an and any are as at be because been but by can could d did do does for from had has
    have he her him his how i if in into is it its just ll m me my no not of on or our out re s she should so
    some t than that the their them then there these they this those to too up us ve was we were what when
    where which while who why will with would you your
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


def match_expression(text: str) -> str | None:
    """The argument of MATCH for `text`; None where it holds no word.

    Stop words count where there is nothing else.
    """
    words = list(dict.fromkeys(_WORD.findall(text.lower())))
    words = [word for word in words if word not in _STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in words[:MAX_TERMS]) or None
