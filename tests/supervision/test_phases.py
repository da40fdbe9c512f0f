"""The table of a supervised agent's states: every pair, allowed or not."""

from __future__ import annotations

import itertools

import pytest

from relay.supervision.states import ENDED, PAUSED, Phase
from supervision.phases import TRANSITIONS, check


def test_only_the_transitions_in_the_table_are_allowed(subtests: pytest.Subtests) -> None:
    for before, after in itertools.product(Phase, Phase):
        with subtests.test(f"{before} to {after}"):
            if before is after or after in TRANSITIONS[before]:
                assert check(before, after) is after
            else:
                with pytest.raises(ValueError, match=f"{before} cannot become {after}"):
                    check(before, after)


def test_an_ended_agent_can_start_and_any_other_can_be_switched_off() -> None:
    for phase in PAUSED | ENDED:
        assert Phase.STARTING in TRANSITIONS[phase]
    for phase in set(Phase) - {Phase.OFF, Phase.DONE, Phase.FAILED}:
        reachable, new = {phase}, {phase}
        while new:
            new = {after for each in new for after in TRANSITIONS[each]} - reachable
            reachable |= new
        assert Phase.OFF in reachable


def test_no_agent_comes_up_without_starting() -> None:
    """Except one that was running before, and waited for a limit or was held."""
    assert {before for before in Phase if Phase.UP in TRANSITIONS[before]} == {
        Phase.STARTING,
        Phase.WAITING,
        Phase.HELD,
    }
