"""What rules are told of: the events, which kinds of rules each takes, and one event as it happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Kind = Literal["command", "prompt"]

COMMAND: frozenset[Kind] = frozenset({"command"})
COMMAND_OR_PROMPT: frozenset[Kind] = frozenset({"command", "prompt"})


@dataclass(frozen=True, slots=True)
class EventType:
    """One event that rules may be written for.

    kinds:   the kinds of rules that it takes.
    matched: the field of the payload that a matcher which is a string is compared with; "" where the event
             has none, and every such matcher holds (Claude Code's documentation of matchers).
    decides: what a rule answers has effects; else it only observes.
    """

    name: str
    kinds: frozenset[Kind] = COMMAND
    matched: str = ""
    decides: bool = True


EVENTS: Mapping[str, EventType] = MappingProxyType(
    {
        each.name: each
        for each in (
            EventType("UserPromptSubmit", kinds=COMMAND_OR_PROMPT),
            EventType("SessionStart", matched="source"),
            EventType("SessionEnd", matched="reason", decides=False),
            EventType("PreToolUse", matched="tool_name"),
            EventType("PostToolUse", matched="tool_name"),
            EventType("PostToolUseFailure", matched="tool_name"),
            EventType("Stop"),
            EventType("PreCompact", matched="trigger", decides=False),
            EventType("Notification", matched="notification_type", decides=False),
        )
    }
)
"""By Claude Code's names. New ones may come, none goes."""

FLAT = frozenset({"Stop", "PreCompact"})
"""Events whose payload is flat for flat rules, too; the others come to those as {"event", "data"}."""


@dataclass(frozen=True, slots=True)
class RuleEvent:
    """One event as it happened.

    name:  a key of EVENTS.
    data:  Claude Code's fields of it, flat and in snake case, `hook_event_name`, `session_id` and `cwd` among
           them. Tools have the agent's own names.
    agent: the kind of agent, such as "claude" (relay.agents.hook_event); "" if its hooks do not tell.
    """

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    agent: str = ""
