"""A session can run without any one of its features; whatever does not need it still works."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from fake_agent import FakeAgent, project

from relay.control.sessions import live
from relay.home import Home
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
from relay.messaging.ledger import Ledger
from relay.session.features import FEATURES
from support import Relay, session_patch, wait_until

ESSENTIAL = {"terminals", "output", "state"}
"""Without these there is no session: nothing answers, and relay sees nothing of the agent."""

CONFIG = """
from relay import pattern

@pattern("probe")
def probe(target, message, ctx):
    with open(ctx.env["PROBES"], "a") as file:
        print(target, file=file)
"""


def test_the_table_of_features_is_complete() -> None:
    """The other test leaves out each of them once."""
    assert FEATURES.keys() > ESSENTIAL and len(FEATURES) >= 25


@pytest.mark.parametrize("feature", sorted(FEATURES.keys() - ESSENTIAL))
def test_a_session_works_without_any_one_feature(relay: Relay, feature: str) -> None:
    folder, probes = project(relay, CONFIG), relay.home / "probes"
    probes.touch()
    rules = folder / "hooks.json"
    rules.write_text(json.dumps({"hooks": {"SessionStart": [{"type": "command", "command": "echo ruled"}]}}))
    alice = FakeAgent(relay, "Alice")
    without = session_patch(f"from relay.session.features import FEATURES\ndel FEATURES[{feature!r}]")
    alice.wrap(options=("--rules", rules), cwd=folder, env={"PROBES": str(probes), **without})

    def works(needs: set[str], condition: Callable[[], object]) -> None:
        """Wait for `condition` unless it needs the feature: no event reports what does not happen."""
        if feature not in needs:
            wait_until(condition, message=alice.log)

    home = Home.from_env(relay.environment)

    def states() -> list[str]:
        with Ledger(home.ledger) as ledger:
            return [str(entry.message.state) for entry in ledger.messages()]

    alice.say("@probe:first x\n@memory:save a thing\n")
    works({"handlers"}, lambda: probes.read_text() == "first\n")
    works(
        {"handlers", "memory"},
        lambda: MemoryStore(EmbeddedBackend(home.memory), "default", "Alice").search("a thing"),
    )
    works({"rules", "derived rules"}, lambda: "ruled" in json.dumps(alice.events("hook_fired")))
    relay("send", "Alice", "hello", check=feature != "bus")  # without it, no ledger knows Alice
    works({"bus", "mailbox", "injector", "handlers", "sender"}, lambda: "hello" in alice.received)
    works({"bus", "mailbox", "injector", "handlers", "sender"}, lambda: "injected" in states())
    works({"audit", "injector"}, lambda: alice.events("injection"))
    works({"recorder"}, lambda: list(home.recordings.rglob("*.cast")))
    ((session,), explained) = live(home), relay("explain", "Alice").stdout
    assert (session.name, session.agent) == ("Alice", "generic") and "Alice" in explained
    alice.exit(3)
    wait_until(alice.ended, message=alice.log)
    wait_until(lambda: not live(home))
    log = relay.home / "state" / "session.log"
    assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()
