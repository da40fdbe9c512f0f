"""The result of a handler: a `HookResult`, or a string, a dict or None as a short form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from relay.dataclass import dataclass, fields
from relay.text import one_line

Action = Literal["continue", "allow", "modify", "inject_context", "ask", "deny", "halt"]
"""What a handler or a rule requests, weakest first; the strongest of several wins (`decide`)."""

Role = Literal["system", "user", "assistant"]
Level = Literal["info", "warning", "error"]

_ALLOWED = (
    "Return None, a string (text to inject), a dict such as {'inject': TEXT, 'stop': True}, or a HookResult."
)
_ALIASES = {"continue": "force_continue"}
_REASONED = frozenset({"allow", "ask", "deny", "halt"})


@dataclass(frozen=True, slots=True)
class HookResult:
    """The result of one handler, or one of the results of a rule's command.

    action:                 "continue"        requests nothing
                            "inject_context"  gives `context_injection` to the agent
                            of tool_pre:      "allow" it, without asking the user; "modify" its input to
                                              `updated_input`; have the agent "ask" the user; "deny" it
                            of prompt_submit: "deny" it
                            "halt"            stops the current action, and the turn with it
    reason:                 why it is allowed, asked for, denied or halted; "deny" and "halt" need one.
    updated_input:          the tool's whole input, replacing the agent's.
    force_continue:         for agent_end: the agent continues its turn even without injected text.
    context_injection:      text for the agent; for agent_end, the text to continue with.
    context_injection_role: the requested role; typed text always arrives as user input.
    user_message:           text for the user, not for the agent; with `user_message_level`.
    wake:                   False: the text may wait for the agent's next turn, if its hooks can deliver it.
    suppress_output:        relay does not show the injected text.
    stop:                   no further handler of this directive or event runs.
    source:                 the handler's name; relay fills it in.
    place, event:           of a rule's answer: the rule's file and line, and the event; relay fills them in.

    Raise ValueError if action and text do not match, or a value is not allowed.
    """

    action: Action = "continue"
    context_injection: str | None = None
    context_injection_role: Role = "system"
    user_message: str | None = None
    user_message_level: Level = "info"
    stop: bool = False
    wake: bool = True
    reason: str | None = None
    force_continue: bool = False
    updated_input: Mapping[str, Any] | None = None
    suppress_output: bool = False
    source: str = ""
    place: str = ""
    event: str = ""

    def __post_init__(self) -> None:
        choices = {"action": Action, "context_injection_role": Role, "user_message_level": Level}
        for name, kind in choices.items():
            if (value := getattr(self, name)) not in get_args(kind):
                allowed = ", ".join(map(repr, get_args(kind)))
                raise ValueError(f"{name} is {_shown(value)}; use one of {allowed}.")
        for name in ("context_injection", "user_message", "reason"):
            if not isinstance(value := getattr(self, name), str | None):
                raise ValueError(f"{name} is {_shown(value)}; use a string or None.")
        for name in ("stop", "wake", "force_continue", "suppress_output"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} is {_shown(value)}; use True or False.")
        if self.action == "inject_context" and self.context_injection is None:
            raise ValueError("action 'inject_context' needs its text in context_injection=...")
        if self.action != "inject_context" and self.context_injection is not None:
            raise ValueError("context_injection needs action='inject_context'.")
        if self.action in {"deny", "halt"} and not (self.reason or "").strip():
            raise ValueError(f"action {self.action!r} needs a reason for the agent to read: reason='...'.")
        if self.action not in _REASONED and self.reason is not None:
            raise ValueError("reason needs action='deny', 'ask', 'halt' or 'allow'.")
        if not isinstance(self.updated_input, Mapping | None):
            raise ValueError(f"updated_input is {_shown(self.updated_input)}; use a dict or None.")
        try:
            json.dumps(None if self.updated_input is None else dict(self.updated_input))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"updated_input cannot be written as JSON: {error}.") from None
        if (self.action == "modify") != (self.updated_input is not None):
            raise ValueError(
                "action 'modify' and updated_input={...}, the tool's whole input, must be used together."
            )

    @classmethod
    def inject(cls, text: str, *, source: str = "") -> HookResult:
        """Return a result that gives `text` to the agent; an empty text gives nothing."""
        action: Action = "inject_context" if text else "continue"
        return cls(action, text or None, source=source)


_REASON = "the reason, for the agent to read, a string"
_SHORT: dict[str, tuple[Action, str, str]] = {
    "halt": ("halt", "reason", _REASON),
    "deny": ("deny", "reason", _REASON),
    "ask": ("ask", "reason", _REASON),
    "inject": ("inject_context", "context_injection", "the text to inject, a string"),
    "modify": ("modify", "updated_input", "the tool's whole input, a dict"),
}
"""Short forms, each with the action and the field that it stands for, and a description of its value."""

_FIELDS = tuple(field.name for field in fields(HookResult) if field.name not in {"source", "place", "event"})


def result_of(value: object) -> HookResult:
    """Convert a handler's return value to a HookResult. Raise ValueError, which says what is allowed."""
    if value is None or isinstance(value, str):
        return HookResult.inject(value or "")
    if isinstance(value, HookResult):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"returned {_shown(value)}. {_ALLOWED}")
    given: dict[Any, Any] = {_ALIASES.get(key, key): item for key, item in value.items()}
    if unknown := [key for key in given if key not in (*_FIELDS, *_SHORT)]:
        raise ValueError(
            f"returned a dict with the key {_shown(unknown[0])}. "
            f"The keys are {', '.join((*_SHORT, *_ALIASES, *_FIELDS))}."
        )
    for key, (action, field, what) in _SHORT.items():
        item = given.pop(key, None)
        if item is None or item in ("", {}):
            continue
        if not isinstance(item, Mapping if key == "modify" else str):
            raise ValueError(f"returned {key!r}: {_shown(item)}; the value is {what}.")
        if "action" in given:
            raise ValueError(f"returned {key!r} together with the action {_shown(given['action'])}.")
        given |= {"action": action, field: item}
    return HookResult(**given)


