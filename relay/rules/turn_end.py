"""The end of a turn: what rules and handlers are told of it, and whether the agent goes on.

    Ending ─→ rules and handlers ─→ results ─→ decide_stop ─→ StopDecision

One decision, wherever the end was seen: by the agent's own hook, on its screen, or in `relay hooks test Stop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relay.hooks.events import AgentEnd
from relay.hooks.result import HookResult, decide, injected
from relay.rules import aggregate
from relay.rules.aggregate import Fired
from relay.rules.event import EVENTS
from relay.state.turn import Turn

GO_ON = "Go on."
"""The text that an agent goes on with where a handler or a rule wants that and gives none."""

_CAPPED = (
    "a handler of agent_end, or a rule, wants the agent to go on once more; it has done so {most} times in a "
    "row, which is the most (continuations in relay.toml). It is left at its prompt."
)

_RUNAWAY = (
    "a handler of agent_end, or a rule, wants the agent to go on, but its messages of this turn are held as "
    "those of a runaway (`relay messages --state held`). It is left at its prompt."
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a turn, as far as the agent may go on with it.

    continuations: how often in a row it did; most: how often it may.
    runaway:       messages that the agent sent in this turn are held by the runaway guard.
    halted:        a rule or a handler has stopped this turn.
    """

    continuations: int
    most: int
    runaway: bool = False
    halted: bool = False

    @classmethod
    def of(cls, turn: Turn, most: int) -> Ending:
        """Return how `turn` ends now."""
        return cls(turn.continuations, most, turn.runaway, bool(turn.halted))

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], most: int) -> Ending:
        """Return the ending that the payload of a Stop describes, as `facts` would have."""
        if payload.get("turn_end_reason") == "doom_loop":
            return cls(0, most, runaway=True)
        active = payload.get("stop_hook_active") is True
        return cls(max(most - 1, 1) if payload.get("at_max_iter") is True else int(active), most)

    @property
    def capped(self) -> bool:
        """True if the agent may not go on until somebody submits a prompt."""
        return self.runaway or self.halted or self.continuations >= self.most

    @property
    def at_max_iter(self) -> bool:
        """True if the next continuation would be the last, or one too many; the first never counts so."""
        return self.continuations >= max(self.most - 1, 1)

    @property
    def turn_end_reason(self) -> str:
        """`doom_loop`, `max_iterations` or `final_response`, as rules are told."""
        if self.runaway:
            return "doom_loop"
        return "max_iterations" if self.at_max_iter else "final_response"

    def facts(self) -> dict[str, Any]:
        """Return the fields that rules of Stop are told of it."""
        return {
            "stop_hook_active": self.continuations > 0,
            "turn_end_reason": self.turn_end_reason,
            "at_max_iter": self.at_max_iter,
        }

    @property
    def refusal(self) -> str:
        """One line for the user where the agent is `capped`."""
        return _RUNAWAY if self.runaway else _CAPPED.format(most=self.most)


@dataclass(frozen=True, slots=True)
class StopDecision:
    """What the answers to a Stop come to.

    outcome: "end": nothing is wanted; "halt": a turn that was stopped ends, for `reason`; "refuse": the agent
             would go on, and is `capped`; "go_on".
    texts:   what it goes on with, or would.
    forced:  the name of the handler or rule that wants it to go on without giving a text; "" otherwise.
    """

    outcome: Literal["end", "halt", "refuse", "go_on"]
    reason: str | None = None
    texts: tuple[str, ...] = ()
    forced: str = ""

    def given(self, results: Sequence[HookResult]) -> list[HookResult]:
        """Return `results`, and where the agent goes on without a text of theirs, one with a text of relay's."""
        return [*results, HookResult.inject(GO_ON, source=self.forced)] if self.forced else list(results)


def decide_stop(results: Sequence[HookResult], ending: Ending) -> StopDecision:
    """Return what `results`, the answers of rules and handlers to a Stop, come to."""
    decision = decide(results)
    if decision.action == "halt":
        return StopDecision("halt", decision.reason)
    texts = injected(results)
    forced = next((each.source for each in results if each.force_continue), None)
    if ending.halted or (not texts and forced is None):
        return StopDecision("end")
    named = "" if texts else forced or "a handler"
    return StopDecision("refuse" if ending.capped else "go_on", None, tuple(texts or [GO_ON]), named)


def rule_outcome(fired: Fired, ending: Ending) -> str:
    """Return what came of the rules of a Stop: whether the agent goes on, and whether that is the last time."""
    outcome = aggregate.outcome(fired)
    if outcome != "continue":
        return outcome
    if ending.capped:
        return "reentry_capped"
    return "continue_at_max_iter" if ending.at_max_iter else "continue"


def journal_fields(fired: Fired, ending: Ending | None) -> dict[str, Any]:
    """Return what the journal's "hook_fired" says of an event beside what it says of all."""
    match fired.event.name:
        case "UserPromptSubmit":
            prompt = aggregate.user_prompt_submit(fired)
            return {
                "blocking_error": prompt.blocking_error,
                "stop_reason": prompt.stop_reason,
                "added_context_count": len(prompt.additional_contexts),
            }
        case "Stop" if ending is not None:
            stop = aggregate.stop(fired)
            return {
                "turn_end_reason": ending.turn_end_reason,
                "at_max_iter": ending.at_max_iter,
                "added_context_count": len(stop.additional_contexts),
                "suppress_output": stop.suppress_output,
            }
        case "PreCompact":
            return {"compaction_type": None, "trigger": fired.event.data.get("trigger")}
        case name if "tool_input" in EVENTS[name].own:
            return {"tool": fired.event.data.get("tool_name")}
        case _:
            return {}


def agent_end(turn: Turn, *, last: str = "", error: str | None = None) -> AgentEnd:
    """Return the event of the end of `turn` for handlers. error: why it failed; None: it did not."""
    return AgentEnd(
        messages=tuple(turn.messages),
        success=error is None,
        last_assistant_message=last or None,
        error=None if error is None else error or "the agent's model failed",
        duration_ms=None if turn.took is None else turn.took * 1000,
    )
