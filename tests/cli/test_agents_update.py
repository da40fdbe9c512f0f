"""`relay agents update` and `reset`: installing newer pattern files, and returning to the shipped ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agents.hooked import Claude
from relay import data
from relay.agents import catalog, updates
from relay.home import Home
from support import Relay, wait_until

SHIPPED = data.directory("patterns")
READY = """
[[states]]
name = "hasty"
state = "ready"
priority = 500
region = "screen"
any = ['.']
"""


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return a folder with claude's pattern file, which lists one more checked version."""
    folder = tmp_path / "newer"
    folder.mkdir()
    _edit(folder, "claude", 'checked = ["', 'checked = ["999.0.1", "')
    return folder


def _edit(folder: Path, name: str, old: str = "", new: str = "", more: str = "") -> Path:
    path = folder / f"{name}.toml"
    text = (path if path.exists() else SHIPPED / path.name).read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1) + more, "utf-8")
    return path


def _checked(relay: Relay, name: str = "claude") -> tuple[str, ...]:
    return catalog.load(name, Home.from_env(relay.environment)).checked


def test_a_newer_file_is_checked_installed_and_reset(relay: Relay, newer: Path) -> None:
    shipped = _checked(relay)
    done = relay("agents", "update", newer)
    assert '+checked = ["999.0.1", ' in done.stdout and "Installed: claude." in done.stdout
    number = len(list((SHIPPED / "screens" / "claude").iterdir()))
    assert f"{number} recorded screens of {number} as good as before" in done.stdout
    assert _checked(relay) == ("999.0.1", *shipped)
    path = Home.from_env(relay.environment).config / "patterns" / "updates" / "claude.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    (row,) = [each for each in json.loads(relay("agents", "--json").stdout) if each["name"] == "claude"]
    assert row["path"] == str(path)
    assert "nothing new" in relay("agents", "update", newer).stdout
    assert "As shipped: claude." in relay("agents", "reset").stdout
    assert _checked(relay) == shipped and not path.exists()
    assert "nothing was updated" in relay("agents", "reset").stdout


def test_the_shipped_patterns_are_not_an_update(relay: Relay) -> None:
    assert "Installed" not in relay("agents", "update", SHIPPED).stdout


def test_the_users_own_keys_override_an_update(relay: Relay, newer: Path) -> None:
    own = Home.from_env(relay.environment).config / "patterns" / "claude.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[submit]\ndelay = 1.5\n")
    relay("agents", "update", _edit(newer, "claude", "delay = 0.05", "delay = 0.9"))
    profile = catalog.load("claude", Home.from_env(relay.environment))
    assert profile.submit.delay == 1.5 and "999.0.1" in profile.checked
    relay("agents", "reset", "claude")
    assert own.exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reader = ", "reeder = ", "toml:7: unknown key 'reeder'. Did you mean reader?"),
        ("'^│? Do you want to '", "'('", "is not a regular expression"),
        ('name = "claude"\n', "", "it has no `name` key"),
        ('name = "claude"\n', 'name = "clod"\n', "they must agree"),
        ('class = "billing"', 'class = "broke"', 'class must be "rate_limited", '),
        ("(?P<reset>", "(", "has no group (?P<reset>...)"),
    ],
)
def test_one_invalid_file_blocks_the_whole_update(
    relay: Relay, newer: Path, old: str, new: str, message: str
) -> None:
    _edit(newer, "codex", "checked = ", "# More\nchecked = ")
    _edit(newer, "claude", old, new)
    failed = relay("agents", "update", newer, check=False)
    assert failed.returncode and "claude.toml" in failed.stderr and message in failed.stderr
    assert not updates.in_force(Home.from_env(relay.environment))


def test_a_missing_file_or_update_is_reported(relay: Relay, tmp_path: Path) -> None:
    assert "no pattern file" in relay("agents", "update", tmp_path, check=False).stderr
    assert "cannot read it" in relay("agents", "update", tmp_path / "x.toml", check=False).stderr
    assert "no update of 'codex'" in relay("agents", "reset", "codex", check=False).stderr


def test_an_update_that_would_type_at_the_wrong_time_is_refused_even_with_yes(
    relay: Relay, newer: Path
) -> None:
    _edit(newer, "claude", more=READY)
    refused = relay("agents", "update", "--yes", newer, check=False)
    assert refused.returncode == 1 and "Nothing was installed" in refused.stderr
    assert "recorded as working; detected as working before, as ready now" in refused.stdout
    assert "the rule 'hasty' detects that it is ready" in refused.stdout
    assert not updates.in_force(Home.from_env(relay.environment))


