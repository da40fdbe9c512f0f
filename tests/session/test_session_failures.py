"""A session reports why its agent or a turn failed, with real programs and killed sessions."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agents.hooked import Claude
from session.fake_agent import FakeAgent
from session.test_session_replaced import entry, replaced
from support import Relay, wait_until
from terminal.emulator import Emulator

pytestmark = pytest.mark.own_team

TUI = Path(__file__).parent.parent / "fakes" / "session_tui.py"
LIMIT = "You've hit your session limit · resets 8pm (America/New_York)"
PROFILE = """
name = "known"
reader = "screen"
decoration = "^● "
error_mark = '^■ '

[input]
glyphs = ">"
bullets = "●"

[[states]]
name = "spinner"
state = "working"
region = "bottom 1"
priority = 50
all = ["^busy"]

[[states]]
name = "error"
state = "failed"
region = "bottom 4"
priority = 40
all = ["^■ ", "^> ?$"]

[[errors]]
class = "rate_limited"
match = ["^No more today"]
reset = ["until (?P<reset>.+)"]
"""
NO_MORE = "\r\n■ No more today, until\r\n  8pm (America/New_York)\r\n\r\n> "
CLEARED = "\x1b[H\x1b[J> "


class KnownTui(FakeAgent):
    """A TUI whose live region the test controls."""

    def command(self, *arguments: str) -> list[str | Path]:
        return ["--agent", "known", "--", sys.executable, "-S", TUI, self.folder, *arguments]

    def draw(self, bottom: str) -> None:
        self._pull({"bottom": bottom})

    def work(self) -> None:
        self.draw("busy")
        wait_until(lambda: self.state() == "working", message=self.log)


def explained(relay: Relay, name: str) -> dict[str, Any] | None:
    """Return the last failure from `relay explain --json`."""
    found: dict[str, Any] | None = json.loads(relay("explain", "--json", name).stdout)["failure"]
    return found


def test_a_failure_reported_by_a_hook_is_logged_once(relay: Relay) -> None:
    """It remains the last failure, even for the next session, until a turn succeeds."""
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup")
    claude.fire("UserPromptSubmit", prompt="do it")
    assert explained(relay, "Ann") is None
    claude.fire("StopFailure", error="rate_limit", last_assistant_message=LIMIT)
    (failed,) = wait_until(lambda: claude.events("agent_failed"))
    assert (failed["class"], failed["text"], failed["source"]) == ("rate_limited", LIMIT, "hook")
    assert failed["reset_at"] > failed["time"]
    before = entry(relay, "Ann")
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    expected = {"class": "rate_limited", "text": LIMIT, "reset_at": failed["reset_at"], "source": "hook"}
    assert explained(relay, "Ann") == expected
    said = relay("explain", "Ann", env={"TZ": "America/New_York"}).stdout
    assert f'Its last failure is rate_limited, from its hook: "{LIMIT}". The limit resets on ' in said
    resets = datetime.fromtimestamp(failed["reset_at"], ZoneInfo("America/New_York"))
    assert resets.strftime(", %H:%M E") in said  # 20:00, but for some minutes after that
    claude.fire("UserPromptSubmit", prompt="again")
    claude.fire("Stop", last_assistant_message="Done.")
    wait_until(lambda: explained(relay, "Ann") is None)
    assert len(claude.events("agent_failed")) == 1


def test_a_failure_on_the_screen_is_logged_once(relay: Relay) -> None:
    """However often it is redrawn. A quotation does not count."""
    folder = relay.home / "config" / "patterns"
    folder.mkdir(parents=True)
    (folder / "known.toml").write_text(PROFILE)
    alice = KnownTui(relay, "Alice").wrap()
    wait_until(lambda: alice.state() == "ready", message=alice.log)
    alice.work()
    alice.say("No more today, until 8pm (America/New_York)\n■ No more today, until 9pm")
    alice.draw("")
    wait_until(lambda: alice.state() == "ready", message=alice.log)
    alice.work()
    alice.draw(NO_MORE)
    (failed,) = wait_until(lambda: alice.events("agent_failed"), message=alice.log)
    assert (failed["class"], failed["source"]) == ("rate_limited", "screen")
    assert failed["text"] == "No more today, until 8pm (America/New_York)"
    assert failed["reset_at"] > failed["time"]
    command = [sys.executable, "-m", "relay", "attach", "Alice"]
    user = Emulator(command, {**relay.environment, "PYTHONSAFEPATH": "1"}, cwd=relay.home)
    with closing(user):
        user.wait_for("No more today")
        for columns in (60, 90):
            user.resize(columns, 30)
            user.wait(lambda: alice.state() in {"failed", "ready"})
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    alice.work()  # so that the session has read everything again
    failure = explained(relay, "Alice")
    assert failure is not None and failure["reset_at"] == failed["reset_at"]
    alice.draw(CLEARED)  # an error that stays on the screen holds for a minute
    wait_until(lambda: alice.state() == "ready", message=alice.log)
    assert len(alice.events("agent_failed")) == 1


def test_a_limit_printed_before_a_failing_exit_is_a_failure(relay: Relay) -> None:
    """`claude -p` prints its limit on a line, and exits with 1."""
    claude = Claude(relay).wrap()
    claude.print(f"{LIMIT}\n")
    claude.exit(1)
    assert [end["code"] for end in wait_until(lambda: claude.events("session_end"))] == [1]
    (failed,) = claude.events("agent_failed")
    assert (failed["class"], failed["source"], failed["text"]) == ("rate_limited", "exit", LIMIT)


def test_a_limit_printed_before_a_successful_exit_is_not_a_failure(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    claude.print(f"{LIMIT}\n")
    claude.exit()
    wait_until(lambda: claude.events("session_end"))
    assert claude.events("agent_failed") == []
