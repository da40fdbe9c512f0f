"""A session that relay recorded itself, replayed: while it runs, afterwards, and by its own agent."""

from __future__ import annotations

import json
import sys

from support import Relay, wait_until

AGENT = f"""\
echo hello from alice
echo '@relay:Bob replays are kept'
read line
{sys.executable} -m relay replay --json
{sys.executable} -m relay replay Bob
"""


def test_a_real_session_is_replayed_with_what_happened_beside_it(relay: Relay) -> None:
    """R42: the archive of a session, written by it and read by the replay."""
    relay("wrap", "-d", "-n", "Bob", "sh", "-c", "echo bob; cat > /dev/null")
    wait_until(lambda: "bob" in relay("replay", "Bob", check=False).stdout)
    relay("wrap", "-d", "-n", "Alice", "sh", "-c", AGENT)
    wait_until(lambda: "hello from alice" in relay("replay", "Alice", check=False).stdout)
    listed = json.loads(relay("replay", "--json").stdout)
    assert [(each["name"], each["running"]) for each in listed] == [("Bob", True), ("Alice", True)]
    assert listed[1]["command"].startswith("sh -c ")

    wait_until(lambda: "directive" in relay("replay", "Alice", "--events").stdout)
    moments = [
        json.loads(line) for line in relay("replay", "Alice", "--events", "--json").stdout.splitlines()
    ]
    kinds = [each["kind"] for each in moments]
    assert kinds[0] == "session_start" and "directive" in kinds
    (directive,) = [each for each in moments if each["kind"] == "directive"]
    assert directive["text"] == "@relay:Bob replays are kept"
    (hit,) = relay("replay", "Alice", "--search", "replays are kept", "--json").stdout.splitlines()
    assert abs(json.loads(hit)["at"] - directive["at"]) < 10

    relay("send", "Alice", "go on")  # its `read` takes it, and it looks at the recordings itself
    wait_until(lambda: "own recordings only" in relay("replay", "Alice").stdout)
    said = relay("replay", "Alice").stdout
    assert '"name": "Alice"' in said and '"name": "Bob"' not in said
    wait_until(lambda: not json.loads(relay("replay", "--json").stdout)[1]["running"])
    assert "session_end" in relay("replay", "Alice", "--events").stdout
