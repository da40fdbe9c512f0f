"""Homes and working folders may have any name that the file system allows."""

from __future__ import annotations

import os

import pytest

from session.fake_agent import FakeAgent, messages, ps
from support import Relay, wait_until

NAMES = {
    "spaces": "my  home",
    "quotes": 'it\'s "home"',
    "shell": "$HOME;`x`&|*",
    "accent": "jos\u00e9",
    "CJK": "\u5bb6",
    "emoji": "\U0001f3e1",
    "not UTF-8": os.fsdecode(b"caf\xe9"),
    "backslash": "a\\u00e9",
    "newline": "a\nb",
}


@pytest.mark.parametrize("home", NAMES.values(), ids=NAMES, indirect=True)
def test_agents_talk_from_any_home_and_folder(relay: Relay) -> None:
    """C2, C3."""
    folder = relay.home / f"work {relay.home.name}"
    folder.mkdir()
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    wait_until(lambda: ps(relay)[0]["bus"].startswith("connected"), message=alice.log)
    relay("send", "Alice", "hello", "--wait", "30", cwd=folder)
    alice.receives("hello")
    assert ps(relay)[0]["cwd"] == str(folder)
    assert [message["body"] for message in messages(relay)] == ["hello"]
    assert "FAIL" not in relay("doctor", cwd=folder, check=False).stdout
