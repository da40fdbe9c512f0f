"""What a handler answers: one `HookResult`, for which a string, a dict or None are short forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from relay.text import one_line

Action = Literal["continue", "inject_context", "deny"]
Role = Literal["system", "user", "assistant"]
Level = Literal["info", "warning", "error"]

_ALLOWED = (
    "Return None, a string (text to inject), a dict such as {'inject': TEXT, 'stop': True}, or a HookResult."
)
_ALIASES = {"continue": "force_continue"}


@dataclass(frozen=True, slots=True)
class HookResult:
    """The answer of one handler.

    action:                 "continue", "inject_context" together with `context_injection`, or "deny", which
                            stops the tool call of tool_pre or the prompt of prompt_submit.
    reason:                 why it is denied; the agent reads it.
    force_continue:         of agent_end: the agent goes on with its turn though no text is injected.
    context_injection:      text for the agent; of agent_end: what it goes on with.
    context_injection_role: the role asked for; what is typed into a terminal always arrives as user input.
    user_message:           text for the person, kept out of the agent's context; with `user_message_level`.
    wake:                   False: the text may wait for the agent's next turn, where its hooks can carry it.
    stop:                   no further handler of this directive or event runs.
    source:                 the handler's name; relay fills it in.

    Raises ValueError where action and text do not fit together or a value is not one of those allowed.
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
    source: str = ""

    def __post_init__(self) -> None:
        for name, kind in (
            ("action", Action),
            ("context_injection_role", Role),
            ("user_message_level", Level),
        ):
            value = getattr(self, name)
            if value not in get_args(kind):
                allowed = ", ".join(map(repr, get_args(kind)))
                raise ValueError(f"{name} is {_shown(value)}; use one of {allowed}.")
        for name in ("context_injection", "user_message", "reason"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                raise ValueError(f"{name} is {_shown(value)}; use a string or None.")
        for name in ("stop", "wake", "force_continue"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {_shown(value)}; use True or False.")
        if self.action == "inject_context" and self.context_injection is None:
            raise ValueError("action 'inject_context' needs the text as context_injection=...")
        if self.action != "inject_context" and self.context_injection is not None:
            raise ValueError("context_injection needs action='inject_context'.")
        if self.action == "deny" and not (self.reason or "").strip():
            raise ValueError("action 'deny' needs its reason, for the agent to read: reason='...'.")
        if self.action != "deny" and self.reason is not None:
            raise ValueError("reason needs action='deny'.")

    @classmethod
    def inject(cls, text: str, *, source: str = "", stop: bool = False) -> HookResult:
        """A result that gives `text` to the agent; an empty text gives nothing."""
        if not text:
            return cls(source=source, stop=stop)
        return cls("inject_context", text, source=source, stop=stop)


_FIELDS = tuple(field.name for field in fields(HookResult) if field.name != "source")


def result_of(value: object) -> HookResult:
    """The HookResult that a handler meant by returning `value`; ValueError says what else is allowed."""
    match value:
        case None:
            return HookResult()
        case HookResult():
            return value
        case str():
            return HookResult.inject(value)
        case Mapping():
            return _from_mapping(value)
        case _:
            raise ValueError(f"returned {_shown(value)}. {_ALLOWED}")


def _from_mapping(value: Mapping[Any, Any]) -> HookResult:
    given = {_ALIASES.get(key, key): item for key, item in value.items()}
    unknown = [key for key in given if key not in (*_FIELDS, "inject", "deny")]
    if unknown:
        raise ValueError(
            f"returned a dict with the key {_shown(unknown[0])}. "
            f"The keys are inject, deny, {', '.join((*_ALIASES, *_FIELDS))}."
        )
    for key, action, field in (("deny", "deny", "reason"), ("inject", "inject_context", "context_injection")):
        text = given.pop(key, None)
        if text is None or text == "":
            continue
        if not isinstance(text, str):
            what = "the reason, for the agent to read" if key == "deny" else "the text to inject"
            raise ValueError(f"returned {key!r}: {_shown(text)}; the value is {what}, a string.")
        if "action" in given:
            raise ValueError(f"returned {key!r} together with the action {_shown(given['action'])}.")
        given |= {"action": action, field: text}
    return HookResult(**given)


def injected(results: Iterable[HookResult]) -> list[str]:
    """The texts that `results` inject, in firing order (R6)."""
    return [result.context_injection for result in results if result.context_injection is not None]


def denied(results: Iterable[HookResult]) -> str | None:
    """Why `results` deny what they were asked about, each reason in firing order; None if none does."""
    reasons = [result.reason for result in results if result.action == "deny" and result.reason]
    return "\n".join(reasons) or None


def _shown(value: object) -> str:
    return f"{one_line(repr(value), 60)} ({type(value).__name__})"
