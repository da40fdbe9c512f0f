"""The decision about an ended agent: whether and when to restart it, or why not.

Every input is an argument, so the decision is a pure function of the policy, the exit, and the history of
earlier exits.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.backoff import Backoff
from relay.dataclass import dataclass, replace
from relay.supervision.states import PAUSED, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.supervision.policy import Supervision

RESET_MARGIN = (60.0, 360.0)
"""Least and most seconds from a limit's reset until an agent continues, so that an account's agents do not
all start at once."""

JITTER = (1.0, 1.2)

LIMIT_WAIT, LIMIT_TRIES = Backoff(30.0, 900.0, JITTER), 6
"""If a limit's reset is unknown: the waits before the tries, and the number of tries."""

LIMITS = frozenset({"rate_limited", "overloaded", "network"})
"""Classes of failures that pass with time."""

NEEDS_USER = frozenset({"unauthorized", "billing", "context_full"})
"""Classes of failures that a restart does not fix."""


@dataclass(frozen=True, slots=True)
class AgentExit:
    """The end of an agent.

    code:     its exit code, 128+N for signal N.
    ran:      seconds that it ran. worked: it has finished a turn.
    by_user:  the user asked for it: `relay stop`, `relay down`, or q in the terminal.
    expected: the user has just typed Ctrl-C, Ctrl-D or a command that ends the agent.
    failure:  the class of the failure that it ended with; "": none is known.
    reset_at: when a limit ends, in seconds since the epoch; None: unknown.
    why:      the text to show instead of its code; "": its code says enough.
    """

    code: int
    ran: float = 0.0
    worked: bool = False
    by_user: bool = False
    expected: bool = False
    failure: str = ""
    reset_at: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """Earlier exits of an agent that count in the next decision.

    restarts: the times of restarts after failures, in seconds since the epoch. waits: consecutive waits for a
    limit whose reset is unknown.
    """

    restarts: tuple[float, ...] = ()
    waits: int = 0


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """The decision about an agent that has ended.

    phase:   its new state. In one of PAUSED, its session waits to restart it.
    reason:  in words for the user: "exited with 1".
    at:      when it will be restarted, in seconds since the epoch; None: when the user says so, or never.
    note:    what happens next, for the user: "restarting in 5 s (2 of 3)"; "": nothing.
    history: the history for the next decision.
    """

    phase: Phase
    reason: str
    at: float | None = None
    note: str = ""
    history: RestartHistory = RestartHistory()

    @property
    def pauses(self) -> bool:
        """True if the agent's session waits to restart it."""
        return self.phase in PAUSED


def decide(
    policy: Supervision, ended: AgentExit, history: RestartHistory, now: float, chance: Callable[[], float]
) -> RestartDecision:
    """Decide what follows the end of an agent.

    now: seconds since the epoch. chance: returns a number from 0 to 1.
    """
    reason = ended.why or describe(ended.code)
    if ended.by_user:
        return RestartDecision(Phase.OFF, "stopped", history=RestartHistory())
    success = ended.code in policy.success_exit_codes
    if ended.expected:
        return RestartDecision(Phase.DONE, f"{reason}, at your request")
    if policy.restart == "no" or (success and policy.restart == "on-failure" and not ended.failure):
        return RestartDecision(Phase.DONE if success else Phase.FAILED, reason)
    if ended.failure in NEEDS_USER:
        why = f"{reason} ({words(ended.failure)})"
        return RestartDecision(Phase.HELD, why, note="it is waiting for you", history=history)
    if ended.failure in LIMITS:
        return _wait(ended, reason, history, now, chance)
    return _back_off(policy, ended, reason, history, now, chance)


def _wait(
    ended: AgentExit, reason: str, history: RestartHistory, now: float, chance: Callable[[], float]
) -> RestartDecision:
    reason = f"{reason} ({words(ended.failure)})"
    if ended.reset_at is not None and ended.reset_at > now:
        least, most = RESET_MARGIN
        at = ended.reset_at + least + (most - least) * chance()
        note = f"waiting until the limit resets; continuing in {span(at - now)}"
        return RestartDecision(Phase.WAITING, reason, at, note, replace(history, waits=0))
    if history.waits >= LIMIT_TRIES:
        return RestartDecision(Phase.FAILED, f"{reason}; {LIMIT_TRIES} attempts failed", history=history)
    pause = LIMIT_WAIT.wait(history.waits + 1, chance())
    note = f"trying again in {span(pause)} ({history.waits + 1} of {LIMIT_TRIES})"
    return RestartDecision(
        Phase.WAITING, reason, now + pause, note, replace(history, waits=history.waits + 1)
    )


def _back_off(
    policy: Supervision,
    ended: AgentExit,
    reason: str,
    history: RestartHistory,
    now: float,
    chance: Callable[[], float],
) -> RestartDecision:
    stable = ended.worked and ended.ran >= policy.stable_after
    counted = () if stable else tuple(at for at in history.restarts if at > now - policy.restart_window)
    if len(counted) >= policy.max_restarts:
        most = policy.max_restarts
        times = "once" if most == 1 else f"{most} times"
        why = f"{reason}; restarted {times} within {span(policy.restart_window)}" if most else reason
        return RestartDecision(Phase.FAILED, why, history=RestartHistory(counted))
    pause = Backoff(policy.backoff, policy.backoff_max, JITTER).wait(len(counted) + 1, chance())
    note = f"restarting in {span(pause)} ({len(counted) + 1} of {policy.max_restarts})"
    return RestartDecision(Phase.BACKOFF, reason, now + pause, note, RestartHistory((*counted, now)))


def describe(code: int) -> str:
    """Return how an agent has ended, in words: "exited with 1", "was ended by SIGKILL"."""
    if code > 128:
        import signal

        try:
            return f"was ended by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exited with {code}"


def words(failure: str) -> str:
    return {
        "rate_limited": "usage limit",
        "unauthorized": "not logged in",
        "billing": "out of credits",
        "context_full": "context full",
        "overloaded": "the model is overloaded",
        "network": "network failure",
    }.get(failure, failure)


def span(seconds: float) -> str:
    """Return a duration in words, rounded: "5 s", "3 min", "2 h 05 min"."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
