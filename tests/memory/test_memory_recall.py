"""The embedded store finds memories by date and by neighbours, but none that an agent must not see."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from relay.memory.backend import Memory
from relay.memory.embedded import FIT_TERMS, EmbeddedBackend
from relay.memory.store import MemoryStore

MARCH_4, MAY_2 = 1_772_582_400.0, 1_777_680_000.0  # 2026, at midnight UTC
HOUR = 3600.0

Open = Callable[..., MemoryStore]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    set_zone("UTC0")
    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def now() -> list[float]:
    return [MARCH_4 + HOUR]


@pytest.fixture
def open_store(tmp_path: Path, now: list[float]) -> Iterator[Open]:
    opened: list[MemoryStore] = []

    def open_store(agent: str = "Alice", team: str = "home") -> MemoryStore:
        backend = EmbeddedBackend(tmp_path / "memory.db")
        opened.append(MemoryStore(backend, team, agent, clock=lambda: now[0]))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def texts(memories: list[Memory]) -> list[str]:
    return [memory.text for memory in memories]


def assert_sound(path: Path) -> None:
    """Check that the index has exactly the words of the table."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO memory_text (memory_text, rank) VALUES ('integrity-check', 1)")


@pytest.mark.parametrize(
    "query",
    [
        "2026-03-04",
        "2026-03",
        "4 March",
        "on March 4th",
        "what did we decide in march?",
        "wednesday",
        "Mar 4",
    ],
)
def test_a_memory_is_found_by_its_date(
    open_store: Open, now: list[float], zone: Callable[[str], None], query: str
) -> None:
    store = open_store()
    store.save("Passkeys only")
    now[0] = MAY_2
    store.save("Tokens in cookies")
    assert texts(store.search(query)) == ["Passkeys only"]
    assert texts(store.search("2026"))[0] == "Tokens in cookies"  # both match; the newest comes first


def test_the_date_is_in_the_time_zone_of_the_save(
    open_store: Open, now: list[float], zone: Callable[[str], None]
) -> None:
    zone("EST5")
    store = open_store()
    store.save("Passkeys only")
    zone("UTC0")
    assert texts(store.search("2026-03-03")) == ["Passkeys only"]
    assert store.search("2026-03-04") == []
    assert store.forget(store.list()[0].id)
    assert store.search("2026-03-03") == []


@pytest.mark.parametrize("when", [-1e30, 1e30, -1.0, 0.0])
def test_a_memory_may_have_any_time(open_store: Open, tmp_path: Path, when: float) -> None:
    store = open_store()
    old = Memory("zzz9", "Passkeys only", "Alice", "home", False, when)
    with closing(EmbeddedBackend(tmp_path / "memory.db")) as backend:
        assert backend.add(old) == old
    assert store.search("passkeys") == [old]
    assert_sound(tmp_path / "memory.db")


SUBJECT = "Talked about the retry policy of the checkout"
ANSWER = "Agreed: exponential backoff"
QUESTION = "What is the retry policy of the checkout?"


def test_an_answer_is_found_next_to_the_note_on_its_subject(open_store: Open) -> None:
    store = open_store()
    store.save("Lunch")
    store.save(SUBJECT)
    store.save(ANSWER)
    store.save("Dinner")
    assert texts(store.search(QUESTION)) == [SUBJECT, ANSWER, "Lunch"]
    assert texts(store.search("retry policy")) == [SUBJECT]  # two words are not a question
    assert texts(store.search("retry bananas oranges")) == [SUBJECT]  # and this is not a good match


def test_a_memory_with_all_words_comes_before_neighbours(open_store: Open) -> None:
    store = open_store()
    store.save("alder birch " + "padding " * 8000)
    for number in range(80):  # so that fewer than half of the memories contain alder
        store.save(f"filler {number}", shared=True)
    for number in range(60):
        store.save(f"alder alder alder {number}")
    assert texts(store.search("alder birch", 5))[0].startswith("alder birch padding")


def test_of_two_equal_matches_the_neighbour_of_a_match_comes_first(open_store: Open) -> None:
    store = open_store()
    store.save("the database is slow")
    store.save("decided on an index")
    store.save("lunch")
    store.save("decided on pasta")
    assert texts(store.search("decided database")) == [
        "the database is slow",
        "decided on an index",
        "decided on pasta",
    ]


