"""The title of a user's terminal: it names the attached agent, and is restored."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from session.fake_agent import ps, settings
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

SAVE, RESTORE = b"\x1b[22;0t", b"\x1b[23;0t"

AGENT = (
    "sh",
    "-c",
    r"""printf '\033]0;own\007ready\n'; while read -r title; do printf "\033]2;$title\007"; done""",
)
"""Sets a title, and then each line that it reads as the next one."""


def test_the_title_names_the_agent_and_is_restored(relay: Relay, wrap: Open, terminal: Open) -> None:
    first = wrap("-n", "Alice", "--agent", "claude", *AGENT)
    first.wait(lambda: first.screen.title == "Alice: own", "the title names the agent")
    assert bytes(first.output).count(SAVE) == 1
    first.type("next\r")
    first.wait(lambda: first.screen.title == "Alice: next", "the title follows the agent's own")
    second = terminal(sys.executable, "-m", "relay", "attach", "--takeover", "Alice")
    second.wait(lambda: second.screen.title == "Alice: next", "the other terminal names the agent, too")
    first.see("press Enter")
    first.type("\r")
    assert first.end() == 0
    for each in (first, second):
        if each is second:
            second.type(b"\x1dd")
            assert second.end() == 0
        assert bytes(each.output).count(SAVE) == bytes(each.output).count(RESTORE) == 1
        assert bytes(each.output).rindex(RESTORE) > bytes(each.output).rindex(b"\x1b]2;Alice")


def test_the_title_and_the_help_count_what_is_unread(relay: Relay, wrap: Open) -> None:
    alice = wrap("-n", "Alice", "--agent", "claude", *AGENT)
    alice.wait(lambda: alice.screen.title == "Alice: own", "the title names the agent")
    relay("send", "--from", "ci", "you", "hello")
    alice.wait(lambda: alice.screen.title == "(1) Alice: own", "the title counts it")
    alice.type(b"\x1d?")
    alice.wait_for("1 unread in your inbox")
    alice.type("x")
    relay("inbox", "done", "--all")
    alice.wait(lambda: alice.screen.title == "Alice: own", "nothing is unread")


def test_the_title_is_restored_in_a_terminal_that_cannot_be_reopened(terminal: Open) -> None:
    """A shim cannot reopen /dev/tty, nor the terminal of another user after `su`."""
    wrap = shlex.join([sys.executable, "-m", "relay", "wrap", "-n", "Alice", "--agent", "claude", *AGENT])
    outer = terminal("sh", "-c", f"exec {wrap} < /dev/tty > /dev/tty")
    outer.wait(lambda: outer.screen.title == "Alice: own", "the title names the agent")
    outer.type(b"\x1dd")
    assert outer.end() == 0
    assert bytes(outer.output).count(SAVE) == bytes(outer.output).count(RESTORE) == 1


def test_a_new_session_does_not_save_relays_title_as_the_users(relay: Relay, wrap: Open) -> None:
    alice = wrap("-n", "Alice", "--agent", "claude", *AGENT)
    alice.wait(lambda: alice.screen.title == "Alice: own", "the title names the agent")
    relay("reload", "Alice")
    alice.type("after\r")
    alice.wait(lambda: alice.screen.title == "Alice: after", "the new session names the agent")
    alice.type(b"\x1dd")
    assert alice.end() == 0
    assert bytes(alice.output).count(SAVE) == bytes(alice.output).count(RESTORE) == 1


def test_the_title_is_unchanged_if_so_configured_and_for_plain_programs(relay: Relay, wrap: Open) -> None:
    settings(relay, 'title = "never"\n')
    unnamed = wrap("-n", "Alice", "--agent", "claude", *AGENT)
    plain = wrap("-n", "Bob", *AGENT, env={"RELAY_HOME": str(relay.home)})
    for each in (unnamed, plain):
        each.wait(lambda each=each: each.screen.title == "own", "its own title")
        each.type("next\r")
        each.wait(lambda each=each: each.screen.title == "next", "its own title, changed")
    # The shim shows the agent's output before its session has read the settings.
    wait_until(lambda: {"Alice", "Bob"} <= {row["name"] for row in ps(relay)})
    settings(relay, "")
    named = wrap("-n", "Cy", *AGENT)
    named.wait(lambda: named.screen.title == "own", "a plain program's own title")
    wait_until(lambda: "Cy" in relay("ps").stdout)
    for each in (unnamed, plain, named):
        each.type(b"\x1dd")
        assert each.end() == 0
        assert SAVE not in each.output and b"\x1b]2;Alice" not in each.output
