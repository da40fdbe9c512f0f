"""The memory store saves any text, finds it again, and keeps the memories of agents apart."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.errors import MemoryStoreError
from relay.memory.backend import IdTaken, Memory
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MAX_TEXT, MemoryStore
from support import many

Open = Callable[..., MemoryStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens the test's store for an agent; each memory takes the clock a second on."""
    opened: list[MemoryStore] = []
    ticks = itertools.count(1000.0)

    def open_store(agent: str = "Alice", team: str = "home") -> MemoryStore:
        opened.append(
            MemoryStore(EmbeddedBackend(tmp_path / "memory.db"), team, agent, clock=lambda: next(ticks))
        )
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def texts(memories: list[Memory]) -> list[str]:
    return [memory.text for memory in memories]


def test_a_memory_is_saved_listed_found_and_forgotten(open_store: Open) -> None:
    """R48, R63 (the embedded backend)."""
    store = open_store()
    saved = store.save("  This project uses Prisma for database access\n")
    assert saved == Memory(
        saved.id, "This project uses Prisma for database access", "Alice", "home", False, 1000.0
    )
    assert store.list() == [saved]
    assert store.search("databases") == [saved]
    assert store.forget(saved.id)
    assert not store.forget(saved.id)
    assert store.list() == store.search("prisma") == []
    store.save("a memory in the same place of the file")
    assert store.search("prisma") == []


def test_memories_outlive_the_store_object(open_store: Open) -> None:
    first = open_store()
    saved = first.save("Auth tokens are stored in httpOnly cookies")
    first.close()
    assert open_store().search("cookie") == [saved]


def test_lists_and_searches_are_limited_and_newest_first(open_store: Open) -> None:
    store = open_store()
    for number in range(30):
        store.save(f"fact {number}")
    assert texts(store.list(3)) == ["fact 29", "fact 28", "fact 27"]
    assert len(store.list()) == 20
    assert len(store.search("fact")) == 10
    assert len(store.search("fact", limit=25)) == 25
    assert store.list(0) == store.list(-1) == store.search("fact", -1) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("preferring", ["User prefers dark mode"]),  # the stem
        ("MODE", ["User prefers dark mode"]),
        ("dark or bright themes", ["User prefers dark mode"]),  # any of the words
        ("what is the café", ["The cafe opens at nine"]),  # ignoring stop words and the accent
        ("what is the mode", ["User prefers dark mode"]),  # not the other, which has only the stop word
        ("the it", ["The cafe opens at nine"]),  # stop words count if there are no others
        ("nine prefers cafe", ["The cafe opens at nine", "User prefers dark mode"]),  # more words rank higher
        ("dark prefers nine", ["User prefers dark mode", "The cafe opens at nine"]),
        ("bananas", []),
        ("", []),
        (" \n", []),
    ],
)
def test_a_search_finds_memories_by_words(open_store: Open, query: str, found: list[str]) -> None:
    store = open_store()
    store.save("User prefers dark mode")
    store.save("The cafe opens at nine")
    assert texts(store.search(query)) == found


def test_a_rare_word_outweighs_a_common_one(open_store: Open) -> None:
    store = open_store()
    for number in range(20):
        store.save(f"server note {number}")
    store.save("the server that runs Postgres")
    assert texts(store.search("postgres server"))[0] == "the server that runs Postgres"


@pytest.mark.parametrize("query", ["🚀", "pris", "データ", "C++", "(see #4"])
def test_parts_of_words_and_symbols_are_found_literally(open_store: Open, query: str) -> None:
    store = open_store()
    store.save("unrelated")
    store.save("🚀 Prisma データベース C++ (see #4)")
    assert texts(store.search(query)) == ["🚀 Prisma データベース C++ (see #4)"]


@pytest.mark.parametrize(
    "query",
    ['"', '""', "NEAR(", "NEAR(a b, 2)", "*", "a*", "^a", "(", ")", "a AND", "NOT", "text:a", "-a", "a\0b",
     "\0", "'; DROP TABLE memory; --", "\ud800", "\\", "%", "{a b}: c", "word " * 20_000,
     " ".join(f"w{number}" for number in range(20_000))],
)  # fmt: skip
def test_fts5_syntax_has_no_effect(open_store: Open, query: str) -> None:
    store = open_store()
    store.save("zebra")
    assert store.search(query) == []
    assert texts(store.search(f"zebra {query}")) == ["zebra"]


SYNTAX = st.sampled_from(
    ['"', "NEAR(", "NEAR", "*", "^", "(", ")", "AND", "OR", "NOT", "text:", "+", "\0", "🚀"]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(), max_size=60),  # including lone surrogates
    st.lists(st.one_of(SYNTAX, st.text(max_size=5)), max_size=12).map(" ".join),
    st.lists(SYNTAX, max_size=8).map("".join),
)


