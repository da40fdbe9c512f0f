"""Whether an agent may start another one, and as what: the fleet file decides, not the agent.

The spawner chooses a name, a task, and which agent of the file to copy. Everything else comes from the file:
the command with all of its options, the environment, the rules, the limits.
"""

from __future__ import annotations

from pathlib import Path

from relay import names
from relay.dataclass import dataclass, replace
from relay.errors import NotAllowed
from relay.supervision.agent_values import LONGEST_TASK
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.records import AgentRecord
from relay.text import count, listed, one_line

MOST, WINDOW = 20, 3600.0
"""How many agents one agent may start within WINDOW seconds: this stops a loop of starts and releases."""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A spawner's words: the new agent's name, the agent or program to run, the first prompt ("": none)."""

    name: str
    command: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class SpawnFacts:
    """The state of the fleet on which the decision depends.

    spawner: the spawner's record. record: that of the requested name; None: there is none.
    taken:   a running agent has this name.
    running: the number of running agents of the fleet, in any state.
    recent:  the number of agents that the spawner has started within WINDOW.
    """

    spawner: AgentRecord
    record: AgentRecord | None = None
    taken: bool = False
    running: int = 0
    recent: int = 0


def permit(fleet: Fleet, request: SpawnRequest, facts: SpawnFacts) -> FleetAgent:
    """Return the agent to start. Raise NotAllowed or InvalidName, with what the spawner can do instead."""
    spawner = facts.spawner
    if not fleet.spawn:
        raise NotAllowed(
            f"{fleet.path} does not allow agents to start others. Ask the user to set spawn = true below "
            "[fleet]."
        )
    if spawner.parent:
        raise NotAllowed(
            f"{spawner.parent} started {spawner.name}, and such an agent may not start others. Ask "
            f"{spawner.parent} to do it."
        )
    if spawner.fleet != str(fleet.path) or fleet.find(spawner.name) is None:
        raise NotAllowed(f"{spawner.name} is not an agent of {fleet.path}, and only those may start others.")
    if spawner.wanted == "down":
        raise NotAllowed(f"{spawner.name} is being stopped, and may not start others now.")
    names.validate(request.name)
    _check_name(fleet, request.name, facts)
    _check_task(request.task)
    model = _model(fleet, request.command)
    if fleet.max_running and facts.running >= fleet.max_running:
        raise NotAllowed(
            f"{count(facts.running, 'agent')} of the fleet are running, and max_running is "
            f"{fleet.max_running}. Release one of yours, or try again when one has ended."
        )
    if facts.recent >= MOST:
        raise NotAllowed(
            f"{spawner.name} has started {facts.recent} agents within the last hour, and may not start more. "
            "Try again later, or give the work to a running agent."
        )
    like = _likeness(model)
    supervision = replace(
        like.supervision, prompt=request.task, parent=spawner.name, model=model.name, spawns=False
    )
    return replace(like, name=request.name, cwd=Path(spawner.cwd), task=request.task, supervision=supervision)


def _check_name(fleet: Fleet, name: str, facts: SpawnFacts) -> None:
    record, spawner = facts.record, facts.spawner
    own = record is not None and names.same(record.parent, spawner.name)
    if (agent := fleet.find(name)) is not None:
        raise NotAllowed(
            f"{agent.name} is an agent in the fleet file, which the user starts. Choose another name."
        )
    if facts.taken and own:
        raise NotAllowed(
            f"{name}, which you started, is still running. Write to it, release it, or choose another name."
        )
    if facts.taken or not (record is None or own):
        raise NotAllowed(f"the name {name} belongs to another agent. Choose another name.")
    if record is not None and record.by == "stop":
        raise NotAllowed(
            f"the user stopped {name}, and only the user may start it again. Ask the user, or choose another "
            "name."
        )


def _check_task(task: str) -> None:
    if len(task.encode("utf-8", "surrogatepass")) > LONGEST_TASK:
        raise NotAllowed(
            f"the task has more than {LONGEST_TASK >> 10} KB. Write it to a file, and name the file in the "
            "task."
        )
    if "\0" in task:
        raise NotAllowed("the task has a NUL character. Remove it.")


def _model(fleet: Fleet, command: str) -> FleetAgent:
    """Return the agent of the file that `command` means: by its name, or else by its program."""
    if (named := fleet.find(command)) is not None:
        return named
    matches = [
        agent for agent in fleet.agents.values() if command in {agent.command[0], Path(agent.command[0]).name}
    ]
    if matches and all(_likeness(each) == _likeness(matches[0]) for each in matches):
        return matches[0]
    shown = one_line(command, 40)
    if matches:
        raise NotAllowed(
            f"several agents of the fleet file run {shown}, each in its own way. Instead of {shown}, name "
            f"the agent to copy: {listed([agent.name for agent in matches])}."
        )
    programs = sorted({Path(agent.command[0]).name for agent in fleet.agents.values()})
    raise NotAllowed(
        f"the fleet file has no agent that runs {shown}. Write the new agent's program, without options "
        f"({listed(programs)}), or the agent to copy ({listed([*fleet.agents])})."
    )


def _likeness(agent: FleetAgent) -> FleetAgent:
    """Return what a new agent inherits from `agent`: not its name, folder, task, or when it starts."""
    supervision = replace(agent.supervision, prompt="", digest="")
    return replace(
        agent,
        name="",
        cwd=Path(),
        task="",
        autostart=True,
        depends_on={},
        schedule=None,
        worktree=None,
        supervision=supervision,
    )
