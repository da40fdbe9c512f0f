"""The end of a turn: the event for rules and handlers, and the decision whether the agent continues.

    Ending ─→ rules and handlers ─→ results ─→ decide_stop ─→ StopDecision

The decision is the same whether the agent's own hook reported the end, or relay saw it on the screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from relay.dataclass import dataclass
from relay.hooks.events import AgentEnd
from relay.hooks.result import HookResult, decide, injected
from relay.rules.aggregate import Fired, aggregate, outcome
from relay.rules.event import EVENTS
from relay.state.turn import Turn

CONTINUE = "Go on."  # the agent's input if a handler or a rule wants it to continue without giving a text

_CAPPED = (
    "a handler of agent_end, or a rule, wants the agent to continue, but it has already done so {most} times "
    "in a row, the maximum (continuations in relay.toml). relay leaves it at its prompt."
)

_RUNAWAY = (
    "a handler of agent_end, or a rule, wants the agent to continue, but relay holds its messages of this "
    "turn as a runaway (`relay messages --state held`). relay leaves it at its prompt."
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a turn, with the facts that limit whether the agent may continue.

    continuations: how often in a row it has continued; most: how often it may.
    runaway:       the runaway guard holds messages that the agent sent in this turn.
    halted:        a rule or a handler has stopped this turn.
    """

    continuations: int
    most: int
    runaway: bool = False
    halted: bool = False

    @classmethod
    def of(cls, turn: Turn, most: int) -> Ending:
        return cls(turn.continuations, most, turn.runaway, bool(turn.halted))

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], most: int) -> Ending:
        """Return the ending that the payload of a Stop describes (`facts`)."""
        if payload.get("turn_end_reason") == "doom_loop":
            return cls(0, most, runaway=True)
        if payload.get("at_max_iter") is True and most:
            return cls(max(most - 1, 1), max(most, 2))
        return cls(int(payload.get("stop_hook_active") is True and most > 2), most)

    @property
    def capped(self) -> bool:
        """True if the agent may not continue until someone submits a prompt."""
        return self.runaway or self.halted or self.continuations >= self.most

    @property
    def at_max_iter(self) -> bool:
        """True if the next continuation would be the last, or one too many; never true for the first."""
        return self.continuations >= max(self.most - 1, 1)

    @property
    def turn_end_reason(self) -> str:
        """`doom_loop`, `max_iterations` or `final_response`, as rules get it."""
        if self.runaway:
            return "doom_loop"
        return "max_iterations" if self.at_max_iter else "final_response"

    def facts(self) -> dict[str, Any]:
        """Return the fields that it adds to the payload of Stop rules."""
        return {
            "stop_hook_active": self.continuations > 0,
            "turn_end_reason": self.turn_end_reason,
            "at_max_iter": self.at_max_iter,
        }

    @property
    def refusal(self) -> str:
        """One line for the user if the agent is `capped`."""
        return _RUNAWAY if self.runaway else _CAPPED.format(most=self.most)


@dataclass(frozen=True, slots=True)
class StopDecision:
    """The combined decision of the answers to a Stop.

    outcome: "end": nothing is requested; "halt": the turn was stopped and ends, for `reason`; "refuse": the
             agent should continue, but is `capped`; "continue".
    texts:   those for the agent to continue with; also set if it may not.
    forced:  the name of the handler or rule that wants it to continue without giving a text; "" otherwise.
    """

    outcome: Literal["end", "halt", "refuse", "continue"]
    reason: str | None = None
    texts: tuple[str, ...] = ()
    forced: str = ""

    def given(self, results: Sequence[HookResult]) -> list[HookResult]:
        """Return `results`, plus a text from relay if the agent continues without one of theirs."""
        return [*results, HookResult.inject(CONTINUE, source=self.forced)] if self.forced else list(results)


def decide_stop(results: Sequence[HookResult], ending: Ending) -> StopDecision:
    """Combine `results`, the answers of rules and handlers to a Stop, into a decision."""
    decision = decide(results)
    if decision.action == "halt":
        return StopDecision("halt", decision.reason)
    texts = injected(results)
    forced = next((each.source for each in results if each.force_continue), None)
    if ending.halted or (not texts and forced is None):
        return StopDecision("end")
    named = "" if texts else forced or "a handler"
    return StopDecision("refuse" if ending.capped else "continue", None, tuple(texts or [CONTINUE]), named)


def stop_outcome(fired: Fired, ending: Ending) -> str:
    """Return the outcome of the rules of a Stop, and whether the agent continues for the last time."""
    match decide_stop(fired.results, ending).outcome:
        case "continue":
            return "continue_at_max_iter" if ending.at_max_iter else "continue"
        case "refuse":
            return "reentry_capped"
        case _:
            return "reentry_capped" if fired.continuing else outcome(fired)


def journal_fields(fired: Fired, ending: Ending | None) -> dict[str, Any]:
    """Return the fields of the journal's "hook_fired" that only events of this type have."""
    name, data = fired.event.name, fired.event.data
    if name == "PreCompact":
        return {"compaction_type": None, "trigger": data.get("trigger")}
    if "tool_input" in EVENTS[name].own:
        return {"tool": data.get("tool_name")}
    found = aggregate(fired)
    contexts = {"added_context_count": len(found["additional_contexts"])}
    if name == "UserPromptSubmit":
        return {key: found[key] for key in ("blocking_error", "stop_reason")} | contexts
    if name != "Stop" or ending is None:
        return {}
    end = {"turn_end_reason": ending.turn_end_reason, "at_max_iter": ending.at_max_iter}
    return end | contexts | {"suppress_output": found["suppress_output"]}


def agent_end(turn: Turn, *, last: str = "", error: str | None = None) -> AgentEnd:
    """Return the handlers' event for the end of `turn`. error: why it failed; None: it did not."""
    return AgentEnd(
        messages=tuple(turn.messages),
        success=error is None,
        last_assistant_message=last or None,
        error=None if error is None else error or "the agent's model failed",
        duration_ms=None if turn.took is None else turn.took * 1000,
    )
