"""`relay peek`: the screen of a running agent, as text or in colour, and nothing more."""

from __future__ import annotations

import json

from session.fake_agent import FakeAgent
from support import Relay, wait_until

DRAWN = (
    "\x1b]0;a title\x07\x1b[2J\x1b[H\x1b[1;32mgreen\x1b[0m on\x1b[3;5Hrow three\x1b]52;c;aGk=\x07\x1b[?1000h"
)


def test_the_screen_is_shown_as_text(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say(DRAWN, end="")
    wait_until(lambda: "row three" in relay("peek", "Alice").stdout)
    assert relay("peek", "alice").stdout == "green on\n\n    row three\n"
    seen = json.loads(relay("peek", "--json", "Alice").stdout)
    assert seen.keys() == {"columns", "rows", "lines"} and len(seen["lines"]) == seen["rows"]
    assert seen["lines"][0] == "green on"


def test_ansi_keeps_only_colours(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say(DRAWN, end="")
    wait_until(lambda: "row three" in relay("peek", "Alice").stdout)
    coloured = relay("peek", "--ansi", "Alice").stdout
    assert coloured == "\x1b[1m\x1b[38;5;2mgreen\x1b[0m on\n\n    row three\n"


def test_an_unknown_name_is_reported(relay: Relay) -> None:
    run = relay("peek", "Nobody", check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert "there is no session called 'Nobody'" in run.stderr
