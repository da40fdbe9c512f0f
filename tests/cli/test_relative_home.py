"""Relative paths in the variables that name relay's home."""

from __future__ import annotations

import shlex
import sys

import pytest

from relay.home import Home
from session.fake_agent import ps
from support import Relay


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME"])
def test_a_relative_xdg_directory_is_ignored(variable: str) -> None:
    """The XDG specification calls it invalid."""
    home = Home.from_env({"HOME": "/home/you", variable: "relative"})
    assert home.config_dir == "/home/you/.config/relay"
    assert home.state_dir == "/home/you/.local/state/relay"
    assert home.run_dir == "/home/you/.local/state/relay/run"


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"])
def test_no_command_hangs_in_a_relative_home(variable: str, relay: Relay) -> None:
    found = {"RELAY_HOME": "", variable: "relative"}
    assert relay("ps", env=found).stdout.startswith("No session is running")


def test_an_agent_in_another_folder_finds_a_relative_home(relay: Relay) -> None:
    elsewhere = f"cd / && {shlex.join([sys.executable, '-m', 'relay', 'ps'])}"
    run = relay(
        *("wrap", "-n", "Alice", "sh", "-c", elsewhere),
        cwd=relay.home.parent,
        env={"RELAY_HOME": relay.home.name},
    )
    assert "Alice" in run.stdout


def test_a_fleet_in_another_folder_starts_in_a_relative_home(relay: Relay) -> None:
    (relay.home / "project" / "lead").mkdir(parents=True)
    fleet = relay.home / "project" / "relay.toml"
    fleet.write_text('[agents.Lead]\nrun = "cat"\ncwd = "lead"\n')
    relay("trust", fleet)
    relay("up", cwd=fleet.parent, env={"RELAY_HOME": ".."})
    assert [row["name"] for row in ps(relay)] == ["Lead"]