def test_forgetting_a_memory_changes_the_neighbours(open_store: Open) -> None:
    store = open_store()
    subject = store.save(SUBJECT)
    between = store.save("Lunch")
    store.save(ANSWER)
    assert texts(store.search(QUESTION)) == [SUBJECT, "Lunch"]
    store.forget(between.id)
    assert texts(store.search(QUESTION)) == [SUBJECT, ANSWER]
    store.forget(subject.id)
    assert store.search(QUESTION) == []


def test_only_memories_for_the_same_agents_are_neighbours(open_store: Open) -> None:
    """A shared note is not found by the words of its owner's private notes."""
    alice, bob = open_store("Alice"), open_store("Bob")
    alice.save(SUBJECT)
    bob.save("Bob's own")
    alice.save(ANSWER, shared=True)
    for agent in (alice, bob):
        assert ANSWER not in texts(agent.search(QUESTION))
    assert bob.search(QUESTION) == []
    alice.save(SUBJECT, shared=True)
    assert texts(bob.search(QUESTION)) == [SUBJECT, ANSWER]
    alice.save("alder birch cedar")
    alice.save("Alice's own")
    assert texts(alice.search("alder birch cedar")) == ["alder birch cedar", "Alice's own"]
    alice.save("Alice's own", shared=True)
    assert texts(alice.search("alder birch cedar")) == ["alder birch cedar"]


WORDS = "alder birch cedar doum elm fig".split()  # noqa: SIM905
AGENTS = ("Alice", "Bob")


class Agents(RuleBasedStateMachine):
    """Two agents of a team and one of another save, share and forget; a model knows what each may find."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="relay-test-"))
        self.path = self.directory / "memory.db"
        self.backend = EmbeddedBackend(self.path)
        ticks = itertools.count(1.0)
        owners = [("Alice", "home"), ("Bob", "home"), ("Alice", "away")]
        self.stores = [
            MemoryStore(self.backend, team, agent, clock=lambda: next(ticks)) for agent, team in owners
        ]
        self.stores[0].check()  # creates the file
        self.model: list[tuple[int, Memory]] = []  # the owner and the memory, in the order of the table

    def visible(self, who: int) -> list[tuple[int, Memory]]:
        return [(by, each) for by, each in self.model if by == who or (each.shared and {by, who} == {0, 1})]

    @rule(
        who=st.integers(0, 2),
        words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
        shared=st.booleans(),
    )
    def save(self, who: int, words: list[str], shared: bool) -> None:
        saved = self.stores[who].save(" ".join(words), shared=shared)
        for place, (by, known) in enumerate(self.model):
            if known.id == saved.id:
                self.model[place] = (by, saved)
                return
        self.model.append((who, saved))

    @rule(who=st.integers(0, 2), which=st.integers(0, 30))
    def forget(self, who: int, which: int) -> None:
        if self.model:
            _, memory = self.model[which % len(self.model)]
            mine = any(memory == each for _, each in self.visible(who))
            assert self.stores[who].forget(memory.id) == mine
            if mine:
                self.model = [each for each in self.model if each[1] != memory]

    @rule(who=st.integers(0, 2), words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True))
    def search(self, who: int, words: list[str]) -> None:
        found = self.stores[who].search(" ".join(words), 100)
        visible = [each for _, each in self.visible(who)]
        has = {each.id: len(set(words) & set(each.text.split())) for each in visible}
        assert {each.id for each in found} <= has.keys()
        assert {id for id, count in has.items() if count} <= {each.id for each in found}
        assert all(each in visible for each in found)
        for each in found:
            nearby = [has[other.id] for other in self.neighbours(each)]
            assert has[each.id] or max(nearby, default=0) >= FIT_TERMS
        complete = [has[each.id] == len(words) for each in found]
        assert complete == sorted(complete, reverse=True)

    def neighbours(self, memory: Memory) -> list[Memory]:
        (owner,) = (by for by, each in self.model if each.id == memory.id)
        group = [each for by, each in self.model if (by, each.shared) == (owner, memory.shared)]
        place = group.index(memory)
        return group[max(0, place - 1) : place] + group[place + 1 : place + 2]

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.backend.close()
            assert_sound(self.path)
            shutil.rmtree(self.directory)


TestAgents = Agents.TestCase
TestAgents.settings = settings(max_examples=25, stateful_step_count=30)
