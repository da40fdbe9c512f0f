"""The steps that start a fleet: one per requested agent, in order of dependencies.

This module starts nothing. Plan again after a change to get the next steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from relay import names
from relay.dataclass import dataclass
from relay.errors import UsageError
from relay.supervision.fleet import Condition, Fleet

StepKind = Literal["start", "running", "changed", "stopped", "scheduled", "wait", "full"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts about one agent on which a plan depends.

    running: it is supervised, in any state; an agent that is held, or waits for a restart, counts as well.
    changed: it is running, but was started from a definition other than the file's.
    tried:   this `relay up` has started it.
    stopped: the user stopped it, or it ended and is left that way. It starts again only if named.
    reached: the conditions that hold now: started, ready and idle refer to its current run, done and
             exited_ok to the end of its last one. An agent that this `relay up` has started and that is done
             has started, however soon it ended.
    """

    running: bool = False
    changed: bool = False
    tried: bool = False
    stopped: bool = False
    reached: frozenset[Condition] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The step for one agent.

    start:     start it now.
    running:   leave it: it is running as defined in the file.
    changed:   leave it: it is running, but not as defined in the file; a restart would apply the changes.
    stopped:   leave it: the user has stopped it.
    scheduled: leave it: its schedule starts it.
    wait:      start it once the agents in `waits_for` meet these conditions.
    full:      start it once fewer than max_running agents are running.
    """

    agent: str
    kind: StepKind
    waits_for: Mapping[str, Condition] | None = None


def plan(
    fleet: Fleet, standings: Mapping[str, Standing], wanted: Sequence[str] = (), *, others: int = 0
) -> list[PlanStep]:
    """Return a step for each `wanted` agent, and for each agent that these have to wait for.

    Dependencies come first. An empty `wanted` means all agents with autostart.

    standings: by name; an agent without one has never run.
    others:    the number of running agents that are no longer in the file; they count towards max_running.

    Raise UsageError for a name that is not in the fleet.
    """
    depends_on = {name: agent.depends_on for name, agent in fleet.agents.items()}
    named = {_find(fleet, name) for name in wanted}
    chosen = named or {name for name, agent in fleet.agents.items() if agent.autostart}
    known = {name: standings.get(name, Standing()) for name in fleet.agents}
    kinds = {name: _kind(fleet, name, known[name], explicit=name in named) for name in fleet.agents}
    reached = {
        # An agent about to start again has reached nothing: its dependents wait for the new run.
        name: standing.reached
        if name not in chosen or kinds[name] != "start" or standing.tried
        else frozenset()
        for name, standing in known.items()
    }
    unmet = {
        name: {other: each for other, each in agent.depends_on.items() if each not in reached[other]}
        for name, agent in fleet.agents.items()
    }
    included = _needed(chosen, {name: () if known[name].running else unmet[name] for name in fleet.agents})
    running = others + sum(each.running for each in known.values())
    steps = []
    for name in ordered(depends_on):
        if name not in included:
            continue
        kind = kinds[name]
        if kind == "start" and unmet[name]:
            kind = "wait"
        if kind == "start" and fleet.max_running and running >= fleet.max_running:
            kind = "full"
        running += kind == "start"
        steps.append(PlanStep(name, kind, unmet[name] if kind == "wait" else None))
    return steps


def stop_order(fleet: Fleet, wanted: Collection[str] = ()) -> list[str]:
    """Return the `wanted` agents (all if empty), each before those that it depends on.

    Raise UsageError for a name that is not in the fleet.
    """
    chosen = {_find(fleet, name) for name in wanted} or fleet.agents.keys()
    order = ordered({name: agent.depends_on for name, agent in fleet.agents.items()})
    return [name for name in reversed(order) if name in chosen]


def _kind(fleet: Fleet, name: str, standing: Standing, *, explicit: bool) -> StepKind:
    """Return the step of an agent, ignoring dependencies and max_running."""
    if standing.running:
        return "changed" if standing.changed else "running"
    if explicit:
        return "start"
    if standing.stopped:
        return "stopped"
    if fleet.agents[name].schedule is not None:
        return "scheduled"
    return "start"


def _find(fleet: Fleet, name: str) -> str:
    agent = fleet.find(name)
    if agent is None:
        hint = names.did_you_mean(name, fleet.agents)
        known = ", ".join(fleet.agents)
        raise UsageError(f"there is no agent {name!r} in {fleet.path}. {hint}Its agents are {known}.")
    return agent.name


def ordered(depends_on: Mapping[str, Collection[str]]) -> list[str]:
    """Return the keys of `depends_on`, each after those it depends on, otherwise in their given order.

    Raise ValueError with the text `a → b → a` if there is a cycle.
    """
    place = {name: number for number, name in enumerate(depends_on)}
    sorter = TopologicalSorter(depends_on)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(" → ".join(reversed(error.args[1]))) from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    return order


def _needed(names: Collection[str], depends_on: Mapping[str, Collection[str]]) -> set[str]:
    """Return `names` and all that they depend on, directly or indirectly."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += depends_on[name]
    return found
