"""Memory in sessions: configured backends, and what is saved at the end."""

from __future__ import annotations

import json
from pathlib import Path

from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

CUSTOM = """
import time
from pathlib import Path

from relay import RelayConfig
from relay.memory.embedded import EmbeddedBackend


class Notes(EmbeddedBackend):
    def __init__(self, config):
        super().__init__(Path(config["path"]))

    def search(self, query, scope, limit):
        if query == "hang":
            time.sleep(1000)
        return super().search(query, scope, limit)


config = RelayConfig(memory={"backend": "custom", "factory": Notes, "timeout": 2, "config": {"path": %r}})
"""


def memories(relay: Relay, name: str = "Alice") -> list[dict[str, object]]:
    return list(json.loads(relay("memory", "list", "--json", "--name", name).stdout))


def test_a_custom_backend_stores_memories(relay: Relay, home: Path) -> None:
    """R63: if it hangs, only that answer is lost, and the session continues."""
    (home / "relay.config.py").write_text(CUSTOM % str(home / "notes.db"))
    relay("trust", "relay.config.py")
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("@memory:save The mat hides a key")
    alice.receives("Saved to memory")
    alice.say("@memory:search hang")
    alice.receives("the memory backend custom did not answer within 2 s")
    assert [row["name"] for row in ps(relay)] == ["Alice"]
    assert not (home / "state" / "memory.db").exists()
    assert [memory["text"] for memory in memories(relay)] == ["The mat hides a key"]


def test_a_backend_that_cannot_be_opened_is_reported_and_the_session_continues(
    relay: Relay, home: Path
) -> None:
    own = relay.home / "config" / "relay.toml"
    own.parent.mkdir(exist_ok=True)
    own.write_text('[memory]\nbackend = "custom"\nfactory = "nowhere.to_be:found"\n')
    alice = FakeAgent(relay, "Alice").wrap()
    assert "The agent keeps running without memory." in alice.notice("there is no 'nowhere.to_be:found'")
    alice.say("@memory:list")
    alice.receives("> @memory:list: memory: there is no 'nowhere.to_be:found'")
    assert [row["name"] for row in ps(relay)] == ["Alice"]


def test_an_invalid_backend_setting_does_not_fall_back_to_another_backend(relay: Relay, home: Path) -> None:
    own = relay.home / "config" / "relay.toml"
    own.parent.mkdir(exist_ok=True)
    own.write_text('[memory]\nbackend = "mem"\n')
    alice = FakeAgent(relay, "Alice").wrap()
    assert "relay.toml:2: memory.backend must be" in alice.notice("The agent keeps running without memory.")
    alice.say("@memory:save hello")
    alice.receives("not 'mem'. Did you mean mem0?")
    assert not (home / "state" / "memory.db").exists()


def test_the_last_answer_is_saved_if_configured(relay: Relay, home: Path) -> None:
    """R63: auto_save."""
    (home / "relay.config.py").write_text(
        'from relay import RelayConfig\nconfig = RelayConfig(memory={"autoSave": True})\n'
    )
    relay("trust", "relay.config.py")
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("The tests pass with Python 3.14.")
    wait_until(lambda: "The tests pass" in relay("logs", "Alice").stdout)
    relay("stop", "Alice")
    (memory,) = memories(relay)
    assert memory["text"].startswith(f"Last answer in {home.name}: ")  # type: ignore[attr-defined]
    assert "The tests pass with Python 3.14." in str(memory["text"])
    assert memory["metadata"]["auto"] is True  # type: ignore[index]
    quiet = FakeAgent(relay, "Bob").wrap()
    relay("stop", quiet.name)
    assert memories(relay, "Bob") == []
