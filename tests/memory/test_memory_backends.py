"""Backends that run elsewhere: in a helper process, or on a thread of the session."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relay.errors import ConfigError, ConfigMistakes, MemoryStoreError, RelayError
from relay.home import Home
from relay.memory.backend import Memory, Scope
from relay.memory.config import MemoryConfig, load
from relay.memory.embedded import EmbeddedBackend
from relay.memory.helper import MAX_REQUEST
from relay.memory.in_process import InProcessBackend
from relay.memory.opening import open_backend
from relay.memory.remote import RemoteBackend
from relay.memory.store import MAX_TEXT, MemoryStore
from relay.storage.locks import is_held
from support import LONG, wait_until

MODULE = '''
"""Relay's own backend, which hangs, crashes or fails on demand."""

import ctypes, os, time
from pathlib import Path

from relay.memory.backend import Memory
from relay.memory.embedded import EmbeddedBackend


class Notes(EmbeddedBackend):
    def __init__(self, config):
        self._key = os.environ.get("NOTES_KEY", "none")
        if config.get("refuse") or self._key == "wrong":
            raise ConnectionError("its server is down")
        print("output of a library, not for the session")
        folder = Path(config["folder"])
        super().__init__(folder / "notes.db")
        self._pids = folder / "pids"
        with self._pids.open("a") as file:
            file.write(f"{os.getpid()}\\n")

    def search(self, query, scope, limit):
        match query:
            case "hang":
                time.sleep(1000)
            case "hang with the interpreter":
                ctypes.PyDLL(None).sleep(1000)
            case "die":
                os._exit(3)
            case "die once" if len(self._pids.read_text().split()) == 1:
                os._exit(3)
            case "raise":
                raise ValueError("no such\\x1b[2J thing")
            case "which key":
                return [Memory("aaaa", self._key, scope.agent, scope.team, False, 0)]
            case "nonsense":
                return ["nonsense"]
        return super().search(query, scope, limit)


def nothing(config):
    return object()


def broken(config):
    raise KeyError("url")


class plugin:
    """What a package's entry point names."""

    def open(config, folder):
        assert folder.is_dir()
        return Notes(config)

    def environment(config, variables):
        return {name: value for name, value in variables.items() if name == "NOTES_KEY"}
