"""Which fleet file is read, and whether it is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.errors import RelayError
from relay.home import Home
from relay.hooks.trust import Trust
from relay.supervision.fleet_file import load
from supervision.fleets import LEAD


@pytest.fixture
def relay_home(tmp_path: Path) -> Home:
    home = Home(str(tmp_path / "config"), str(tmp_path / "state"), str(tmp_path / "run"))
    home.config.mkdir()
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RelayError) as raised:
        call()
    return str(raised.value)


def test_a_projects_file_needs_trust_in_its_exact_content(relay_home: Home, project: Path) -> None:
    path = project / "relay.toml"
    path.write_text(LEAD)
    refused = (
        f"{path}: is not trusted, so none of its agents was started. Read it, then run `relay trust {path}`."
    )
    assert refusal(lambda: load(relay_home, project / "sub")) == refused
    Trust(relay_home).grant(path, path.read_bytes())
    fleet = load(relay_home, project / "sub")
    assert (list(fleet.agents), fleet.path, fleet.team) == (["Lead"], path, "project")
    path.write_text(LEAD + "task = 'x'\n")
    assert refusal(lambda: load(relay_home, project)) == refused


def test_naming_a_file_grants_no_trust(relay_home: Home, project: Path) -> None:
    path = project / "other.toml"
    path.write_text(LEAD)
    assert "other.toml: is not trusted" in refusal(lambda: load(relay_home, project, path))
    Trust(relay_home).grant(path, path.read_bytes())
    assert load(relay_home, project, path).path == path


def test_the_users_own_file_needs_no_trust(relay_home: Home, project: Path) -> None:
    path = relay_home.config / "relay.toml"
    assert "there is no relay.toml in this folder or the project around it" in refusal(
        lambda: load(relay_home, project)
    )
    path.write_text(LEAD)
    fleet = load(relay_home, project)
    assert (fleet.path, fleet.team) == (path, "default")
    assert load(relay_home, project, path) == fleet
    (project / "relay.toml").write_text(LEAD)  # the project's wins, and must be trusted
    assert "is not trusted" in refusal(lambda: load(relay_home, project))


def test_a_file_that_is_empty_unreadable_or_too_large_is_rejected(relay_home: Home, project: Path) -> None:
    path = relay_home.config / "relay.toml"
    path.write_text("idle_seconds = 5\n[fleet]\n")
    assert "has no agents. Add a table, such as [agents.Lead]" in refusal(lambda: load(relay_home, project))
    assert "cannot be read: No such file" in refusal(
        lambda: load(relay_home, project, project / "missing.toml")
    )
    os.mkfifo(project / "pipe.toml")
    assert "cannot be read" in refusal(lambda: load(relay_home, project, project / "pipe.toml"))
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert "has more than 1 MB" in refusal(lambda: load(relay_home, project))
