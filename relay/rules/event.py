"""The events for rules: their types, one event, and its payload for a rule's command.

    NativeEvent ──from_native──→ RuleEvent ──payload──→ Claude Code's own fields          (a group)
                                                    └─→ {"event": ..., "data": {...}}     (a flat rule)

Rules in Claude Code's shape were written for Claude Code, so they get its names for events, fields and tools
with every agent. Flat rules get the agent's own tool names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.dataclass import dataclass, field
from relay.lifecycle import Identity
from relay.rules.tools import claude_name

RuleKind = Literal["command", "prompt"]
Shape = Literal["flat", "group"]

_COMMON = (
    *("hook_event_name", "session_id", "transcript_path", "cwd", "permission_mode", "model", "effort"),
    *("prompt_id", "turn_id", "timestamp", "agent_id", "agent_type"),
)
_TOOL = ("tool_name", "tool_input", "tool_use_id")


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of event that rules may be written for.

    name:    Claude Code's name for it; native is relay's.
    own:     its fields besides those that every event has.
    kinds:   the kinds of rules that it allows.
    matched: the field that a string matcher is compared with; "" if the event has none, and every string
             matcher matches (Claude Code's documentation of matchers).
    values:  all that it may be; empty if that is not known.
    decides: a rule's answer has effects; otherwise the rule only observes.
    """

    name: str
    native: NativeName
    own: tuple[str, ...]
    kinds: frozenset[RuleKind] = frozenset({"command"})
    matched: str = ""
    values: tuple[str, ...] = ()
    decides: bool = True

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that agents are known to send, or relay adds, the event's own first.

        Known for Claude Code, Codex, Qwen Code and Gemini CLI (tests/agents/payloads). Additional fields from
        an agent are passed on.
        """
        return (*self.own, *_COMMON)


_TYPES = (
    EventType("UserPromptSubmit", NativeName.PROMPT_SUBMIT, ("prompt",), frozenset({"command", "prompt"})),
    EventType(
        "SessionStart",
        NativeName.SESSION_START,
        ("source",),
        matched="source",
        values=("startup", "resume", "clear", "compact"),
    ),
    EventType("SessionEnd", NativeName.SESSION_END, ("reason",), matched="reason", decides=False),
    EventType("PreToolUse", NativeName.TOOL_PRE, _TOOL, matched="tool_name"),
    EventType(
        "PostToolUse", NativeName.TOOL_POST, (*_TOOL, "tool_response", "duration_ms"), matched="tool_name"
    ),
    EventType(
        "PostToolUseFailure",
        NativeName.TOOL_FAILED,
        (*_TOOL, "error", "is_interrupt", "duration_ms"),
        matched="tool_name",
    ),
    EventType(
        "Stop",
        NativeName.STOP,
        (
            *("last_assistant_message", "turn_end_reason", "at_max_iter", "stop_hook_active"),
            *("prompt", "background_tasks", "session_crons"),
        ),
    ),
    EventType(
        "PreCompact",
        NativeName.COMPACT,
        ("trigger", "custom_instructions", "compaction_type"),
        matched="trigger",
        values=("manual", "auto"),
        decides=False,
    ),
    EventType(
        "Notification",
        NativeName.NOTIFICATION,
        ("message", "title", "notification_type", "details"),
        matched="notification_type",
        decides=False,
    ),
)

EVENTS: Mapping[str, EventType] = {each.name: each for each in _TYPES}
"""Every event type by Claude Code's name for it. Types may be added, but never removed."""

_BY_NATIVE = {each.native: each for each in _TYPES}

_FLAT = frozenset({"Stop", "PreCompact"})
"""Events whose payload is flat for flat rules, too; flat rules get the others as {"event", "data"}."""

_TYPED = frozenset(
    {
        *("session_id", "cwd", "transcript_path", "prompt", "tool_name", "tool_input", "tool_use_id"),
        *("error", "last_assistant_message", "source", "reason", "trigger", "notification_type", "message"),
        *("agent_id", "agent_type"),
    }
)
"""Fields that are dropped unless their value has the right type: an object for tool_input, else text."""

_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Stop": {
        "stop_hook_active": False,
        "last_assistant_message": "",
        "turn_end_reason": "final_response",
        "at_max_iter": False,
    },
    "PreCompact": {"trigger": None, "custom_instructions": None, "compaction_type": None},
}
"""Default values for the fields that an event has even if the agent does not send them."""


@dataclass(frozen=True, slots=True)
class RuleEvent:
    """One event that has happened.

    name:  a key of EVENTS.
    data:  Claude Code's fields for it, flat and in snake case, including `hook_event_name`, `session_id` and
           `cwd`. Tools have the agent's own names.
    agent: the kind of agent, such as "claude" (relay.agents.kinds); "" if not from its hooks.
    """

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    agent: str = ""


def from_native(event: NativeEvent, **more: Any) -> RuleEvent | None:
    """Return the agent's `event` in the form for rules; None if no rule can be written for it.

    more: fields that the agent does not know, such as turn_end_reason and at_max_iter of a Stop.
    """
    found = _BY_NATIVE.get(event.name)
    if found is None:
        return None
    kind = kinds.find(event.agent)
    data = dict(event.raw)
    for key in _TYPED:
        if key in data and not isinstance(data[key], dict if key == "tool_input" else str):
            del data[key]
    if "tool_input" in found.own:
        data["tool_input"] = event.tool_input
    if "notification_type" in data:
        shown = data["notification_type"]
        data["notification_type"] = kind.notifications.get(shown, shown)
    name = found.name
    return RuleEvent(name, {**_DEFAULTS.get(name, {}), **data, "hook_event_name": name, **more}, event.agent)


def derived(session: Identity, name: str, **data: Any) -> RuleEvent:
    """Return an event with Claude Code's fields, for a session whose agent has no hook that reports it."""
    common = {"session_id": session.id, "transcript_path": "", "cwd": str(session.directory)}
    return RuleEvent(name, {**common, "hook_event_name": name, **data})


def payload(shape: Shape, event: RuleEvent) -> bytes:
    """Return the input for the command of a rule of this `shape`: a JSON object in UTF-8 with a newline.

    Raise ValueError for a number that JSON does not have, RecursionError for data nested too deeply.

    10 MB take 25 ms, during which no other Python thread runs: encode once for all rules of a shape.
    """
    data: Mapping[str, Any]
    if shape == "flat":
        data = event.data if event.name in _FLAT else {"event": event.name, "data": dict(event.data)}
    else:
        data = {**event.data, "hook_event_name": event.name}
        if isinstance(tool := data.get("tool_name"), str):
            data["tool_name"] = claude_name(tool)
    # Values of unknown types become text; a lone surrogate becomes an escape, which JSON allows.
    return json.dumps(dict(data), default=str, allow_nan=False).encode() + b"\n"