'''

Open = Callable[..., MemoryStore]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.from_env({"RELAY_HOME": str(tmp_path / "h")}).ensure()


@pytest.fixture
def open_remote(home: Home, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens an agent's store with MODULE's backend, in a helper process."""
    (tmp_path / "notes_backend.py").write_text(MODULE)
    opened: list[MemoryStore] = []

    def open_remote(
        agent: str = "Alice",
        factory: str = "Notes",
        timeout: float = 30.0,
        plugin: str = "",
        **config: object,
    ) -> MemoryStore:
        options = {"folder": str(tmp_path), **config}
        if plugin:
            settings = MemoryConfig(plugin, options, timeout=timeout)
        else:
            named = f"notes_backend:{factory}"
            settings = MemoryConfig("custom", options, named, timeout, folder=str(tmp_path))
        opened.append(MemoryStore(RemoteBackend(settings, home, idle=0.1), "home", agent))
        return opened[-1]

    yield open_remote
    for store in opened:
        store.close()
    wait_until(lambda: not any(is_held(owner) for owner in (home.run / "memory").glob("*.owner")))


def pids(tmp_path: Path) -> list[int]:
    """Return the pids of the helpers that have opened the backend, oldest first."""
    return list(map(int, (tmp_path / "pids").read_text().split()))


def test_memories_pass_through_a_helper_unchanged(open_remote: Open) -> None:
    """R63 (a custom backend)"""
    store = open_remote()
    saved = store.save("Größe \u2028 matters", shared=True, metadata={"a": [1, None, "é"]})
    assert store.list() == store.search("größe") == open_remote("Bob").list() == [saved]
    assert saved.metadata == {"a": [1, None, "é"]}
    own = open_remote("Bob").save("only for Bob")
    assert store.list() == [saved]
    assert open_remote("Bob").forget(own.id[:3])
    assert store.forget(saved.id)
    assert store.list() == []
    largest = "\x01" * MAX_TEXT  # six characters each as JSON
    assert store.save(largest).text == largest
    assert MAX_TEXT * 6 < MAX_REQUEST


def test_all_sessions_share_one_helper_that_ends_after_them(
    open_remote: Open, home: Home, tmp_path: Path
) -> None:
    stores = [open_remote(f"Agent{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda store: [store.save(f"{store}{n}", shared=True) for n in range(20)], stores))
    assert len(stores[0].list(None)) == 160
    assert len(pids(tmp_path)) == 1
    for store in stores:
        store.close()
    (owner,) = (home.run / "memory").glob("*.owner")
    wait_until(lambda: not is_held(owner))
    assert not list((home.run / "memory").glob("*.sock"))
    assert len(open_remote().list(None)) == 160


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with the backend `notes`, and one with a broken backend."""
    package = tmp_path / "notes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[relay.memory_backends]\nnotes = notes_backend:plugin\nbad = notes_backend:missing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_an_installed_package_adds_a_backend(open_remote: Open) -> None:
    store = open_remote(plugin="notes")
    saved = store.save("hello")
    assert open_remote(plugin="notes").list() == [saved]
    with pytest.raises(MemoryStoreError, match=r"the memory backend bad failed: AttributeError: .*missing"):
        open_remote(plugin="bad")
    with pytest.raises(
        ConfigError, match=r"\"bad\", \"mem0\", \"notes\", \"qdrant\" .* not 'note'\. Did you mean notes\?"
    ):
        MemoryConfig("note")


def test_all_mistakes_of_the_table_are_reported_with_their_lines(home: Home, tmp_path: Path) -> None:
    path = home.config / "relay.toml"
    path.write_text("[memory]\ntimeout = 0\nautoSave = true\nauto_save = 1\n")
    found, notices = load(home, tmp_path, lambda path, content: False)
    assert isinstance(found, ConfigMistakes)
    assert [notice.removeprefix(f"{path}:")[:27] for notice in notices] == [
        "2: memory.timeout must be a",
        "4: memory: auto_save is giv",
        "4: memory.auto_save must be",
    ]
    assert notices[-1].endswith(" The agent keeps running without memory.")


@pytest.mark.usefixtures("installed")
def test_a_helper_uses_the_environment_of_each_caller(
    open_remote: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_with(key: str | None) -> MemoryStore:
        if key is None:
            monkeypatch.delenv("NOTES_KEY")
        else:
            monkeypatch.setenv("NOTES_KEY", key)
        return open_remote(plugin="notes")

    def key(store: MemoryStore) -> str:
        return store.search("which key")[0].text

    old = open_with("old")
    saved = old.save("hello")
    new, wrong, none = open_with("new"), open_with("wrong"), open_with(None)
    assert [key(store) for store in (old, new, none, old)] == ["old", "new", "none", "old"]
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match="its server is down"):
            wrong.list()
    assert [key(old), key(old)] == ["old", "old"]
    assert new.list() == [saved]
    assert len(set(pids(tmp_path))) == 1, "a local store must have one owner"
    assert len(pids(tmp_path)) == 6, "the backend must be reopened only for another environment"


def test_a_killed_helper_is_replaced_and_loses_nothing_acknowledged(
    open_remote: Open, tmp_path: Path
) -> None:
    store = open_remote()
    acknowledged: list[Memory] = []
    kills = 4 if LONG else 2
    stopped = threading.Event()

    def save() -> None:
        while not stopped.is_set():
            acknowledged.append(store.save(f"fact {len(acknowledged)}"))

    writer = threading.Thread(target=save)
    writer.start()
    try:
        for count in range(1, kills + 1):
            wait_until(lambda count=count: len(acknowledged) > 10 * count and len(pids(tmp_path)) == count)  # type: ignore[misc]
            os.kill(pids(tmp_path)[-1], signal.SIGKILL)
    finally:
        stopped.set()
        writer.join()
    kept = store.list(None)
    assert sorted(each.text for each in kept) == sorted(each.text for each in acknowledged)
    assert len(pids(tmp_path)) >= kills


@pytest.mark.parametrize("query", ["hang", "hang with the interpreter"])
def test_a_call_that_hangs_times_out_and_the_next_one_works(
    open_remote: Open, tmp_path: Path, query: str
) -> None:
    store = open_remote(timeout=1.0)
    saved = store.save("hello")
    with pytest.raises(MemoryStoreError, match=r"did not answer within 1 s.*timeout"):
        store.search(query)
    assert store.search("hello") == [saved]
    assert len(pids(tmp_path)) > 1


def test_a_call_is_repeated_after_its_helper_crashed(open_remote: Open, tmp_path: Path) -> None:
    store = open_remote()
    assert store.search("die once") == []
    assert len(pids(tmp_path)) == 2
    with pytest.raises(MemoryStoreError, match=r"custom keeps crashing. .*memory-helper\.log"):
        store.search("die")
    assert store.list() == []


def test_an_error_in_a_backend_is_reported(open_remote: Open, home: Home) -> None:
    store = open_remote()
    for query, message in {
        "raise": r"the memory backend custom failed: ValueError: no such.* thing\.$",
        "nonsense": r"custom is faulty: search returned \['nonsense'\]",
    }.items():
        with pytest.raises(MemoryStoreError, match=message) as caught:
            store.search(query)
        assert "\x1b" not in str(caught.value)
        assert (home.state / "memory-helper.log").read_text().count("Traceback") == 1
        assert store.list() == []


@pytest.mark.parametrize(
    ("factory", "config", "message"),
    [
        ("Notes", {"refuse": True}, r"custom failed: ConnectionError: its server is down"),
        ("Nobody", {}, r"there is no 'notes_backend:Nobody'.*Put the module beside"),
        ("nothing", {}, r"\(object\) has no add, search, list, everything, delete, close"),
        ("broken", {}, r"custom failed: KeyError: 'url'"),
    ],
)
def test_a_backend_that_cannot_be_opened_gives_the_reason_each_time(
    open_remote: Open, factory: str, config: dict[str, object], message: str
) -> None:
    store = open_remote(factory=factory, **config)
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match=message):
            store.save("hello")


def test_settings_that_are_not_plain_data_are_refused(home: Home) -> None:
    with pytest.raises(MemoryStoreError, match="must be plain data"):
        open_backend(MemoryConfig("custom", {"a": object()}, "a:b"), home)


class Stuck(EmbeddedBackend):
    """Blocks in `search` until released."""

    go = threading.Event()

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(Path(config["folder"]) / "notes.db")

    def search(self, query: str, scope: Scope, limit: int) -> list[Memory]:
        if query == "hang":
            self.go.wait()
        if query == "refuse":
            raise RelayError("not today. Ask tomorrow.")
        return super().search(query, scope, limit)


def test_an_in_process_backend_that_hangs_is_unavailable_until_it_returns(home: Home, tmp_path: Path) -> None:
    Stuck.go.clear()
    backend = open_backend(MemoryConfig("custom", {"folder": str(tmp_path)}, Stuck, 0.5), home)
    assert isinstance(backend, InProcessBackend)
    with closing(MemoryStore(backend, "home", "Alice")) as store:
        saved = store.save("hello")
        with pytest.raises(MemoryStoreError, match=r"^not today\. Ask tomorrow\.$"):
            store.search("refuse")
        with pytest.raises(MemoryStoreError, match=r"did not answer within 0\.5 s"):
            store.search("hang")
        with pytest.raises(MemoryStoreError, match=r"has not returned from search"):
            store.save("during the hang")
        Stuck.go.set()
        wait_until(lambda: _works(store))
        assert store.list() == [saved]
    with pytest.raises(MemoryStoreError, match="was closed"):
        store.list()


def _works(store: MemoryStore) -> bool:
    try:
        store.list()
    except MemoryStoreError:
        return False
    return True
