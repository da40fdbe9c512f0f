"""Replaying a session that relay recorded: while it runs, afterwards, and by its own agent."""

from __future__ import annotations

import json
import sys

from replay.casts import said, session
from support import Relay, wait_until

AGENT = f"""\
echo hello from alice
echo '@memory:save replays are kept'
until case $line in *"go on"*) ;; *) false ;; esac; do read line; done
{sys.executable} -m relay replay --json
{sys.executable} -m relay replay Bob
"""


def test_a_real_session_is_replayed_with_its_events(relay: Relay) -> None:
    """R42: the session writes its archive, and the replay reads it."""
    session(relay.home, "Bob", *said("his own"))
    relay("wrap", "-d", "-n", "Alice", "sh", "-c", AGENT)
    wait_until(lambda: "hello from alice" in relay("replay", "Alice", check=False).stdout)
    listed = json.loads(relay("replay", "--json").stdout)
    assert [(each["name"], each["running"]) for each in listed] == [("Bob", False), ("Alice", True)]
    assert listed[1]["command"].startswith("sh -c ")

    wait_until(lambda: "directive" in relay("replay", "Alice", "--events").stdout)
    events = relay("replay", "Alice", "--events", "--json").stdout.splitlines()
    moments = [json.loads(line) for line in events]
    assert moments[0]["kind"] == "session_start"
    (directive,) = [each for each in moments if each["kind"] == "directive"]
    assert directive["text"] == "@memory:save replays are kept"
    assert relay("replay", "Alice", "--search", "@memory:save replays").stdout

    relay("send", "Alice", "go on")  # its shell reads it, then lists and replays recordings itself
    wait_until(lambda: not json.loads(relay("replay", "--json").stdout)[1]["running"])
    shown = relay("replay", "Alice").stdout
    assert '"name": "Alice"' in shown and '"name": "Bob"' not in shown
    assert "only its own recordings" in shown and "his own" not in shown
    assert "session_end" in relay("replay", "Alice", "--events").stdout
