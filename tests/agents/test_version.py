"""An agent's version: which program is asked, when and for how long, and the notice if it is unchecked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from agents.hooked import Claude
from relay.agents import catalog
from relay.agents.events import TextRead
from relay.agents.transcript_lines import Said
from relay.agents.version import find, unchecked
from relay.eventbus import EventBus
from relay.features import agent_version
from relay.features.agent_version import AgentVersion, ask
from relay.home import Home
from relay.lifecycle import Describe
from relay.state.events import StateChanged
from relay.storage.progress import Progress
from support import Relay, wait_until

DIALOG = " Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel · Tab to amend\n"


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("2.1.330 (Claude Code)\n", "2.1.330"),
        ("codex-cli 0.169.0\n", "0.169.0"),
        ("aider 0.86.2\n", "0.86.2"),
        ("v1.2\n", "1.2"),
        ("1.0.0-beta.3\n", "1.0.0-beta.3"),
        ("Update available!\n0.24.4\n", "0.24.4"),
        ("no such option\n", ""),
        ("127.0.0.1:80\n", "127.0.0.1"),  # the format is unknown; it is only displayed
        ("", ""),
    ],
)
def test_the_version_is_found_in_a_programs_output(printed: str, found: str) -> None:
    assert find(printed) == found


def test_only_an_unchecked_version_has_a_notice() -> None:
    assert unchecked("claude", "2.1.330", ["2.1.197"]) == (
        "claude 2.1.330 was not checked; its rules are for 2.1.197."
    )
    assert "for 1.0, 1.1." in unchecked("claude", "1.2", ["1.0", "1.1"])
    assert unchecked("claude", "2.1.197", ["2.1.197"]) == unchecked("claude", "", ["2.1.197"]) == ""


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo $1 1.2.3", "1.2.3"),
        ("echo 1.2.3; exit 1", ""),
        ("read line; echo 1.2.3", "1.2.3"),  # its input is empty
        ("read line < /dev/tty && echo 9.9.9 || echo 1.2.3", "1.2.3"),  # it has no terminal
        (
            "sleep 1000 & echo $! > left; echo 1.2.3",
            "1.2.3",
        ),  # a process that it leaves running does not matter
        ("exec /nonexistent", ""),
    ],
)
def test_a_program_is_asked_for_its_version(tmp_path: Path, script: str, found: str) -> None:
    program = _program(tmp_path / "agent", f"{script} 2> /dev/null")
    assert asyncio.run(ask(str(program), tmp_path, os.environ)) == found
    assert asyncio.run(ask(str(tmp_path / "missing"), tmp_path, os.environ)) == ""
    if (left := tmp_path / "left").exists():
        os.kill(int(left.read_text()), signal.SIGKILL)


def test_a_hung_program_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_version, "LIMIT", 0.5)
    script = f"trap '' TERM HUP; sleep 1000 & echo $! > {tmp_path}/child; echo 1.2.3; wait; wait"
    program = _program(tmp_path / "agent", script)
    assert asyncio.run(ask(str(program), tmp_path, os.environ)) == ""
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_relay_agents_shows_installed_and_checked_versions(relay: Relay, tmp_path: Path) -> None:
    (checked,) = catalog.load("codex", Home.from_env(relay.environment)).checked
    bin = tmp_path / "bin"
    _program(bin / "claude", "echo '999.0.1 (Claude Code)'")
    _program(bin / "codex", f"echo codex-cli {checked}")
    _program(bin / "pi", "echo hello")
    env = {"PATH": f"{bin}:/usr/bin:/bin"}
    shown = relay("agents", env=env).stdout
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if "inject=" in line}
    assert "installed=999.0.1" in rows["claude"] and f"installed={checked}" in rows["codex"]
    assert "installed=?" in rows["pi"] and "installed=no" in rows["aider"]
    notices = [line for line in shown.splitlines() if "was not checked" in line]
    assert [line.split(";")[0] for line in notices] == ["claude 999.0.1 was not checked"]
    listed = {each["name"]: each for each in json.loads(relay("agents", "--json", env=env).stdout)}
    claude, codex = listed["claude"], listed["codex"]
    assert (claude["installed"], claude["program"]) == ("999.0.1", str(bin / "claude"))
    assert codex["checked"] == [codex["installed"]] == [checked]
    assert (listed["pi"]["installed"], listed["aider"]["program"]) == (None, None)
    assert (listed["shell"]["checked"], listed["shell"]["installed"]) == ([], None)


def test_a_session_asks_for_the_version_once_its_agent_has_started(relay: Relay) -> None:
    claude = Claude(relay)
    asked = claude.folder / "asked"
    claude.wrap(env={"AGENT_VERSION": "999.0.1"})
    assert json.loads(relay("explain", "Ann", "--json").stdout)["version"] is None
    assert not asked.exists()
    claude.print(DIALOG)
    wait_until(lambda: "claude 999.0.1 was not checked; its rules are for" in relay("explain", "Ann").stdout)
    assert json.loads(relay("explain", "Ann", "--json").stdout)["version"] == "999.0.1"
    assert asked.read_text() == "asked\n"
    relay("reload", "Ann")
    wait_until(lambda: json.loads(relay("explain", "Ann", "--json").stdout)["version"] == "999.0.1")
    assert asked.read_text() == "asked\n"


def test_explain_says_that_the_version_was_checked(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    claude.print(DIALOG)
    wait_until(lambda: "claude 2.1.197 was checked with these rules." in relay("explain", "Ann").stdout)


def _feature(argv: list[str], folder: Path) -> tuple[EventBus, AgentVersion]:
    bus = EventBus()
    profile = catalog.load("claude", Home(folder, folder, folder))
    feature = AgentVersion(
        bus, profile, argv, folder, os.environ, Progress(folder / "progress", resumed=False)
    )
    bus.add(feature)
    return bus, feature


async def _version(bus: EventBus) -> object:
    (facts,) = await bus.ask_all(Describe(brief=False))
    return facts["version"]


def test_the_version_in_the_agents_record_overrides_the_installed_one(tmp_path: Path) -> None:
    program = _program(tmp_path / "claude", "echo 2.0.0")

    async def run() -> None:
        bus, feature = _feature([str(program)], tmp_path)
        bus.publish(StateChanged("working", "ready"))
        await feature.run()
        assert await _version(bus) == "2.0.0"
        bus.publish(TextRead((Said("hi", "1", version="1.9.9"), Said("ho", "2"))))
        await asyncio.sleep(0)
        assert await _version(bus) == "1.9.9"
        await feature.run()
        assert await _version(bus) == "1.9.9"

    asyncio.run(run())


def test_a_script_that_starts_the_agent_is_not_run_again(tmp_path: Path) -> None:
    """`relay wrap --agent claude SCRIPT`: the script may do anything, so it runs only once."""
    script = _program(tmp_path / "start", f"touch {tmp_path}/ran")

    async def run() -> None:
        bus, feature = _feature([str(script)], tmp_path)
        bus.publish(StateChanged("working", "ready"))
        await feature.run()
        assert await _version(bus) is None

    asyncio.run(run())
    assert not (tmp_path / "ran").exists()
