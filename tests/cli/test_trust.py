"""`relay trust`: what it shows, and what it refuses."""

import json
import os
from pathlib import Path

import pytest

from relay.home import Home
from relay.hooks.config_file import choose
from relay.hooks.trust import Trust
from relay.settings import load
from relay.storage import journal
from relay.supervision import fleet_file
from support import Relay


def test_trust_shows_the_file_and_trusts_it(relay: Relay, home: Path, tmp_path: Path):
    path = tmp_path / "relay.config.py"
    path.write_text("x = 1\ny = '\u202e\x1b[2J'\n")
    result = relay("trust", cwd=tmp_path)
    assert "   1  x = 1\n" in result.stdout
    assert "   2  y = '<U+202E>␛[2J'" in result.stdout
    assert f"Trusted {path} (2 lines, sha256 " in result.stdout
    assert "This does not cover the modules it imports." in result.stdout
    assert choose(Home.from_env({"RELAY_HOME": str(home)}), tmp_path).files != ()


def test_a_file_can_be_named(relay: Relay, tmp_path: Path):
    path = tmp_path / "other.py"
    path.write_text("")
    assert f"Trusted {path} (0 lines" in relay("trust", path).stdout


def test_without_a_file_the_error_has_advice(relay: Relay, tmp_path: Path):
    (tmp_path / ".git").mkdir()
    result = relay("trust", cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert "there is no relay.config.py, no relay.toml and no hooks.json in this folder" in result.stderr
    assert "Name the file to trust." in result.stderr


def test_a_projects_rules_are_trusted_with_its_handlers(relay: Relay, tmp_path: Path):
    """R12"""
    (tmp_path / ".git").mkdir()
    (tmp_path / "hooks.json").write_text('{"hooks": {"Stop": {"type": "command", "command": "x"}}}')
    assert "This does not cover the programs they start." in relay("trust", cwd=tmp_path).stdout
    (tmp_path / "relay.config.py").write_text("")
    both = relay("trust", cwd=tmp_path).stdout
    assert f"Trusted {tmp_path / 'relay.config.py'}" in both and f"Trusted {tmp_path / 'hooks.json'}" in both


def test_warnings_about_rules_are_shown_when_they_are_trusted(relay: Relay, tmp_path: Path):
    """R12, R17: in the words of `relay hooks list`."""
    (tmp_path / ".git").mkdir()
    path = tmp_path / "hooks.json"
    for content, runs in (
        ('{"hooks": {"Stop": [{"type": "command", "command": "true"}, {"type": "http"}]}}', True),
        ('{"hooks": {"Stop": [{"type": "http"}]}}', False),
    ):
        path.write_text(content)
        output = relay("trust", path.name, cwd=tmp_path).stdout
        (warning,) = [line for line in output.splitlines() if line.startswith("Warning: ")]
        assert warning in relay("hooks", "list", cwd=tmp_path).stdout.splitlines()
        assert ("Its rules take effect" in output) == runs
        assert ("None of its rules can run." in output) != runs


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("hooks.json", '{"hooks": ', "{path}:1: it is not JSON: "),
        ("hooks.json", "", "{path}:1: it is not JSON"),
        ("relay.config.py", "x = 1\ndef f(:\n", "{path}:2: this is not Python: invalid syntax."),
        ("relay.config.py", "x = '\0'", "this is not Python: "),
        ("relay.toml", "idle_seconds = 5\n[agents.A]\nrun = ", "{path}:3: not valid TOML: "),
        ("relay.toml", "idle_second = 5", "{path}:1: unknown setting 'idle_second'."),
        ("relay.toml", "[agents.A]\nrun = 'x'\nrestrat = 'no'", "{path}:3: unknown key 'restrat'."),
        ("other.toml", "[agents.A]\n[agents.B]\n", "{path} has 2 mistakes:\n  {path}:1: A has no command."),
    ],
)
def test_a_file_with_errors_is_not_trusted(
    relay: Relay, home: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    result = relay("trust", path, check=False)
    assert (result.returncode, "Trusted" in result.stdout, "Traceback" in result.stderr) == (1, False, False)
    assert message.replace("{path}", str(path)) in result.stderr, result.stderr
    assert result.stderr.endswith(f"Not trusted: {path}. Correct it, then run `relay trust` again.\n")
    assert not Trust(Home.from_env({"RELAY_HOME": str(home)})).covers(path, path.read_bytes())


def test_a_projects_fleet_is_trusted_with_the_rest(relay: Relay, home: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "hooks.json").write_text('{"hooks": ')
    path = tmp_path / "relay.toml"
    path.write_text("idle_seconds = 5\n[agents.Lead]\nrun = 'claude'\n")
    result = relay("trust", cwd=tmp_path, check=False)
    assert result.returncode == 1  # for hooks.json; its valid rules are still trusted
    assert "hooks.json:1: it is not JSON" in result.stderr and "relay.toml" not in result.stderr
    assert "   3  run = 'claude'\n" in result.stdout
    assert "with the next `relay up`" in result.stdout and "Its agents: Lead." in result.stdout
    user = Home.from_env({"RELAY_HOME": str(home)})
    assert list(fleet_file.load(user, tmp_path).agents) == ["Lead"]
    assert load(user, tmp_path, Trust(user).covers)[1] == []


def test_a_missing_file_is_reported(relay: Relay, tmp_path: Path):
    result = relay("trust", tmp_path / "missing.py", check=False)
    assert result.returncode == 1
    assert "missing.py: cannot be read: No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_agent_may_not_trust_a_file_and_the_attempt_is_logged(relay: Relay, home: Path, tmp_path: Path):
    path = tmp_path / "relay.config.py"
    path.write_text("x = 1\n")
    agent = {"RELAY_SOCKET": str(home / "run" / "x.sock"), "RELAY_NAME": "Alice"}
    result = relay("trust", cwd=tmp_path, env=agent, check=False)
    assert result.returncode == 1
    assert "an agent may not trust files" in result.stderr
    assert choose(Home.from_env({"RELAY_HOME": str(home)}), tmp_path).files == ()
    user = Home.from_env({"RELAY_HOME": str(home)})
    entries = [(entry["event"], entry["operation"], entry["name"]) for entry in journal.read(user.journal)]
    assert entries == [("refused", "trust", "Alice")]


def test_rules_that_would_be_skipped_are_not_trusted(relay: Relay, tmp_path: Path):
    """B4: the user would believe that they guard something."""
    path = tmp_path / "hooks.json"
    guard = {"matcher": "Bash", "type": "command", "command": "./guard.sh"}
    for event, change, words in (
        ("PreTolUse", {}, "there is no such event. Skipped. Did you mean PreToolUse?"),
        ("PreToolUse", {"command": "", "comand": "x"}, 'Is "comand" a typo?'),
        ("PreToolUse", {"matcher": "Ba(sh"}, "is not a regular expression"),
    ):
        path.write_text(json.dumps({"hooks": {event: [guard | change]}}))
        result = relay("trust", path, check=False)
        assert result.returncode == 1 and words in result.stderr
        assert "Not trusted" in result.stderr
    path.write_text(json.dumps({"hooks": {"PreToolUse": [guard], "SubagentStop": [guard]}}))
    said = relay("trust", path).stdout
    assert "Warning: " in said  # Claude Code itself runs that one
    assert f"its command cannot start: there is no file {tmp_path}/guard.sh." in said


def test_a_path_that_is_not_a_file_is_not_read(relay: Relay, tmp_path: Path):
    """Reading a pipe would block forever."""
    os.mkfifo(tmp_path / "hooks.json")
    for path in (tmp_path / "hooks.json", Path("/dev/zero"), tmp_path):
        result = relay("trust", path, check=False)
        assert result.returncode == 1 and "is not a file" in result.stderr
