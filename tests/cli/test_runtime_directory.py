"""All processes of a user see the same agents, whatever XDG_RUNTIME_DIR is."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.home import Home
from support import Relay


@pytest.fixture
def relay() -> Iterator[Relay]:
    """Yield the command without RELAY_HOME: its files are below HOME."""
    folder = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp")).resolve()  # a socket's path is limited
    relay = Relay(folder)
    relay.environment = {
        name: value
        for name, value in relay.environment.items()
        if not name.startswith(("RELAY_HOME", "XDG_"))
    }
    relay.environment["HOME"] = str(folder)
    yield relay
    relay("stop", "--all", check=False)
    relay("broker", "stop", check=False)
    shutil.rmtree(folder)


def test_the_runtime_directory_is_ignored(tmp_path: Path) -> None:
    user = {"HOME": str(tmp_path)}
    homes = [Home.from_env(user | more) for more in ({}, {"XDG_RUNTIME_DIR": "/run/user/1"})]
    assert {home.run for home in homes} == {tmp_path / ".local" / "state" / "relay" / "run"}
    moved = Home.from_env(user | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")})
    assert moved.run == tmp_path / "elsewhere" / "relay" / "run"


def test_an_agent_is_found_after_logout_and_from_cron(relay: Relay) -> None:
    """A different runtime directory once hid it, and `relay send` ended its run and rejected its mail."""
    login = relay.home / "login"
    login.mkdir(mode=0o700)
    (relay.home / "work").mkdir()
    here = {"XDG_RUNTIME_DIR": str(login)}
    relay("wrap", "-d", "cat", env=here, cwd=relay.home / "work")
    relay("send", "cat", "important", env=here)
    login.rename(relay.home / "logged-out")
    assert [row["name"] for row in json.loads(relay("ps", "--json").stdout)] == ["cat"]
    relay("send", "--wait", "30", "cat", "from cron")
    rows = json.loads(relay("messages", "--all", "--json").stdout)
    assert {row["body"]: row["state"] for row in rows} == {"important": "injected", "from cron": "injected"}
