"""What a rule's command gets on its standard input, and the event that an agent's own hook tells of.

    NativeEvent ──from_native──→ RuleEvent ──payload──→ Claude Code's own fields          (a group)
                                                    └─→ {"event": ..., "data": {...}}     (a flat rule)

Rules in Claude Code's shape were written for Claude Code, so they get its names of events, fields and tools
whichever agent it is.  Flat rules see the agent's own names of its tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from relay.agents.hook_event import NativeEvent, NativeName
from relay.rules.event import FLAT, RuleEvent
from relay.rules.rule import Shape
from relay.rules.tools import claude_name

_NAMES: Mapping[NativeName, str] = MappingProxyType(
    {
        NativeName.PROMPT_SUBMIT: "UserPromptSubmit",
        NativeName.SESSION_START: "SessionStart",
        NativeName.SESSION_END: "SessionEnd",
        NativeName.TOOL_PRE: "PreToolUse",
        NativeName.TOOL_POST: "PostToolUse",
        NativeName.TOOL_FAILED: "PostToolUseFailure",
        NativeName.STOP: "Stop",
        NativeName.COMPACT: "PreCompact",
        NativeName.NOTIFICATION: "Notification",
    }
)
"""The events that rules may be written for (relay.rules.event.EVENTS)."""

_RENAMED = MappingProxyType({"prompt_response": "last_assistant_message"})
"""Gemini CLI's fields that Claude Code calls otherwise (tests/native/payloads/gemini)."""

_NOTIFICATIONS = MappingProxyType({"ToolPermission": "permission_prompt"})
"""Gemini CLI's types of notifications, as Claude Code calls them."""

_CHECKED = frozenset(
    {
        *("session_id", "cwd", "transcript_path", "prompt", "tool_name", "tool_input", "tool_use_id"),
        *("error", "last_assistant_message", "source", "reason", "trigger", "notification_type", "message"),
        *("agent_id", "agent_type"),
    }
)
"""Fields of which a NativeEvent has kept only what has the right type."""

_ALWAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Stop": {
            "stop_hook_active": False,
            "last_assistant_message": "",
            "turn_end_reason": "final_response",
            "at_max_iter": False,
        },
        "PreCompact": {"trigger": None, "custom_instructions": None, "compaction_type": None},
    }
)
"""What an event has whether the agent tells it or not."""


def from_native(event: NativeEvent, **more: Any) -> RuleEvent | None:
    """The event for rules that the agent's `event` is; None where no rule can be written for it.

    more: fields that the agent does not know, such as turn_end_reason and at_max_iter of a Stop.
    """
    name = _NAMES.get(event.name)
    if name is None:
        return None
    told = {_RENAMED.get(key, key): value for key, value in event.raw.items()}
    for key in _CHECKED:
        if key in told and not isinstance(told[key], dict if key == "tool_input" else str):
            del told[key]
    if name in _TOOLS:
        told["tool_input"] = event.tool_input
    if "notification_type" in told:
        told["notification_type"] = _NOTIFICATIONS.get(told["notification_type"], told["notification_type"])
    return RuleEvent(name, {**_ALWAYS.get(name, {}), **told, "hook_event_name": name, **more}, event.agent)


_TOOLS = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure"})


def payload(shape: Shape, event: RuleEvent) -> bytes:
    """What the command of a rule of this `shape` reads, one JSON object in UTF-8 with a newline.

    Raises ValueError for a number that JSON does not have, RecursionError for what is nested too deeply.

    A payload of 10 MB takes 25 ms, in which nothing else of Python's runs: it is made once for all rules of
    a shape.
    """
    told: Mapping[str, Any]
    if shape == "flat":
        told = event.data if event.name in FLAT else {"event": event.name, "data": dict(event.data)}
    else:
        told = {**event.data, "hook_event_name": event.name}
        tool = told.get("tool_name")
        if isinstance(tool, str):
            told["tool_name"] = claude_name(tool)
    # What no encoder knows is told as text; a lone surrogate is written as an escape, which JSON allows.
    return json.dumps(dict(told), default=str, allow_nan=False).encode() + b"\n"
