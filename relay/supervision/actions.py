"""The response to an incident of a running agent: which action, when, and what to remember.

    idle, prompt, error ─→ the policy's action ─→ its attempts ─→ `then`, once ─→ nothing more

Real progress resets the counts: a prompt from the user, or a message that started a turn. Nudges and gate
output are never progress, so an agent that only answers nudges reaches its `then`. A successful turn resets
the error counts: the cause is gone.

Every input is an argument, so the decision is a pure function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from relay.dataclass import dataclass, replace
from relay.supervision.events import Incident
from relay.supervision.policy import Action, ActionName, Supervision
from relay.supervision.restart import LIMIT_TRIES, LIMIT_WAIT, RESET_MARGIN

REPEATED = frozenset({"nudge", "gate", "run", "wait", "restart", "resume"})
"""Actions that are repeated if the incident recurs. All others are done once."""

ACCOUNT = frozenset({"unauthorized", "billing"})
"""Classes of errors that hold the whole account, not only the agent that encountered them."""

NONE = Action("none")

ERRORS: Mapping[str, Action] = {
    "rate_limited": Action("wait"),
    "overloaded": Action("wait"),
    "network": Action("wait"),
    "unauthorized": Action("hold"),
    "billing": Action("hold"),
    "context_full": Action("escalate"),
}
"""The default actions for errors, by class; other classes have none."""

IDLE_TEXT = "You have been idle. If your task is not done, continue it. If you cannot, say what you need."
CONTINUE_TEXT = "Your last turn ended with an error ({}) that may be over. Continue where you stopped."


@dataclass(frozen=True, slots=True)
class Tries:
    """The tries for one kind of incident since the last real progress.

    count: their number. at: the time of the last one, in seconds since the epoch. over: no more will follow.
    """

    count: int = 0
    at: float = 0.0
    over: bool = False


@dataclass(frozen=True, slots=True)
class ActionStep:
    """The action that follows an incident.

    at:     when, in seconds since the epoch. number, most: which try of how many; 0 for an action done once.
    text:   the text that a nudge types; "": the default. run: the command of a gate or of `run`.
    tries:  the tries including this one, to remember.
    """

    action: ActionName
    at: float
    tries: Tries
    number: int = 0
    most: int = 0
    text: str = ""
    run: str = ""


def kind_of(incident: Incident) -> str:
    """Return the kind by which tries are counted: "idle", "prompt", "error/network"."""
    return f"{incident.name}/{incident.cls}" if incident.cls else incident.name


def chosen(policy: Supervision, incident: Incident) -> Action:
    match incident.name:
        case "idle":
            return policy.on_idle or (Action("escalate") if policy.prompt else NONE)
        case "prompt":
            return policy.on_prompt or Action("escalate")
        case "error":
            own = (each for each in policy.on_error if each.match in {"", incident.cls})
            return next(own, None) or ERRORS.get(incident.cls, NONE)


def decide(
    policy: Supervision, incident: Incident, tries: Tries, now: float, chance: Callable[[], float]
) -> ActionStep | None:
    """Return the next step for an incident; None: nothing, or nothing more.

    tries: the earlier ones of its kind. now: seconds since the epoch. chance: returns a number from 0 to 1.
    """
    action = chosen(policy, incident)
    if tries.over or action.action == "none":
        return None
    step = partial(ActionStep, text=action.text, run=action.run)
    if action.action not in REPEATED:
        return step(action.action, now, Tries(1, now, over=True))
    most = LIMIT_TRIES if action.action == "wait" else action.attempts
    if tries.count >= most:
        last = replace(tries, at=now, over=True)
        return None if action.then in {"none", "wait"} else step(action.then, now, last)
    if action.action == "wait":
        at = now + _wait(incident, tries.count, now, chance)
    else:
        at = max(now, tries.at + action.cooldown) if tries.count else now
    return step(action.action, at, Tries(tries.count + 1, at), tries.count + 1, most)


def _wait(incident: Incident, earlier: int, now: float, chance: Callable[[], float]) -> float:
    """Return the seconds until the agent is asked to continue after an error that time fixes."""
    if incident.reset_at is not None and incident.reset_at > now:
        least, most = RESET_MARGIN
        return incident.reset_at - now + least + (most - least) * chance()
    return LIMIT_WAIT.wait(earlier + 1, chance())
