"""Fixtures for tests with real agent CLIs, which relay wraps and which talk to a scripted model.

`make test-agents AGENTS="claude qwen"` selects them; a test with the fixture `agent` runs once for each.
The marker `agents("claude", ...)` limits a test to these agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from real_agents.install import PACKAGES
from real_agents.recipes import AGENTS, Agent
from real_agents.rig import Rig
from real_agents.versions_table import VersionsTable
from support import Relay

DEFAULT = "claude codex qwen pi aider"
NO_AGENT = ""
TIMEOUT = 600
"""Seconds for one test: agents are slow on a busy machine. A single wait times out sooner (rig)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--agents", default=DEFAULT, help=f"agents to test, of {', '.join(PACKAGES)} (default: %(default)s)"
    )
    parser.addoption(
        "--talk", type=float, default=30.0, help="seconds for which two agents talk (default: %(default)s)"
    )
    parser.addoption("--agents-table", type=Path, help="write the results of each version into this file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "agents(*names): the agents that a test is for")
    table = config.getoption("--agents-table")
    if table is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(VersionsTable(table))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agent" in metafunc.fixturenames:
        selected = metafunc.config.getoption("--agents").replace(",", " ").split()
        marker = metafunc.definition.get_closest_marker("agents")
        names = [name for name in selected if marker is None or name in marker.args]
        metafunc.parametrize("agent", names or [NO_AGENT], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove tests that apply to none of the chosen agents, instead of skipping them.

    The others start relay as users do, with execve(2).
    """
    without_agent = [item for item in items if isinstance(item, pytest.Function) and _agent(item) == NO_AGENT]
    items[:] = [item for item in items if item not in without_agent]
    for item in items:
        if _agent(item) is not None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))
            item.add_marker(pytest.mark.real_exec)
    config.hook.pytest_deselected(items=without_agent)


def _agent(item: pytest.Function) -> object:
    return item.callspec.params.get("agent") if hasattr(item, "callspec") else None


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Agent:
    """Return one of the selected agents; skip the test if it is not installed."""
    if request.param not in AGENTS:
        raise pytest.UsageError(f"there is no agent {request.param!r}; there are {', '.join(AGENTS)}")
    if reason := PACKAGES[request.param].missing():
        pytest.skip(reason)
    return AGENTS[request.param]


@pytest.fixture
def rig(relay: Relay) -> Iterator[Rig]:
    """Yield real agents in one relay home: `alice = rig.wrap(agent, "Alice", Rule("hi", "hello"))`."""
    with Rig(relay) as rig:
        yield rig
