"""A query is split into terms: words and dates."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.memory.terms import MAX_TERMS, terms

MARCH_4 = '("4 march" OR "march 4")'


QUERIES = [
    ("Where is the deploy key?", ['"deploy"', '"key"']),
    ("the it", ['"the"', '"it"']),  # only stop words
    ("key KEY", ['"key"']),
    ("", []),
    ("🚀 _", []),
    ("since 2026-03-04", ['"since"', '"2026-03-04"']),
    ("(2026-03)", ['"2026-03"']),
    ("12026-03-04", ['"12026"', '"03"', '"04"']),
    ("4 March", [MARCH_4, '"march"']),
    ("the 4th of march", [MARCH_4, '"march"']),
    ("Mar 04", [MARCH_4, '"march"']),
    ("March 4th 2026", [MARCH_4, '"march"', '"2026"']),
    ("march 2026", ['"march"', '"2026"']),
    ("Sept 30", ['("30 september" OR "september 30")', '"september"']),
    ("40 march", ['"40"', '"march"']),
    ("marching 4", ['"marching"', '"4"']),
    ("what may break", ['"break"']),
    ("what broke in may", ['"broke"', '"may"']),
    ("May plans", ['"may"', '"plans"']),
    ("plans of may 3", ['"plans"', '("3 may" OR "may 3")', '"may"']),
]


def test_a_query_is_split_into_words_and_dates(subtests: pytest.Subtests) -> None:
    for query, found in QUERIES:
        with subtests.test(query):
            assert terms(query) == found


PIECES = st.one_of(
    st.text(max_size=5), st.sampled_from([" ", "4", "2026-03-04", "march", "th", "may", '"', "OR"])
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_the_terms_of_any_text_are_valid_fts5_expressions(text: str) -> None:
    found = terms(text.encode("utf-8", "replace").decode())
    assert len(found) <= MAX_TERMS
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE VIRTUAL TABLE t USING fts5 (text)")
        for expression in (*found, " OR ".join(found), " AND ".join(found)):
            if expression:
                db.execute("SELECT * FROM t WHERE t MATCH ?", (expression,)).fetchall()
    db.close()
