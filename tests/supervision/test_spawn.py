"""Whether an agent may start another, and as which agent: each rule of the fleet file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import InvalidName, NotAllowed
from relay.supervision import fleet_file
from relay.supervision.agent_values import LONGEST_TASK
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.records import AgentRecord
from relay.supervision.spawn import MOST, SpawnFacts, SpawnRequest, permit

PATH = Path("/src/relay.toml")

FILE = """
[fleet]
team = "web"
spawn = true
max_running = 4
[defaults]
max_cost = 5
[agents.Lead]
run = "claude --model opus"
task = "Lead them."
[agents.Ann]
run = "claude --model opus"
[agents.Bob]
run = "/opt/bin/codex -s read-only"
env = { CODEX_HOME = "/codex" }
account = "work"
channels = ["#ops"]
autostart = false
depends_on = ["Ann"]
schedule = { every = "1h" }
worktree = {}
[agents.one]
run = "tool --fast"
[agents.two]
run = "tool --slow"
"""

FLEET = fleet_file.parse(PATH, FILE.encode())
LEAD = AgentRecord("Lead", "web", fleet=str(PATH), cwd="/src/tree")
FACTS = SpawnFacts(LEAD)
CHILD = AgentRecord("Tester", "web", fleet=str(PATH), parent="Lead")


def test_a_spawned_agent_copies_its_model_except_for_place_and_task() -> None:
    found = permit(FLEET, SpawnRequest("Tester", "Bob", "Write tests."), FACTS)
    bob = FLEET.agents["Bob"]
    assert found == FleetAgent(
        name="Tester",
        command=("/opt/bin/codex", "-s", "read-only"),
        cwd=Path("/src/tree"),
        task="Write tests.",
        env={"CODEX_HOME": "/codex"},
        channels=("ops",),
        supervision=replace(
            bob.supervision, prompt="Write tests.", digest="", parent="Lead", model="Bob", spawns=False
        ),
    )
    assert (found.supervision.account, found.supervision.max_cost) == ("work", 5)
    assert bob.supervision.spawns


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("Bob", "Bob"),
        ("bob", "Bob"),
        ("codex", "Bob"),
        ("/opt/bin/codex", "Bob"),
        ("claude", "Lead"),
        ("two", "two"),
    ],
)
def test_a_command_selects_the_agent_to_copy(command: str, model: str) -> None:
    """If several agents run a program in the same way, any of them is copied."""
    found = permit(FLEET, SpawnRequest("Tester", command), FACTS)
    assert found.supervision.model == model
    assert found.command == FLEET.agents[model].command


FORBIDDEN = [
    (
        replace(FLEET, spawn=False),
        {},
        {},
        "/src/relay.toml does not allow agents to start others. Ask the user",
    ),
    (
        FLEET,
        {},
        {"spawner": replace(LEAD, parent="Ann")},
        "Ann started Lead, and such an agent may not start",
    ),
    (FLEET, {}, {"spawner": replace(LEAD, fleet="")}, "Lead is not an agent of /src/relay.toml"),
    (FLEET, {}, {"spawner": replace(LEAD, fleet="/other")}, "Lead is not an agent of /src/relay.toml"),
    (FLEET, {}, {"spawner": replace(LEAD, name="Old")}, "Old is not an agent of /src/relay.toml"),
    (FLEET, {}, {"spawner": replace(LEAD, wanted="down")}, "Lead is being stopped"),
    (FLEET, {"name": "ann"}, {}, "Ann is an agent in the fleet file, which the user starts"),
    (FLEET, {}, {"taken": True}, "the name Tester belongs to another agent"),
    (FLEET, {}, {"record": replace(CHILD, parent="")}, "the name Tester belongs to another agent"),
    (FLEET, {}, {"record": replace(CHILD, parent="Ann")}, "the name Tester belongs to another agent"),
    (FLEET, {}, {"record": CHILD, "taken": True}, "Tester, which you started, is still running"),
    (
        FLEET,
        {},
        {"record": replace(CHILD, by="stop")},
        "the user stopped Tester, and only the user may start it",
    ),
    (FLEET, {"command": "tool"}, {}, "several agents of the fleet file run tool, each in its own way"),
    (FLEET, {"command": "tool"}, {}, "name the agent to copy: one, two."),
    (
        FLEET,
        {"command": "sh"},
        {},
        "without options (claude, codex, tool), or the agent to copy",
    ),
    (FLEET, {"command": ""}, {}, "the fleet file has no agent that runs"),
    (
        FLEET,
        {"command": "claude --model opus"},
        {},
        "the fleet file has no agent that runs claude --model opus",
    ),
    (FLEET, {"command": "./codex"}, {}, "the fleet file has no agent that runs ./codex"),
    (FLEET, {}, {"running": 4}, "4 agents of the fleet are running, and max_running is 4"),
    (
        FLEET,
        {},
        {"recent": MOST},
        "Lead has started 20 agents within the last hour, and may not start more",
    ),
    (FLEET, {"task": "x" * (LONGEST_TASK + 1)}, {}, "the task has more than 32 KB"),
    (FLEET, {"task": "a\0b"}, {}, "the task has a NUL character"),
]


def test_a_forbidden_spawn_is_rejected_with_a_reason(subtests: pytest.Subtests) -> None:
    for fleet, request_, facts, reason in FORBIDDEN:
        with subtests.test(reason):
            request = SpawnRequest(**{"name": "Tester", "command": "claude", **request_})
            with pytest.raises(NotAllowed) as refusal:
                permit(fleet, request, replace(FACTS, **facts))
            assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("fleet", "facts"),
    [
        (FLEET, {"running": 3, "recent": MOST - 1}),
        (replace(FLEET, max_running=0), {"running": 400}),
        (FLEET, {"record": CHILD}),
        (FLEET, {"record": replace(CHILD, by="release", wanted="down")}),
        (FLEET, {"record": replace(CHILD, by="down", wanted="down")}),
    ],
)
def test_a_spawn_within_the_limits_is_allowed(fleet: Fleet, facts: dict[str, object]) -> None:
    assert permit(fleet, SpawnRequest("Tester", "claude"), replace(FACTS, **facts)).name == "Tester"


@pytest.mark.parametrize("name", ["spawn", "Release", "you", "", "a/b", "-n", "x" * 65])
def test_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidName):
        permit(FLEET, SpawnRequest(name, "claude"), FACTS)


@given(st.text(), st.text(), st.text())
def test_only_a_command_of_the_fleet_file_is_ever_run(name: str, command: str, task: str) -> None:
    try:
        agent = permit(FLEET, SpawnRequest(name, command, task), FACTS)
    except (NotAllowed, InvalidName):
        return
    model = FLEET.agents[agent.supervision.model]
    assert (agent.command, agent.env, agent.rules) == (model.command, model.env, model.rules)
    assert agent.cwd == Path("/src/tree")
