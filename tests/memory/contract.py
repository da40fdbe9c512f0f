"""The contract of memory backends, as tests; a subclass provides the fixture `open_backend`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from relay.errors import MemoryStoreError
from relay.memory.backend import IdTaken, Memory, MemoryBackend, Scope

Open = Callable[[], MemoryBackend]
"""Opens a test's store, which is empty at first; after `close`, reopens it with its contents."""

ALICE = Scope("Alice", "home")
BOB = Scope("Bob", "home")
OUTSIDER = Scope("Alice", "elsewhere")

HOSTILE = {
    "quotes": """it's "quoted" `so` \\ and so""",
    "SQL": "'; DROP TABLE relay_memories; SELECT '1' --",
    "percent": "100 %s %d %(name)s {} {0} $1 ?",
    "JSON": '{"$or": [{"user_id": "*"}], "relay_scope": "team"}',
    "operators": '* OR NOT text:a NEAR(b c) "unclosed (',
    "no words": "!!! --- ...",
    "emoji": "👩‍👩‍👧 ❤️ ✅",
    "right to left": "\u202eشكرا\u202c للمساعدة",
    "control characters": "a\x1b[31mred\x07\x08\x7f\x85",
    "lines": "first\r\nsecond\n\n\tthird\u2028fourth",
    "64 KB": "word " * 13_107,
    "64 KB without a blank": "x" * 65_536,
}
UNSTORABLE = {"NUL": "before\0after \\u0000", "lone surrogates": "a\ud800b\udfffc"}
"""Texts that UTF-8 or PostgreSQL cannot store; relay's own memory store replaces such characters."""


def memory(
    id: str,
    text: str,
    scope: Scope = ALICE,
    *,
    shared: bool = False,
    time: float = 1_000.0,
    **metadata: object,
) -> Memory:
    return Memory(id, text, scope.agent, scope.team, shared, time, metadata)


def ids(memories: list[Memory]) -> list[str]:
    return [each.id for each in memories]