def test_screens_that_come_with_an_update_are_checked_too(relay: Relay, newer: Path) -> None:
    screen = newer / "screens" / "claude" / "prompting-other-new.txt"
    screen.parent.mkdir(parents=True)
    shutil.copy(next((SHIPPED / "screens" / "claude").glob("ready-*.txt")), screen)
    refused = relay("agents", "update", newer, check=False)
    assert (
        "claude/prompting-other-new.txt: recorded as prompting" in refused.stdout and refused.returncode == 1
    )
    screen.write_bytes(b"\xff")
    assert "cannot read this screen" in relay("agents", "update", newer, check=False).stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "claude",
            "'^│? Do you want to '",
            "'^│? ?Do you want to '",
            "'permission dialog', which recognises a dialog",
        ),
        (
            "claude",
            'name = "plan approval"',
            'name = "plans"',
            "'plan approval', which recognises a dialog, is g",
        ),
        ("claude", 'glyphs = "❯>"', 'glyphs = "❯>$"', "it recognises the input box differently"),
        ("opencode", "across>⇆", "across>⇅", "it recognises the options of a menu differently"),
        ("shell", 'inject = "never"', 'inject = "auto"', 'inject changes from "never" to "auto"'),
        ("claude", '["claude"]', '["claude", "bash"]', "it applies to other programs"),
        ("claude", '"--resume", "{id}"', '"--yolo", "{id}"', "it resumes conversations with other arguments"),
    ],
)
def test_a_sensitive_change_needs_yes(
    relay: Relay, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    path = _edit(tmp_path, name, old, new)
    asked = relay("agents", "update", path, check=False)
    assert message in asked.stdout and asked.returncode == 1 and "--yes" in asked.stderr
    assert not updates.in_force(Home.from_env(relay.environment))
    assert "Installed" in relay("agents", "update", "--yes", path).stdout


def test_a_new_profile_needs_yes(relay: Relay, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ncommands = ["bash", "my-agent"]\n')
    assert "a new profile, for bash, my-agent" in relay("agents", "update", path, check=False).stdout
    relay("agents", "update", "--yes", path)
    home = Home.from_env(relay.environment)
    assert catalog.for_command(["my-agent"], home).name == "mine"
    assert (
        catalog.for_command(["bash"], home).name == "shell"
    )  # a shipped profile takes precedence for its own programs


def test_generic_rules_are_checked_against_every_agents_screens(relay: Relay, tmp_path: Path) -> None:
    _edit(tmp_path, "generic", "# Rules for any program", "# The rules for any program")
    shown = relay("agents", "update", tmp_path).stdout
    assert "claude: " in shown and "generic: " in shown


def test_an_update_lapses_once_relay_ships_a_different_file(
    relay: Relay, newer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay("agents", "update", newer)
    home = Home.from_env(relay.environment)
    path = home.config / "patterns" / "updates" / "claude.toml"
    text = path.read_text("utf-8")
    path.write_text(f"{text.rstrip()[:-8]}00000000\n", "utf-8")
    assert "999.0.1" not in _checked(relay)
    assert "The update of claude is not in use" in relay("agents").stdout
    relay("agents", "update", newer)
    assert "999.0.1" in _checked(relay)
    relay("agents", "reset", "claude")
    assert not path.exists()


def test_an_agent_may_not_update_or_reset_patterns(relay: Relay, newer: Path) -> None:
    claude = Claude(relay).wrap()
    inside = {"RELAY_NAME": "Ann", "RELAY_SOCKET": str(claude.socket)}
    for arguments in (("update", newer), ("reset",)):
        refused = relay("agents", *arguments, check=False, env=inside)
        assert "an agent may not change how its own screen is read" in refused.stderr
    assert not updates.in_force(Home.from_env(relay.environment))


def test_a_running_session_applies_an_update_on_reload(relay: Relay, newer: Path) -> None:
    claude = Claude(relay).wrap(env={"AGENT_VERSION": "999.0.1"})
    claude.print(" Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel · Tab to amend\n")
    wait_until(lambda: "claude 999.0.1 was not checked" in relay("explain", "Ann").stdout)
    relay("agents", "update", newer)
    assert "claude 999.0.1 was not checked" in relay("explain", "Ann").stdout
    relay("reload", "Ann")
    wait_until(lambda: "claude 999.0.1 was checked" in relay("explain", "Ann", check=False).stdout)
    relay("agents", "reset")
    relay("reload", "Ann")
    wait_until(lambda: "claude 999.0.1 was not checked" in relay("explain", "Ann", check=False).stdout)