def injected(results: Iterable[HookResult]) -> list[str]:
    """Return the texts that `results` inject, in firing order."""
    return [result.context_injection for result in results if result.context_injection is not None]


@dataclass(frozen=True, slots=True)
class Decision:
    """The combined decision of several results.

    action:        the strongest: halt > deny > ask > inject_context > modify > allow > continue.
    reason:        why, in firing order; several reasons each begin with their source's name.
    allowed:       a result allows it, and none objects.
    updated_input: the last modification, which was made with the earlier ones in view.
    """

    action: Action = "continue"
    reason: str = ""
    allowed: bool = False
    updated_input: Mapping[str, Any] | None = None

    @property
    def refused(self) -> bool:
        """True if the action must not continue as it is."""
        return self.action in _REFUSING


_REFUSING = frozenset({"ask", "deny", "halt"})
_STRENGTH: dict[Action, int] = {action: strength for strength, action in enumerate(get_args(Action))}


def decide(results: Iterable[HookResult]) -> Decision:
    """Combine `results`, given in firing order. Texts are injected whatever the decision."""
    every = list(results)
    nothing: Action = "continue"
    action = max((result.action for result in every), key=_STRENGTH.__getitem__, default=nothing)
    reasons = [(each.source, each.reason) for each in every if each.action == action and each.reason]
    modified = [each.updated_input for each in every if each.updated_input is not None]
    allowed = action not in _REFUSING and any(each.action == "allow" for each in every)
    return Decision(action, joined(reasons), allowed, modified[-1] if modified else None)


def joined(texts: Sequence[tuple[str, str]]) -> str:
    """Join (source, text) pairs into one text; several texts each begin with their source."""
    if len(texts) == 1:
        return texts[0][1]
    return "\n".join(f"{source}: {text}" if source else text for source, text in texts)


def refused_prompt(results: Iterable[HookResult]) -> str | None:
    """Return why a prompt is refused, marked as not the agent's answer; None if it is not refused."""
    every = list(results)
    if denied := decide(each for each in every if each.action in {"deny", "ask"}).reason:
        return f"[Blocked by hook] {denied}"
    halted = decide(each for each in every if each.action == "halt")
    return f"[Hook stopped] {halted.reason}" if halted.action == "halt" else None


def _shown(value: object) -> str:
    return f"{one_line(repr(value), 60)} ({type(value).__name__})"