class BackendContract:
    """The tests. A subclass overrides `open_backend`, and sets `unstorable` if it takes any text."""

    unstorable = False

    @pytest.fixture
    def open_backend(self) -> Open:
        raise NotImplementedError

    @pytest.fixture
    def backend(self, open_backend: Open) -> MemoryBackend:
        return open_backend()

    def test_a_memory_is_added_listed_found_and_deleted(self, backend: MemoryBackend) -> None:
        kept = memory("aaaa", "The deploy script needs the staging key", tags=["ops"])
        assert backend.add(kept) == kept
        assert backend.list(ALICE, None) == backend.everything() == [kept]
        assert backend.search("deploy script", ALICE, 5) == [kept]
        assert backend.delete("aaaa", ALICE)
        assert not backend.delete("aaaa", ALICE)
        assert backend.list(ALICE, None) == backend.everything() == []
        assert backend.search("deploy script", ALICE, 5) == []

    def test_a_memory_is_stored_completely(self, open_backend: Open) -> None:
        metadata = {"n": None, "list": [1, 2.5, True], "deep": {"é": {"a.b": "\u2028"}}, "big": 2**70, "": ""}
        kept = [
            replace(memory("aaaa", "Mixed Case", Scope("ÄLice_1", "Home.x")), time=1764085555.123456789),
            replace(memory("bbbb", "with metadata", shared=True), metadata=metadata),
        ]
        backend = open_backend()
        for each in kept:
            backend.add(each)
        backend.close()
        assert sorted(open_backend().everything(), key=lambda each: each.id) == kept

    def test_the_best_match_comes_first(self, backend: MemoryBackend) -> None:
        backend.add(memory("aaaa", "The build uses ninja and clang on the build machine"))
        backend.add(memory("bbbb", "Auth tokens live in httpOnly cookies"))
        backend.add(memory("cccc", "Lunch is at noon"))
        assert ids(backend.search("where do auth tokens live", ALICE, 1)) == ["bbbb"]
        assert ids(backend.search("which build machine uses clang", ALICE, 3))[0] == "aaaa"
        assert backend.search("lunch", ALICE, 0) == []

    def test_an_agent_sees_its_own_memories_and_those_its_team_shares(self, backend: MemoryBackend) -> None:
        backend.add(memory("aaaa", "secret of Alice"))
        backend.add(memory("bbbb", "known to the team", shared=True))
        for scope, visible in ((ALICE, {"aaaa", "bbbb"}), (BOB, {"bbbb"}), (OUTSIDER, set[str]())):
            assert set(ids(backend.list(scope, None))) == visible
            found = backend.search("secret known to the team of Alice", scope, 10)
            assert set(ids(found)) == visible
        assert set(ids(backend.list(Scope("aLICE", "HOME"), None))) == {"aaaa", "bbbb"}
        assert not backend.delete("aaaa", BOB)
        assert not backend.delete("bbbb", OUTSIDER)
        assert backend.delete("bbbb", BOB)
        assert backend.delete("aaaa", Scope("aLICE", "HOME"))

    def test_memories_of_others_use_up_no_results(self, backend: MemoryBackend) -> None:
        for number in range(30):
            backend.add(memory(f"b{number}", f"tabs or spaces, opinion {number}", BOB))
        backend.add(memory("aaaa", "spaces it is, says Alice"))
        assert ids(backend.search("tabs or spaces", ALICE, 5)) == ["aaaa"]

    def test_a_text_is_stored_once_for_those_who_see_it(self, backend: MemoryBackend) -> None:
        first = backend.add(memory("aaaa", "The port is 8080", time=1.0, kind="fact"))
        assert backend.add(memory("bbbb", "The port is 8080", time=2.0)) == first
        assert backend.add(first) == first
        other = backend.add(memory("cccc", "The port is 8080", BOB, time=3.0))
        assert other.id == "cccc"  # Bob did not see Alice's
        assert ids(backend.everything()) == ["aaaa", "cccc"]

    def test_a_text_added_again_as_shared_becomes_shared(self, open_backend: Open) -> None:
        backend = open_backend()
        first = backend.add(memory("aaaa", "Use pnpm", time=1.0, kind="fact"))
        assert backend.add(memory("bbbb", "Use pnpm", time=2.0, shared=True)) == replace(first, shared=True)
        assert backend.add(memory("cccc", "Use pnpm", BOB, time=3.0)) == replace(first, shared=True)
        assert backend.search("pnpm", BOB, 5) == [replace(first, shared=True)]
        backend.close()
        assert open_backend().everything() == [replace(first, shared=True)]

    def test_an_id_is_used_once(self, backend: MemoryBackend) -> None:
        backend.add(memory("aaaa", "the first"))
        for scope in (ALICE, OUTSIDER):
            with pytest.raises(IdTaken):
                backend.add(memory("aaaa", "the second", scope))
        assert [each.text for each in backend.everything()] == ["the first"]

    def test_lists_are_newest_first_and_everything_is_oldest_first(self, backend: MemoryBackend) -> None:
        for number, id in enumerate(("bbbb", "aaaa", "cccc")):
            backend.add(memory(id, f"text {id}", time=100.0 + number))
        assert ids(backend.list(ALICE, None)) == ["cccc", "aaaa", "bbbb"]
        assert ids(backend.list(ALICE, 2)) == ["cccc", "aaaa"]
        assert backend.list(ALICE, 0) == []
        assert ids(backend.everything()) == ["bbbb", "aaaa", "cccc"]

    @pytest.mark.parametrize("sample", [*HOSTILE, *UNSTORABLE])
    def test_any_text_is_stored_and_any_query_answered(self, open_backend: Open, sample: str) -> None:
        if sample in UNSTORABLE and not self.unstorable:
            return  # not required of this backend
        text = (HOSTILE | UNSTORABLE)[sample]
        backend = open_backend()
        backend.add(memory("bbbb", "for Bob only", BOB))
        kept = backend.add(memory("aaaa", text, note=text[:100]))
        assert backend.add(memory("cccc", text)) == kept
        assert backend.list(ALICE, None) == [kept]
        assert set(ids(backend.search(text, ALICE, 9))) <= {"aaaa"}
        backend.close()
        assert open_backend().list(ALICE, None) == [kept]

    def test_eight_writers_of_one_backend_lose_nothing(self, backend: MemoryBackend) -> None:
        lock = threading.Lock()

        def write(writer: int) -> None:
            for number in range(5):
                with lock:
                    backend.add(
                        memory(f"w{writer}n{number}", f"{number} by {writer}", Scope(f"A{writer}", "home"))
                    )

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
        assert sorted(ids(backend.everything())) == sorted(f"w{w}n{n}" for w in range(8) for n in range(5))

    def test_a_closed_backend_raises_an_error(self, backend: MemoryBackend) -> None:
        backend.close()
        backend.close()
        with pytest.raises(MemoryStoreError):
            backend.everything()
