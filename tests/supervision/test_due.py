"""Agents that start automatically: each combination of schedule, record and `max_running`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.supervision.due import due, enqueue, postpone
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.records import AgentRecord
from relay.supervision.schedule import MISSED, Schedule
from relay.supervision.states import Phase

NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC, a Monday
HOURLY, AT_14 = Schedule(every=3600.0), Schedule(cron="0 14 * * *", timezone="UTC")


SCHEDULES = [
    (HOURLY, NOW - 3599, False),
    (HOURLY, NOW - 3600, True),
    (HOURLY, NOW - 3600 - MISSED, True),
    (HOURLY, NOW - 3600 - MISSED - 1, False),
    (HOURLY, NOW - 7199, False),
    (HOURLY, NOW - 7200, True),
    (replace(HOURLY, catch_up=True), NOW - 7199, True),
    (AT_14, NOW - 3600, False),  # it was due 800 s ago
    (replace(AT_14, catch_up=True), NOW - 3600, True),
    (replace(AT_14, catch_up=True), NOW - 700, False),
    (replace(AT_14, cron="10 14 * * *"), NOW - 3600, True),
    (replace(AT_14, cron="10 14 * * *"), NOW - 100, False),  # already started
]


def test_a_schedule_is_due_at_its_time(subtests: pytest.Subtests) -> None:
    for schedule, since, is_due in SCHEDULES:
        with subtests.test(f"{schedule}, {NOW - since} s ago"):
            assert schedule.due(since, NOW) is is_due


@given(st.floats(60, 1e6), st.floats(0, 1e7), st.booleans())
def test_nothing_is_due_early_and_missed_times_can_be_caught_up(
    every: float, ago: float, catch_up: bool
) -> None:
    found = Schedule(every=every, catch_up=catch_up).due(NOW - ago, NOW)
    if NOW - (NOW - ago) < every:
        assert not found
    elif catch_up:
        assert found


def fleet(*agents: FleetAgent, most: int = 0) -> Fleet:
    return Fleet(Path("/f"), "web", most, 0.0, {agent.name: agent for agent in agents}, "")


PLAIN = FleetAgent("A", ("cat",), Path("/"))
CLOCK = replace(PLAIN, schedule=HOURLY)
QUEUED = AgentRecord("A", "web", phase=Phase.QUEUED, scheduled=NOW - 3600)


CANDIDATES = [
    (PLAIN, QUEUED, set(), 0, True),
    (PLAIN, QUEUED, {"b"}, 1, False),  # max_running is reached
    (PLAIN, QUEUED, {"x"}, 1, True),  # x is not in this file
    (PLAIN, QUEUED, {"a"}, 0, False),
    (PLAIN, None, set(), 0, False),
    (PLAIN, replace(QUEUED, wanted="down"), set(), 0, False),
    *((PLAIN, replace(QUEUED, phase=phase), set(), 0, False) for phase in Phase if phase is not Phase.QUEUED),
    (CLOCK, QUEUED, set(), 0, True),
    (CLOCK, replace(QUEUED, phase=Phase.DONE), set(), 0, True),
    (CLOCK, replace(QUEUED, scheduled=NOW - 10), set(), 0, False),
    (CLOCK, replace(QUEUED, wanted="down"), set(), 0, False),
    (CLOCK, QUEUED, {"a"}, 0, False),  # overlap: skip
    (CLOCK, replace(QUEUED, scheduled=NOW - 10, overdue=True), set(), 0, True),
    (CLOCK, replace(QUEUED, scheduled=NOW - 10, overdue=True), {"b"}, 1, False),
    (CLOCK, replace(QUEUED, scheduled=NOW - 10, overdue=True, wanted="down"), set(), 0, False),
    (CLOCK, replace(QUEUED, scheduled=NOW - 10, overdue=True, phase=Phase.HELD), set(), 0, False),
]


def test_an_agent_is_due_by_its_schedule_and_record(subtests: pytest.Subtests) -> None:
    for agent, record, running, most, starts in CANDIDATES:
        with subtests.test(f"{record}, running {running}, at most {most}"):
            records = {} if record is None else {"a": record}
            both = fleet(agent, replace(PLAIN, name="B"), most=most)
            assert due(both, records, running, NOW) == (["A"] if starts else [])


def test_an_agent_that_was_down_waits_for_its_next_scheduled_time() -> None:
    waits = postpone(QUEUED, CLOCK, NOW, "it is waiting until B is done")
    assert waits.overdue and postpone(waits, CLOCK, NOW + 1, "another reason") == waits
    down = replace(waits, wanted="down")
    assert not enqueue(down, CLOCK, NOW, scheduled=True).overdue


def test_a_spawned_agent_counts_towards_max_running() -> None:
    records = {"a": QUEUED, "c": AgentRecord("C", "web", fleet="/f", parent="B")}
    assert due(fleet(PLAIN, most=1), records, {"c"}, NOW) == []
    assert due(fleet(PLAIN, most=2), records, {"c"}, NOW) == ["A"]
    assert due(fleet(PLAIN, most=1), records, set(), NOW) == ["A"]


def test_a_leap_day_schedule_is_due_again() -> None:
    assert Schedule(cron="0 0 29 2 *", timezone="UTC").next_after(NOW) < math.inf
