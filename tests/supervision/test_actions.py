"""The response to each incident of a running agent: every event, action and number of attempts."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.supervision.actions import ERRORS, REPEATED, ActionStep, Tries, chosen, decide, kind_of
from relay.supervision.events import Incident
from relay.supervision.policy import Action, ActionName, Supervision
from relay.supervision.restart import LIMIT_TRIES, LIMIT_WAIT, RESET_MARGIN

NOW = 1_000_000.0
ACTIONS = get_args(ActionName)
CLASSES = (*ERRORS, "other", "")
INCIDENTS = [Incident("idle"), Incident("prompt"), *(Incident("error", cls) for cls in CLASSES)]


def response(
    policy: Supervision, incident: Incident, tries: Tries | None = None, now: float = NOW
) -> ActionStep | None:
    return decide(policy, incident, tries or Tries(), now, lambda: 0.0)


def responses(policy: Supervision, incident: Incident, *, most: int = 20, interval: float = 1e6) -> list[str]:
    """Return the actions if the incident recurs and nothing else happens."""
    found, tries, now = [], Tries(), NOW
    for _ in range(most):
        if (step := response(policy, incident, tries, now)) is not None:
            found.append(step.action)
            tries = step.tries
        now += interval
    return found


def policy_of(incident: Incident, action: Action) -> Supervision:
    match incident.name:
        case "idle":
            return Supervision(on_idle=action)
        case "prompt":
            return Supervision(on_prompt=action)
    return Supervision(on_error=(action,))


@pytest.mark.parametrize(
    ("policy", "incident", "actions"),
    [
        (Supervision(), Incident("idle"), []),
        (Supervision(prompt="do it"), Incident("idle"), ["escalate"]),
        (Supervision(), Incident("prompt"), ["escalate"]),
        (Supervision(), Incident("error", "rate_limited", NOW + 3600), ["wait"] * 6 + ["escalate"]),
        (Supervision(), Incident("error", "rate_limited"), ["wait"] * 6 + ["escalate"]),
        (Supervision(), Incident("error", "overloaded"), ["wait"] * 6 + ["escalate"]),
        (Supervision(), Incident("error", "network"), ["wait"] * 6 + ["escalate"]),
        (Supervision(), Incident("error", "unauthorized"), ["hold"]),
        (Supervision(), Incident("error", "billing"), ["hold"]),
        (Supervision(), Incident("error", "context_full"), ["escalate"]),
        (Supervision(), Incident("error", "other"), []),
    ],
)
def test_each_incident_has_a_default_response(
    policy: Supervision, incident: Incident, actions: list[str]
) -> None:
    assert responses(policy, incident) == actions


def test_every_action_ends_after_its_attempts(subtests: pytest.Subtests) -> None:
    """`then` follows once, and nothing after it."""
    for incident, action, attempts in itertools.product(INCIDENTS, ACTIONS, [1, 2, 5]):
        with subtests.test(f"{kind_of(incident)}: {action}, {attempts} attempts"):
            found = responses(policy_of(incident, Action(action, attempts=attempts, then="fail")), incident)
            match action:
                case "none":
                    assert found == []
                case "wait":
                    assert found == ["wait"] * LIMIT_TRIES + ["fail"]
                case "nudge" | "gate" | "run" | "restart" | "resume":
                    assert found == [action] * attempts + ["fail"]
                case _:
                    assert found == [action]


def test_the_then_action_runs_once(subtests: pytest.Subtests) -> None:
    for then in ACTIONS:
        with subtests.test(then):
            found = responses(Supervision(on_idle=Action("nudge", then=then)), Incident("idle"))
            assert found == (["nudge"] if then in {"none", "wait"} else ["nudge", then])


def test_an_attempt_waits_for_the_cooldown_of_the_previous_one() -> None:
    policy, idle = Supervision(on_idle=Action("nudge", attempts=3, cooldown=90)), Incident("idle")
    first = response(policy, idle)
    assert first is not None and (first.at, first.number, first.most) == (NOW, 1, 3)
    second = response(policy, idle, first.tries, NOW + 10)
    assert second is not None and (second.at, second.number) == (NOW + 90, 2)
    third = response(policy, idle, second.tries, NOW + 500)
    assert third is not None and third.at == NOW + 500


def test_waits_double_up_to_a_limit() -> None:
    tries, waits = Tries(), []
    while (step := response(Supervision(), Incident("error", "network"), tries)) and step.action == "wait":
        waits.append(step.at - NOW)
        tries = step.tries
    assert waits == [min(LIMIT_WAIT.first * 2**n, LIMIT_WAIT.last) for n in range(LIMIT_TRIES)]


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_known_reset_sets_the_wait(chance: float) -> None:
    incident = Incident("error", "rate_limited", NOW + 3600)
    step = decide(Supervision(), incident, Tries(), NOW, lambda: chance)
    assert step is not None and step.at == NOW + 3600 + RESET_MARGIN[int(chance)]


def test_a_reset_that_has_passed_counts_as_unknown() -> None:
    step = response(Supervision(), Incident("error", "rate_limited", NOW - 1))
    assert step is not None and step.at == NOW + LIMIT_WAIT.first


def test_the_first_action_that_matches_the_error_class_wins() -> None:
    own = (Action("fail", match="billing"), Action("nudge", match="network", text="on"), Action("stop"))
    policy = Supervision(on_error=own)
    assert [chosen(policy, Incident("error", cls)).action for cls in ("billing", "network", "other")] == [
        "fail",
        "nudge",
        "stop",
    ]
    step = response(policy, Incident("error", "network"))
    assert step is not None and step.text == "on"


def test_an_unmatched_error_gets_the_default_action() -> None:
    policy = Supervision(on_error=(Action("fail", match="billing"),))
    assert chosen(policy, Incident("error", "unauthorized")).action == "hold"


@given(
    action=st.sampled_from(ACTIONS),
    then=st.sampled_from(ACTIONS),
    attempts=st.integers(0, 30),
    cooldown=st.floats(0, 1e4),
    gaps=st.lists(st.floats(0, 1e5), max_size=60),
    incident=st.sampled_from(INCIDENTS),
)
def test_responses_are_bounded(
    action: ActionName,
    then: ActionName,
    attempts: int,
    cooldown: float,
    gaps: list[float],
    incident: Incident,
) -> None:
    """However often an incident recurs; and no response comes too early."""
    policy = policy_of(incident, Action(action, attempts=attempts, cooldown=cooldown, then=then))
    steps, tries, now = [], Tries(), NOW
    for gap in gaps:
        now += gap
        if step := response(policy, incident, tries, now):
            assert step.at >= now
            if steps and step.action in REPEATED and not step.tries.over and action != "wait":
                assert step.at >= steps[-1].at + cooldown
            steps.append(step)
            tries = step.tries
            now = max(now, step.at)
    assert len(steps) <= max(attempts, LIMIT_TRIES) + 1
