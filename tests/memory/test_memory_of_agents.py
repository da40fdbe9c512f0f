"""Wrapped agents save, share, search and forget memories by directives."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

# Prints each directive and waits for relay's answer; `{id}` is the id in the first answer.
AGENT = """
import json, os, re, subprocess, sys
answers = []
for directive in json.load(open(sys.argv[1])):
    id = re.search("memory as (\\\\w+)", answers[0])[1] if answers else ""
    print(directive.replace("{id}", id), flush=True)
    answer, more = "", True
    while more:
        answer += sys.stdin.readline()
        part = re.findall("\\[relay \\w+ (\\d+)/(\\d+)", answer)  # each line is one part
        more = "[/relay" not in answer or (part and part[-1][0] != part[-1][1])
    answers.append(answer)
own = subprocess.run(["relay", "memory", "list", "--json"], capture_output=True, text=True, check=True)
json.dump({"answers": answers, "own": json.loads(own.stdout)}, open(sys.argv[2] + ".part", "w"))
os.rename(sys.argv[2] + ".part", sys.argv[2])
sys.stdin.read()
"""


def converse(
    relay: Relay, folder: Path, name: str, *directives: str
) -> tuple[list[str], list[dict[str, str]]]:
    """Wrap an agent that prints `directives`; return relay's answers and its `relay memory list`."""
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "say").write_text(json.dumps(directives))
    path = f"{Path(sys.executable).parent}:{relay.environment['PATH']}"
    agent: list[str | Path] = [sys.executable, folder / "agent.py", folder / "say", folder / "result"]
    relay("wrap", "-d", "-n", name, *agent, env={"PATH": path})
    wait_until((folder / "result").exists, message=lambda: relay("events").stdout)
    result = json.loads((folder / "result").read_text())
    return result["answers"], result["own"]


def test_an_agent_has_memories_and_sees_those_of_others_that_are_shared(relay: Relay, tmp_path: Path) -> None:
    """R47, R48, R63: the user, too, sees only shared memories."""
    answers, own = converse(
        relay,
        tmp_path / "alice",
        "Alice",
        "@memory:save User prefers dark mode",
        "@memory:share Deploys need two reviews",
        "@memory:search which mode is preferred?",
        "@memory:forget {id}",
        "@memory:list",
        "@memory:save The mat hides a key",
    )
    saved, shared, found, forgotten, listed, _ = answers
    assert "Saved to memory as" in saved
    assert "for the whole team" in shared
    assert "User prefers dark mode" in found and "Deploys" not in found
    assert "Forgot" in forgotten
    assert "Deploys need two reviews" in listed and "dark mode" not in listed
    both = ["The mat hides a key", "Deploys need two reviews"]
    assert [memory["text"] for memory in own] == both
    _, own = converse(relay, tmp_path / "bob", "Bob", "@memory:search key or reviews")
    assert [(memory["text"], memory["agent"]) for memory in own] == [("Deploys need two reviews", "Alice")]
    assert [memory["text"] for memory in json.loads(relay("memory", "list", "--json").stdout)] == both[1:]
    of_alice = json.loads(relay("memory", "list", "--json", "--name", "alice").stdout)
    assert [memory["text"] for memory in of_alice] == both


def test_a_locked_store_delays_only_the_agent_that_uses_it(relay: Relay) -> None:
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    other = sqlite3.connect(relay.home / "state" / "memory.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    alice.say("@memory:save The mat hides a key\n@memory:list")
    wait_until(lambda: alice.events("directive"))
    assert [row["name"] for row in ps(relay)] == ["Alice", "Bob"], "its session must still answer"
    bob.say("@relay:Alice the session is running")
    alice.receives("the session is running")
    assert "Saved to memory" not in alice.received
    other.execute("COMMIT")
    other.close()
    alice.receives("The latest memories")
    assert alice.received.index("Saved to memory") < alice.received.index("The latest memories"), "in order"
