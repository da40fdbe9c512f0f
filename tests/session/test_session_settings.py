"""relay.toml: which settings a session uses, and how it reports errors in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.fake_agent import FakeAgent, settings
from support import Relay, wait_until

pytestmark = pytest.mark.own_team


def folder_with(relay: Relay, text: str) -> Path:
    folder = relay.home / "project"
    folder.mkdir()
    (folder / "relay.toml").write_text(text)
    return folder


def test_a_projects_settings_override_the_users(relay: Relay) -> None:
    settings(relay, 'prefix = "+"\n')
    folder = folder_with(relay, 'prefix = "%"\n')
    bob = FakeAgent(relay, "Bob").wrap()
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@relay:Bob no\n+relay:Bob no\n%relay:Bob by the project")
    bob.receives("by the project")
    bob.say("@relay:Alice no\n+relay:Alice by the user")
    alice.receives("by the user")
    assert len(bob.texts()) == len(alice.texts()) == 1


@pytest.mark.parametrize(
    ("whose", "text", "place", "words"),
    [
        ("user", "idle_seconds = 3\nprefix = @\n", ":2:", "(column 10)"),
        ("project", "idel_seconds = 3\n", ":1:", "Did you mean idle_seconds?"),
    ],
    ids=["syntax", "name"],
)
def test_an_error_is_reported_with_its_line_and_the_session_runs(
    relay: Relay, whose: str, text: str, place: str, words: str
) -> None:
    """All errors are in tests/test_settings.py."""
    path = relay.home / "config" / "relay.toml"
    cwd = None
    if whose == "user":
        settings(relay, text)
    else:
        cwd = folder_with(relay, text)
        path = cwd / "relay.toml"
    alice = FakeAgent(relay, "Alice").wrap(cwd=cwd)
    notice = alice.notice(words)
    assert notice.startswith(f"{path}{place} ")
    assert notice.endswith("relay ignores the whole file.")
    alice.say("@memory:save the session runs")
    alice.receives("Saved to memory")


def test_an_error_in_the_project_file_leaves_the_users_settings_in_force(relay: Relay) -> None:
    settings(relay, 'prefix = "+"\n')
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder_with(relay, "prefix = \n"))
    alice.notice("relay ignores the whole file.")
    alice.say("+memory:save with a plus")
    alice.receives("Saved to memory")


def test_an_untrusted_project_can_set_only_harmless_settings(relay: Relay) -> None:
    folder = folder_with(relay, 'prefix = "%"\ninject = "always"\nbroker = "mqtt://127.0.0.1:1"\n')
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    notice = alice.notice("ignored, because the file is not trusted")
    assert notice.startswith(f"{folder}/relay.toml: broker, inject ignored")
    assert f"`relay trust {folder}/relay.toml`" in notice
    alice.say("%memory:save the prefix counts")
    alice.receives("Saved to memory")
    wait_until(lambda: any("connected to mqtt" in e["status"] for e in alice.events("bus")))


def test_a_trusted_project_can_set_everything_until_it_changes(relay: Relay) -> None:
    folder = folder_with(relay, 'inject = "never"\n')
    relay("trust", folder / "relay.toml")
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    wait_until(lambda: alice.state() == "unsafe")
    assert not alice.events("notice")
    with open(folder / "relay.toml", "a") as file:
        file.write("# changed\n")
    bob = FakeAgent(relay, "Bob").wrap(cwd=folder)
    bob.notice("inject ignored, because the file is not trusted")
    wait_until(lambda: bob.state() == "ready")


def test_inject_always_types_even_into_shells(relay: Relay) -> None:
    settings(relay, 'inject = "always"\nstop_seconds = 0.1\n')
    relay("wrap", "-d", "-n", "Bob", "sh")
    done = relay("send", "--wait", "20", "Bob", "hello")
    assert "was delivered to Bob." in done.stdout
