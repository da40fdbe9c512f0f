"""What happens after an agent has exited: every kind of exit, under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.supervision.policy import Supervision
from relay.supervision.restart import (
    LIMIT_TRIES,
    LIMIT_WAIT,
    RESET_MARGIN,
    AgentExit,
    RestartDecision,
    RestartHistory,
    decide,
    describe,
    span,
)
from relay.supervision.states import PAUSED, Phase
from supervision.phases import TRANSITIONS

NOW = 1_000_000.0
POLICY = Supervision(restart="on-failure")


def after(
    exit: AgentExit, history: RestartHistory | None = None, *, policy: Supervision = POLICY, now: float = NOW
) -> RestartDecision:
    return decide(policy, exit, history or RestartHistory(), now, lambda: 0.0)


EXITS = [
    ("no", AgentExit(0), Phase.DONE),
    ("no", AgentExit(1), Phase.FAILED),
    ("on-failure", AgentExit(0), Phase.DONE),
    ("on-failure", AgentExit(1), Phase.BACKOFF),
    ("on-failure", AgentExit(137), Phase.BACKOFF),
    ("always", AgentExit(0), Phase.BACKOFF),
    ("always", AgentExit(1), Phase.BACKOFF),
    # The user has stopped it, or quit it.
    ("always", AgentExit(143, by_user=True), Phase.OFF),
    ("always", AgentExit(130, expected=True), Phase.DONE),
    ("always", AgentExit(0, expected=True), Phase.DONE),
    # A failure that time fixes, and failures that only the user can fix.
    ("on-failure", AgentExit(0, failure="rate_limited"), Phase.WAITING),
    ("on-failure", AgentExit(1, failure="overloaded"), Phase.WAITING),
    ("on-failure", AgentExit(1, failure="network"), Phase.WAITING),
    ("always", AgentExit(1, failure="unauthorized"), Phase.HELD),
    ("always", AgentExit(1, failure="billing"), Phase.HELD),
    ("always", AgentExit(1, failure="context_full"), Phase.HELD),
    ("always", AgentExit(1, failure="other"), Phase.BACKOFF),
    ("no", AgentExit(1, failure="rate_limited"), Phase.FAILED),
]


def test_each_exit_leads_to_the_phase_of_its_policy(subtests: pytest.Subtests) -> None:
    for policy, exit, phase in EXITS:
        with subtests.test(f"{policy}: {exit}"):
            decision = after(exit, policy=Supervision(restart=policy))  # type: ignore[arg-type]
            assert decision.phase is phase
            assert decision.pauses == (phase in PAUSED)
            assert phase in TRANSITIONS[Phase.UP]
            assert phase in TRANSITIONS[Phase.STARTING]


def test_success_exit_codes_are_not_failures() -> None:
    policy = replace(POLICY, success_exit_codes=(0, 3))
    assert after(AgentExit(3), policy=policy).phase is Phase.DONE
    assert after(AgentExit(4), policy=policy).phase is Phase.BACKOFF


def test_backoff_doubles_and_ends() -> None:
    history, pauses = RestartHistory(), []
    for turn in range(3):
        decision = after(AgentExit(1), history)
        assert decision.at is not None
        pauses.append(decision.at - NOW)
        assert decision.note == f"restarting in {span(pauses[-1])} ({turn + 1} of 3)"
        history = decision.history
    assert pauses == [5.0, 10.0, 20.0]
    last = after(AgentExit(1), history)
    assert last.phase is Phase.FAILED
    assert last.reason == "exited with 1; restarted 3 times within 15 min"


def test_backoff_has_a_limit() -> None:
    policy = replace(POLICY, max_restarts=50, backoff_max=60.0)
    decision = after(AgentExit(1), RestartHistory((NOW - 1,) * 20), policy=policy)
    assert decision.at == NOW + 60


def test_old_restarts_do_not_count() -> None:
    history = RestartHistory((NOW - 901, NOW - 901, NOW - 899))
    decision = after(AgentExit(1), history)
    assert decision.note.endswith("(2 of 3)")
    assert decision.history.restarts == (NOW - 899, NOW)


@pytest.mark.parametrize(
    ("exit", "number"),
    [
        (AgentExit(1, ran=600, worked=True), 1),
        (AgentExit(1, ran=600), 4),  # it has never finished a turn
        (AgentExit(1, ran=599, worked=True), 4),
    ],
)
def test_a_stable_agent_resets_the_restart_count(exit: AgentExit, number: int) -> None:
    decision = after(exit, RestartHistory((NOW - 3, NOW - 2, NOW - 1)))
    assert decision.phase is (Phase.BACKOFF if number == 1 else Phase.FAILED)


def test_a_usage_limit_is_waited_for_until_its_reset() -> None:
    exit = AgentExit(1, failure="rate_limited", reset_at=NOW + 7200)
    for chance in (0.0, 0.5, 1.0):
        decision = decide(POLICY, exit, RestartHistory(), NOW, lambda chance=chance: chance)  # type: ignore[misc]
        assert decision.at is not None
        assert RESET_MARGIN[0] <= decision.at - (NOW + 7200) <= RESET_MARGIN[1]
    assert "2 h" in decision.note


def test_a_usage_limit_with_an_unknown_reset_backs_off() -> None:
    """The pauses between retries grow, and their number is limited."""
    history, pauses = RestartHistory(), []
    for _ in range(LIMIT_TRIES):
        decision = after(AgentExit(1, failure="rate_limited"), history)
        assert decision.at is not None
        pauses.append(decision.at - NOW)
        history = decision.history
    assert pauses == [30, 60, 120, 240, 480, LIMIT_WAIT.last]
    assert after(AgentExit(1, failure="rate_limited"), history).phase is Phase.FAILED


def test_a_reset_in_the_past_counts_as_unknown() -> None:
    decision = after(AgentExit(1, failure="rate_limited", reset_at=NOW - 1))
    assert decision.at == NOW + 30


@given(
    st.lists(st.floats(NOW - 2000, NOW), max_size=10).map(sorted),
    st.integers(0, 255),
    st.integers(0, 5),
    st.floats(0, 1),
)
def test_no_window_contains_more_restarts_than_allowed(
    times: list[float], code: int, most: int, chance: float
) -> None:
    policy = replace(POLICY, max_restarts=most)
    decision = decide(policy, AgentExit(code), RestartHistory(tuple(times)), NOW, lambda: chance)
    if decision.phase is Phase.BACKOFF:
        assert len(decision.history.restarts) <= most
        assert decision.at is not None
        assert decision.at >= NOW + policy.backoff


def test_exit_codes_and_durations_are_described_in_words() -> None:
    assert describe(1) == "exited with 1"
    assert describe(137) == "was ended by SIGKILL"
    assert describe(255) == "exited with 255"
    assert [span(s) for s in (0.4, 5, 89, 90, 3599, 7200, 7500)] == [
        "0 s",
        "5 s",
        "89 s",
        "2 min",
        "60 min",
        "2 h 00 min",
        "2 h 05 min",
    ]
