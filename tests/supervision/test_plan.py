"""The steps of `plan`, as tables and for any fleet."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.errors import UsageError
from relay.supervision.fleet import Condition, Fleet, FleetAgent
from relay.supervision.plan import PlanStep, Standing, plan, stop_order
from relay.supervision.schedule import Schedule

UP = Standing(running=True, reached=frozenset({"started"}))
READY = Standing(running=True, reached=frozenset({"started", "ready"}))
CHANGED = Standing(running=True, changed=True)
STOPPED = Standing(stopped=True)
DONE = Standing(reached=frozenset({"done", "exited_ok"}))
TRIED = Standing(tried=True, reached=DONE.reached)


def fleet(
    depends_on: dict[str, dict[str, Condition]],
    *,
    max_running: int = 0,
    manual: tuple[str, ...] = (),
    scheduled: tuple[str, ...] = (),
) -> Fleet:
    agents = {
        name: FleetAgent(
            name,
            ("true",),
            Path("/"),
            depends_on=others,
            autostart=name not in manual,
            schedule=Schedule(every=60) if name in scheduled else None,
        )
        for name, others in depends_on.items()
    }
    return Fleet(Path("/p/relay.toml"), "p", max_running, 5, agents, "")


def shown(steps: list[PlanStep]) -> str:
    """Return `db:start Lead:wait(db=ready)`."""
    return " ".join(
        f"{step.agent}:{step.kind}"
        + (
            f"({','.join(f'{name}={each}' for name, each in step.waits_for.items())})"
            if step.waits_for
            else ""
        )
        for step in steps
    )


CHAIN: dict[str, dict[str, Condition]] = {"Lead": {"db": "ready"}, "db": {}, "Ann": {"Lead": "started"}}
TWO: dict[str, dict[str, Condition]] = {"Lead": {}, "Ann": {}}


SITUATIONS = [
    (fleet(TWO), {}, (), "Lead:start Ann:start"),
    (fleet(TWO), {"Lead": UP, "Ann": CHANGED}, (), "Lead:running Ann:changed"),
    (fleet(TWO), {}, ("ann",), "Ann:start"),
    (fleet(TWO, manual=("Lead",)), {}, (), "Ann:start"),
    (fleet(TWO, manual=("Lead",)), {}, ("Lead",), "Lead:start"),
    # what the user has stopped stays stopped, until it is named
    (fleet(TWO), {"Lead": STOPPED}, (), "Lead:stopped Ann:start"),
    (fleet(TWO), {"Lead": STOPPED}, ("Lead",), "Lead:start"),
    (fleet(CHAIN), {"db": STOPPED}, ("Lead",), "db:stopped Lead:wait(db=ready)"),
    # an agent's dependencies are started, and it waits for them
    (fleet(CHAIN), {}, (), "db:start Lead:wait(db=ready) Ann:wait(Lead=started)"),
    (fleet(CHAIN), {"db": UP}, (), "db:running Lead:wait(db=ready) Ann:wait(Lead=started)"),
    (fleet(CHAIN), {"db": READY}, (), "db:running Lead:start Ann:wait(Lead=started)"),
    (fleet(CHAIN, manual=("db",)), {}, (), "db:start Lead:wait(db=ready) Ann:wait(Lead=started)"),
    (fleet(CHAIN, manual=("db",)), {}, ("Ann",), "db:start Lead:wait(db=ready) Ann:wait(Lead=started)"),
    # but not those that have met the condition, nor for an agent that is already running
    (fleet({"Lead": {"init": "done"}, "init": {}}, manual=("init",)), {"init": DONE}, (), "Lead:start"),
    (fleet(CHAIN, manual=("db",)), {"Lead": UP}, ("Ann",), "Ann:start"),
    # for an agent that starts again, only its new life counts
    (
        fleet({"Lead": {"init": "done"}, "init": {}}),
        {"init": DONE},
        (),
        "init:start Lead:wait(init=done)",
    ),
    (fleet({"Lead": {"init": "done"}, "init": {}}), {"init": TRIED}, (), "init:start Lead:start"),
    # no more than max_running
    (fleet(TWO, max_running=1), {}, (), "Lead:start Ann:full"),
    (fleet(TWO, max_running=1), {"Ann": UP}, (), "Lead:full Ann:running"),
    (fleet(TWO, max_running=2), {}, (), "Lead:start Ann:start"),
    (fleet(CHAIN, max_running=1), {}, (), "db:start Lead:wait(db=ready) Ann:wait(Lead=started)"),
    # the schedule decides, unless the agent is named
    (fleet(TWO, scheduled=("Ann",)), {}, (), "Lead:start Ann:scheduled"),
    (fleet(TWO, scheduled=("Ann",)), {}, ("Ann",), "Ann:start"),
    (fleet({}), {}, (), ""),
]


def test_a_plan_has_the_steps_for_each_situation(subtests: pytest.Subtests) -> None:
    for given_, standings, wanted, steps in SITUATIONS:
        with subtests.test(f"{standings}, {wanted}: {steps}"):
            assert shown(plan(given_, standings, wanted)) == steps


def test_agents_removed_from_the_file_still_count_as_running() -> None:
    assert shown(plan(fleet(TWO, max_running=2), {}, others=1)) == "Lead:start Ann:full"


def test_an_unknown_name_is_rejected_with_a_suggestion() -> None:
    for call in (plan(fleet(TWO), {}, ()), stop_order(fleet(TWO))):
        assert call
    with pytest.raises(UsageError, match=r"there is no agent 'Laed' in /p/relay.toml. Did you mean Lead?"):
        plan(fleet(TWO), {}, ("Laed",))
    with pytest.raises(UsageError, match=r"Its agents are Lead, Ann."):
        stop_order(fleet(TWO), ("Laed",))


def test_agents_stop_before_their_dependencies() -> None:
    assert stop_order(fleet(CHAIN)) == ["Ann", "Lead", "db"]
    assert stop_order(fleet(CHAIN), ("DB", "Ann")) == ["Ann", "db"]


NAMES = [f"A{number}" for number in range(8)]
CONDITIONS: list[Condition] = ["started", "ready", "idle", "done", "exited_ok"]


@st.composite
def fleets(draw: st.DrawFn, *, scheduled: bool = True) -> Fleet:
    """Draw any fleet without a cycle, its agents in any order. scheduled: some have a schedule."""
    size = draw(st.integers(0, len(NAMES)))
    depends_on: dict[str, dict[str, Condition]] = {}
    for number, name in enumerate(NAMES[:size]):
        before = draw(st.sets(st.sampled_from(NAMES[:number]))) if number else set()
        depends_on[name] = {other: draw(st.sampled_from(CONDITIONS)) for other in sorted(before)}
    order = draw(st.permutations(list(depends_on)))
    flags = st.sets(st.sampled_from(NAMES))
    return fleet(
        {name: depends_on[name] for name in order},
        max_running=draw(st.integers(0, 4)),
        manual=tuple(draw(flags)),
        scheduled=tuple(draw(flags)) if scheduled else (),
    )


STANDINGS = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        Standing,
        running=st.booleans(),
        stopped=st.booleans(),
        tried=st.booleans(),
        reached=st.frozensets(st.sampled_from(CONDITIONS)),
    ),
)


@settings(max_examples=60)
@given(fleets(), STANDINGS, st.integers(0, 3), st.data())
def test_every_plan_respects_dependencies_and_max_running(
    given_: Fleet, standings: dict[str, Standing], others: int, data: st.DataObject
) -> None:
    names = list(given_.agents)
    wanted = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    steps = plan(given_, standings, wanted, others=others)
    place = {step.agent: number for number, step in enumerate(steps)}
    assert len(place) == len(steps)
    started = {step.agent for step in steps if step.kind == "start"}
    running = {name for name in names if standings.get(name, Standing()).running}
    selected = set(wanted) or {name for name in names if given_.agents[name].autostart}
    starting = {
        step.agent
        for step in steps
        if step.kind in {"start", "wait", "full"} and not standings.get(step.agent, Standing()).tried
    } & selected
    for step in steps:
        agent = given_.agents[step.agent]
        unmet = {
            other: condition
            for other, condition in agent.depends_on.items()
            if other in starting or condition not in standings.get(other, Standing()).reached
        }
        assert all(place[other] < place[step.agent] for other in agent.depends_on if other in place)
        assert not (step.agent in started and (unmet or step.agent in running))
        assert (step.waits_for or {}) == (unmet if step.kind == "wait" else {})
        assert step.kind != "wait" or set(unmet) <= place.keys()  # no agent waits for one outside the plan
        assert step.kind != "stopped" or step.agent not in wanted
        assert not (
            given_.max_running
            and step.kind == "full"
            and others + len(running | started) < given_.max_running
        )
    if given_.max_running and started:
        assert others + len(running | started) <= given_.max_running
    assert selected <= place.keys()


@settings(max_examples=60)
@given(fleets(scheduled=False))
def test_repeated_planning_starts_the_whole_fleet(given_: Fleet) -> None:
    """Each agent meets the conditions that others wait for, and then ends."""
    standings: dict[str, Standing] = {}
    started: list[str] = []
    for _ in given_.agents:
        new = [
            step.agent
            for step in plan(given_, standings)
            if step.kind == "start" and step.agent not in started
        ]
        started += new
        standings |= dict.fromkeys(new, Standing(reached=frozenset(CONDITIONS)))
        # what has ended would be restarted; counting it as stopped prevents that
        standings |= {name: Standing(stopped=True, reached=frozenset(CONDITIONS)) for name in started}
    selected = {name for name, agent in given_.agents.items() if agent.autostart}
    assert selected <= set(started)
    for name in started:
        assert all(started.index(other) < started.index(name) for other in given_.agents[name].depends_on)
