"""The supervision policy of one agent: restarts, limits, and actions for its events.

The keys are those of an agent's table in the fleet file (docs/FLEET.md); `relay wrap --restart` sets some of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from relay.dataclass import dataclass, field, fields, replace

Restart = Literal["no", "on-failure", "always"]
Resume = Literal["auto", "never", "require"]
ActionName = Literal[
    "nudge", "gate", "done", "fail", "resume", "restart", "wait", "hold", "escalate", "run", "stop", "none"
]


@dataclass(frozen=True, slots=True)
class Action:
    """The action for an event.

    match:    the class of error that this action is for (`on_error` only); "": any.
    run:      the command of `run` and `gate`. If a gate exits with 0, the agent is done; otherwise the gate's
              output is the agent's next prompt.
    cooldown: seconds between two tries.
    """

    action: ActionName
    match: str = ""
    text: str = ""
    run: str = ""
    attempts: int = 1
    cooldown: float = 30.0
    then: ActionName = "escalate"


@dataclass(frozen=True, slots=True)
class Supervision:
    """The supervision of one agent: the keys of relay.supervision.schema, and what follows from them.

    Times are in seconds; 0 means no limit for each `max_`.

    prompt: the first prompt of a new conversation; "": none.
    fresh:  the command that starts a new conversation, if this run resumes an earlier one; (): it does not.
    fleet, digest: the fleet file that defines the agent, and a digest of its table there; "": none.
    spawns: it may start other agents; the file is checked again each time.
    parent: the agent that started it; "": the user did. model: the agent of the file that it is a copy of.
    on_idle, on_prompt: None is the default: docs/FLEET.md, "What happens when".
    """

    restart: Restart = "no"
    success_exit_codes: tuple[int, ...] = (0,)
    max_restarts: int = 3
    restart_window: float = 900.0
    backoff: float = 5.0
    backoff_max: float = 600.0
    stable_after: float = 600.0
    start_timeout: float = 120.0
    resume: Resume = "auto"
    account: str = "default"
    idle_grace: float = 60.0
    max_unattended_turns: int = 100
    max_cost: float = 0.0
    max_tokens: int = 0
    max_runtime: float = 0.0
    on_idle: Action | None = None
    on_prompt: Action | None = None
    on_error: tuple[Action, ...] = field(default=())
    prompt: str = ""
    fresh: tuple[str, ...] = ()
    fleet: str = ""
    digest: str = ""
    spawns: bool = False
    parent: str = ""
    model: str = ""

    @property
    def attends(self) -> bool:
        """True if the session has more to do for this agent than for any other."""
        return replace(self, fresh=()) != Supervision()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Supervision:
        """Return the policy from what `asdict` returned; ignore keys of another version."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        for name in ("on_idle", "on_prompt"):
            if given.get(name) is not None:
                given[name] = Action(**given[name])
        if "on_error" in given:
            given["on_error"] = tuple(Action(**each) for each in given["on_error"])
        for name in {"success_exit_codes", "fresh"} & given.keys():
            given[name] = tuple(given[name])
        return cls(**given)