@settings(max_examples=many(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY_TEXT, query=ANY_TEXT)
def test_any_text_can_be_saved_and_found_by_itself(open_store: Open, text: str, query: str) -> None:
    store = open_store()
    try:
        assert store.search(query) == store.search(text) == []
        if text.strip():
            saved = store.save(text)
            assert saved in store.search(text)
            assert store.search(query) in ([], [saved])
            assert store.forget(saved.id)
    finally:
        store.close()


def test_a_memory_is_private_unless_shared_with_the_team(open_store: Open) -> None:
    """R63"""
    alice, bob, other = open_store("Alice"), open_store("Bob"), open_store("Bob", team="elsewhere")
    own = alice.save("the key is under the mat")
    common = alice.save("the deploy key lives in the vault", shared=True)
    assert bob.list() == bob.search("key") == [common]
    assert other.list() == other.search("key") == []
    assert not bob.forget(own.id)
    assert not other.forget(common.id)
    assert bob.forget(common.id)
    assert alice.list() == [own]


def test_names_ignore_case_and_keep_their_spelling(open_store: Open) -> None:
    saved = open_store("Alice", team="Home").save("hello")
    assert open_store("ALICE", team="home").list() == [saved]
    assert (saved.agent, saved.team) == ("Alice", "Home")


def test_the_same_text_is_stored_once(open_store: Open) -> None:
    alice, bob = open_store("Alice"), open_store("Bob")
    first = alice.save("tabs, not spaces")
    assert alice.save(" tabs, not spaces ") == first
    assert bob.save("tabs, not spaces").id != first.id  # Bob cannot see Alice's
    shared = alice.save("tabs, not spaces", shared=True)
    assert (shared.id, shared.shared, shared.time) == (first.id, True, first.time)
    assert alice.save("tabs, not spaces") == shared
    assert alice.list() == [shared]
    assert bob.save("tabs, not spaces", shared=True) == shared


def test_ids_are_short_and_a_prefix_is_enough(open_store: Open) -> None:
    store = open_store()
    saved = [store.save(f"fact {number}") for number in range(200)]
    assert len({memory.id for memory in saved}) == 200
    assert {len(memory.id) for memory in saved} == {4}
    assert all(set(memory.id) <= set("23456789bcdfghjkmnpqrstvwxyz") for memory in saved)
    chosen = next(m for m in saved if sum(other.id[:3] == m.id[:3] for other in saved) == 1)
    assert not store.forget(chosen.id[:2])  # too short
    assert not store.forget("")
    assert store.forget(f" {chosen.id[:3].upper()} ")
    assert chosen not in store.list(300)


def test_an_ambiguous_prefix_forgets_nothing(tmp_path: Path, open_store: Open) -> None:
    store = open_store()
    saved = [store.save("one"), store.save("two")]
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        connection.executemany(
            "UPDATE memory SET id = ? WHERE id = ?", [("bbbb", saved[0].id), ("bbbbc", saved[1].id)]
        )
    connection.close()
    with pytest.raises(MemoryStoreError, match="matches several ids: bbbb, bbbbc"):
        store.forget("bbb")
    assert store.forget("bbbb")  # a whole id, although it is another's prefix
    assert texts(store.list()) == ["two"]


class Crowded(EmbeddedBackend):
    """A backend in which every id of up to six characters is taken."""

    def add(self, memory: Memory) -> Memory:
        if len(memory.id) < 7:
            raise IdTaken(memory.id)
        return super().add(memory)


def test_ids_grow_if_short_ones_are_taken(tmp_path: Path) -> None:
    store = MemoryStore(Crowded(tmp_path / "memory.db"), "home", "Alice")
    assert len(store.save("hello").id) == 7
    store.close()


def test_an_imported_memory_keeps_its_id_unless_it_is_taken(open_store: Open) -> None:
    store = open_store()
    old = Memory("zzz9", "from elsewhere", "Bob", "other", True, 5.0, {"tags": ["a", 1]})
    assert store.add(old) == old
    assert store.add(old) == old
    assert open_store("Cy", "other").list() == [old]
    other = store.add(replace(old, text="another text"))
    assert other == replace(old, id=other.id, text="another text")
    assert other.id != old.id


@pytest.mark.parametrize("time", [1_767_225_600_000_000_000, 10**26, float("nan"), float("inf"), -1.0])
def test_a_time_without_a_date_is_refused(open_store: Open, time: float) -> None:
    store = open_store()
    with pytest.raises(MemoryStoreError, match="is not in the years 1970 to 9999"):
        store.add(Memory("", "hello", "Alice", "home", False, time))
    assert store.list() == []


def test_an_exact_id_is_preferred_to_one_in_another_case(tmp_path: Path, open_store: Open) -> None:
    store = open_store()
    saved = [store.save("one"), store.save("two")]
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db, db:
        db.executemany(
            "UPDATE memory SET id = ? WHERE id = ?", [("BBBB", saved[0].id), ("bbbb", saved[1].id)]
        )
    assert store.forget("BBBB")
    assert texts(store.list()) == ["two"]
    assert store.forget("BBBB")
    assert store.list() == []


def test_metadata_is_stored_unchanged(open_store: Open) -> None:
    store = open_store()
    metadata = {"project": "relay", "tags": ["é", None, 1.5], "nested": {"deep": True}}
    saved = store.save("with metadata", metadata=metadata)
    assert saved.metadata == metadata
    assert store.list() == store.search("metadata") == [saved]
    for wrong in ({"x": object()}, {"x": float("nan")}):
        with pytest.raises(MemoryStoreError, match="the metadata is not JSON"):
            store.save("wrong", metadata=wrong)
    with pytest.raises(MemoryStoreError, match="at most 65,536"):
        store.save("long", metadata={"x": "y" * MAX_TEXT})


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_text_is_refused(open_store: Open, text: str) -> None:
    with pytest.raises(MemoryStoreError, match="the text is empty"):
        open_store().save(text)


def test_the_size_of_a_memory_is_limited_in_bytes(open_store: Open) -> None:
    store = open_store()
    assert store.save("é" * (MAX_TEXT // 2)).text == "é" * (MAX_TEXT // 2)
    with pytest.raises(MemoryStoreError, match=r"65,538 bytes.*at most 65,536"):
        store.save("é" * (MAX_TEXT // 2) + "xx")


def test_one_store_serves_many_threads(open_store: Open) -> None:
    store = open_store()
    together = threading.Barrier(8)

    def work(worker: int) -> None:
        together.wait(30)
        for number in range(10):
            saved = store.save(f"worker {worker} number {number}")
            assert saved in store.search(f"worker {worker} number {number}", limit=100)
        assert store.forget(saved.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(store.list(1000)) == 8 * 9
