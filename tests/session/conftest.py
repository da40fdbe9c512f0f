"""Alice, Bob and Carol: agents for the tests of a module that do not interfere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from session.fake_agent import SharedAgent
from support import Relay

Agents = Callable[[str], SharedAgent]


@pytest.fixture(scope="module")
def shared_agent(shared: Relay) -> Agents:
    """Return what gives an agent by its name: started when first used, and without memory of other tests."""
    running: dict[str, SharedAgent] = {}

    def agent(name: str) -> SharedAgent:
        if name not in running:
            running[name] = SharedAgent(shared, name)
            running[name].wrap()
        running[name].forget()
        return running[name]

    return agent


@pytest.fixture
def alice(shared_agent: Agents) -> SharedAgent:
    return shared_agent("Alice")


@pytest.fixture
def bob(shared_agent: Agents) -> SharedAgent:
    return shared_agent("Bob")


@pytest.fixture
def carol(shared_agent: Agents) -> SharedAgent:
    return shared_agent("Carol")
