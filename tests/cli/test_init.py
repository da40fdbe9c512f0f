"""`relay init`: the files it writes, which relay accepts, and those that it leaves unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from relay.cli.init import starter
from relay.hooks.config_file import load, read
from relay.hooks.registry import Registry
from relay.rules import rule_file
from relay.supervision import fleet_file, schema
from support import Relay

FILES = ("relay.toml", "relay.config.py", "hooks.json")


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which claude and codex are installed, and no other agent."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("claude", "codex"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_fleet_of_the_installed_agents_is_written(
    relay: Relay, tmp_path: Path, installed: dict[str, str]
) -> None:
    folder = tmp_path / "new" / "my shop"
    result = relay("init", folder, env=installed)
    assert result.stdout.splitlines() == [
        f"Wrote {folder}/relay.toml",
        "  Its agents: Claude, Codex.",
        f"Wrote {folder}/relay.config.py",
        f"Wrote {folder}/hooks.json",
        "",
        "Next, edit them as you like. Then let relay use them:",
        f"  cd '{folder}' && relay trust",
    ]
    path = folder / "relay.toml"
    fleet = fleet_file.parse(path, path.read_bytes())
    assert {name: agent.command for name, agent in fleet.agents.items()} == {
        "Claude": ("claude",),
        "Codex": ("codex",),
    }
    registry = Registry()
    assert load(read(folder / "relay.config.py"), registry).printed == ""
    rules, warnings = rule_file.parse(folder / "hooks.json", (folder / "hooks.json").read_bytes(), "project")
    assert (len(rules), warnings) == (1, [])
    trusted = relay("trust", cwd=folder)
    assert [f"Trusted {folder / name} (" in trusted.stdout for name in FILES] == [True] * 3
    assert (trusted.stderr, "Warning" in trusted.stdout) == ("", False)


def test_the_comments_show_defaults_and_valid_lines(tmp_path: Path) -> None:
    """Each key with a default shows it, and each line is valid once uncommented."""
    text = starter({"Claude": "claude"})
    shown = dict(re.findall(r"^# (\w+) = (.*?) +# ", text, re.MULTILINE))
    keys = schema.FLEET_KEYS | schema.AGENT_KEYS
    assert shown.keys() == keys.keys() - {"run", "task_file"}
    assert {name: keys[name].default for name in shown if keys[name].default} == {
        name: value for name, value in shown.items() if keys[name].default
    }
    bare = re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    fleet = fleet_file.parse(tmp_path / "relay.toml", bare.encode())
    assert (fleet.team, fleet.agents["Claude"].worktree is not None) == ("web", True)


def test_without_installed_agents_there_is_an_example(tmp_path: Path) -> None:
    text = starter({})
    assert fleet_file.parse(tmp_path / "relay.toml", text.encode()).agents == {}
    shown = text[text.index("# [agents.Lead]") :].replace("# ", "")
    assert fleet_file.parse(tmp_path / "relay.toml", shown.encode()).agents["Lead"].command == ("claude",)


def test_the_example_handlers_are_valid(relay: Relay, tmp_path: Path, installed: dict[str, str]) -> None:
    relay("init", cwd=tmp_path, env=installed)
    path = tmp_path / "relay.config.py"
    code = re.sub(r"^# ?", "", path.read_text(), flags=re.MULTILINE)
    path.write_text(code)
    loaded = load(read(path), Registry())
    labels = [handler.label for handler in loaded.registry.handlers()]
    assert labels == ["@deploy", "on session_start"]


def test_the_example_rule_refuses_only_a_forced_push(
    relay: Relay, tmp_path: Path, installed: dict[str, str]
) -> None:
    relay("init", cwd=tmp_path, env=installed)
    rules = tmp_path / "hooks.json"
    for command, refused in (
        ("git push --force", True),
        ("git status && git push -f origin main", True),
        ("git push origin fix-foo", False),
        ("git push", False),
    ):
        event = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": str(tmp_path)}
        run = relay("hooks", "test", "PreToolUse", "--rules", rules, input=json.dumps(event))
        assert ("Ask them." in run.stdout) == refused, run.stdout


def test_no_file_is_overwritten(relay: Relay, tmp_path: Path, installed: dict[str, str]) -> None:
    (tmp_path / "relay.toml").write_text("# mine\n")
    (tmp_path / "hooks.json").symlink_to(tmp_path / "nowhere.json")
    result = relay("init", cwd=tmp_path, env=installed)
    assert result.stdout.splitlines()[:3] == [
        "Left unchanged: relay.toml",
        "Wrote relay.config.py",
        "Left unchanged: hooks.json",
    ]
    assert result.stdout.endswith("\n  relay trust\n")
    assert (tmp_path / "relay.toml").read_text() == "# mine\n"
    assert not (tmp_path / "nowhere.json").exists()


def test_a_path_that_cannot_be_a_folder_is_refused(relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = relay("init", tmp_path / "file", check=False)
    assert (result.returncode, "file: is not a folder. Name another." in result.stderr) == (1, True)
    result = relay("init", "/proc/nowhere", check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert "cannot be written" in result.stderr
