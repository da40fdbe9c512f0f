"""The events of a session: one frozen dataclass per event.

The class's name determines the event's name (`SessionStart` is `session_start`), a handler may take its
fields as arguments, and its docstring is its documentation (docs/HOOKS.md shows it, and a test compares).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from relay import names
from relay.dataclass import fields
from relay.errors import ConfigError
from relay.eventbus import Event

EVENTS: dict[str, type[HandlerEvent]] = {}
"""Every event by its name, in the order of a session's life."""


def _snake(camel: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", camel).lower()


class HandlerEvent(Event):
    """An event that users can handle. Its name comes from its class; subclasses register in `EVENTS`."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.name = _snake(cls.__name__)
        EVENTS[cls.name] = cls  # dataclass(slots=True) creates each class twice; the second one stays

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


class SessionStart(HandlerEvent):
    """The agent is ready for the first time. Text injected here is its initial context."""


class Output(HandlerEvent):
    """The agent said something. `output` is one or more logical lines, escape sequences gone."""

    output: str


class ToolPre(HandlerEvent):
    """The agent is about to call a tool."""

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str | None = None


class ToolPost(HandlerEvent):
    """A tool call has ended. `error` says why it failed, or is None; `duration_ms` is in milliseconds."""

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_response: Any = None
    error: str | None = None
    duration_ms: float | None = None
    tool_use_id: str | None = None


class PromptSubmit(HandlerEvent):
    """A prompt was submitted to the agent, by the user or by relay."""

    prompt: str


class Prompting(HandlerEvent):
    """The agent asks the user `text`. `kind` is `permission`, `plan_approval`, `question` or `other`."""

    kind: str
    text: str = ""


class MessageReceived(HandlerEvent):
    """A message for this agent has been stored and will be injected.

    `channel` is the channel it came through, or None.

    `reply_to` is the id of the message it answers, or None; `priority` is `urgent`, `normal` or `low`.
    """

    sender: str
    body: str
    id: str = ""
    channel: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    priority: str = "normal"


class MessageSent(HandlerEvent):
    """This agent has sent a message. `to` is one receiver, `channel` the channel used, or None."""

    to: str
    body: str
    id: str = ""
    channel: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    priority: str = "normal"


class Idle(HandlerEvent):
    """The agent has printed nothing for `seconds` (30 unless set otherwise)."""

    seconds: float


class AgentEnd(HandlerEvent):
    """The agent has finished a turn. `last_assistant_message` is None unless the turn ended in its text."""

    messages: Sequence[Any] = ()
    success: bool = True
    last_assistant_message: str | None = None
    error: str | None = None
    duration_ms: float | None = None


class Compact(HandlerEvent):
    """The agent is about to compact its context. `trigger` is `manual` or `auto`."""

    trigger: str
    compaction_type: str | None = None


class SessionEnd(HandlerEvent):
    """The session is about to end. The agent gets limited time to act on text injected here.

    `reason` is `stop` or `restart` (requested), or `exit` (the agent has already ended; nothing can reach
    it).
    """

    reason: str = "stop"


_ALIASES = {"tool_call": (ToolPre.name, ToolPost.name)}


def event_names(text: str) -> tuple[str, ...]:
    """Return the events that `text` names; `session_start`, `sessionStart` and `onSessionStart` are the same.

    `onToolCall` names two, tool_pre and tool_post. Raise ConfigError for an event that does not exist.
    """
    name = re.sub(r"\Aon_", "", _snake(text))
    found = _ALIASES.get(name) or ((name,) if name in EVENTS else ())
    if found:
        return found
    known = [*EVENTS, *_ALIASES]
    hint = names.did_you_mean(name, known, "{!r}")
    raise ConfigError(f"there is no event {text!r}. {hint}The events are {', '.join(known)}.")
