"""A session can run without any one of its features; whatever does not need it still works."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import relay.features
from relay.control.sessions import SessionInfo, live
from relay.home import Home
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
from relay.messaging.ledger import Ledger
from relay.recording.store import recordings
from relay.session.features import FEATURES, PARTS
from session.fake_agent import FakeAgent, project
from support import LONG, Relay, session_patch, wait_until

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
    """The last test leaves out each of them once."""
    assert FEATURES.keys() > ESSENTIAL and len(FEATURES) >= 25


def test_a_part_of_the_session_has_one_type_in_all_features() -> None:
    """Features get it by its name alone."""
    types = defaultdict[str, set[object]](set)
    for module in pkgutil.iter_modules(relay.features.__path__, "relay.features."):
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and kind.__module__ == module.name and not kind.__name__.startswith("_"):
                for name, parameter in inspect.signature(kind).parameters.items():
                    types[name].add(parameter.annotation)
    assert types.keys() >= PARTS.keys()
    assert {name: found for name, found in types.items() if name in PARTS and len(found) > 1} == {}


@pytest.fixture(scope="module")
def folder(shared: Relay) -> Path:
    """Return a project with handlers and rules."""
    rules = {"hooks": {"SessionStart": [{"type": "command", "command": "echo ruled"}]}}
    folder = project(shared, CONFIG)
    (folder / "hooks.json").write_text(json.dumps(rules))
    return folder


CHECKED = {
    *("handlers", "rules", "derived rules", "bus", "mailbox", "injector", "sender", "memory", "audit"),
    "recorder",
}
"""What the test below asks of each session needs these."""

REST = sorted(FEATURES.keys() - ESSENTIAL - CHECKED)
LEFT_OUT = [
    *([feature] for feature in sorted(CHECKED)),
    *([feature] for feature in REST if LONG),
    *(REST[n :: len(REST) // 3] for n in range(len(REST) // 3) if not LONG),
]
"""One at a time; without RELAY_LONG, three of the others at once."""


@pytest.mark.parametrize("features", LEFT_OUT, ids=", ".join)
def test_a_session_works_without_any_of_its_features(
    shared: Relay, folder: Path, features: list[str]
) -> None:
    relay, rules, name = shared, folder / "hooks.json", f"without-{features[0].replace(' ', '-')}"
    alice, log = FakeAgent(relay, name), relay.home / "state" / "session.log"
    before = log.read_text() if log.exists() else ""
    probes = alice.folder / "probes"
    probes.touch()
    without = session_patch(
        f"from relay.session.features import FEATURES\nfor each in {features!r}:\n    del FEATURES[each]"
    )
    alice.wrap(options=("--rules", rules), cwd=folder, env={"PROBES": str(probes), **without})

    def works(needs: set[str], condition: Callable[[], object]) -> None:
        """Wait for `condition` unless it needs what is left out: no event reports what does not happen."""
        assert needs <= CHECKED
        if not needs & {*features}:
            wait_until(condition, message=alice.log)

    home = Home.from_env(relay.environment)

    def states() -> list[str]:
        with Ledger(home.ledger) as ledger:
            return [str(each.message.state) for each in ledger.messages() if each.message.to == name]

    def running() -> list[SessionInfo]:
        return [session for session in live(home) if session.name == name]

    alice.say("@probe:first x\n@memory:save a thing\n")
    works({"handlers"}, lambda: probes.read_text() == "first\n")
    works({"rules", "derived rules"}, lambda: "ruled" in json.dumps(alice.events("hook_fired")))
    relay("send", name, "hello", check=features != ["bus"])  # without it, no ledger knows its name
    works({"bus", "mailbox", "injector", "handlers", "sender"}, lambda: "hello" in alice.received)
    works({"bus", "mailbox", "injector", "handlers", "sender"}, lambda: "injected" in states())
    works(
        {"handlers", "memory"},
        lambda: MemoryStore(EmbeddedBackend(home.memory), "default", name).search("a thing"),
    )
    works({"audit", "injector"}, lambda: alice.events("injection"))
    works({"recorder"}, lambda: recordings(home.recordings, name))
    ((session,), explained) = running(), relay("explain", name).stdout
    assert session.agent == "generic" and name in explained
    alice.exit(3)
    wait_until(alice.ended, message=alice.log)
    wait_until(lambda: not running())
    assert not log.exists() or "Traceback" not in log.read_text().removeprefix(before), log.read_text()
