"""What a native event is answered: one record, rendered as each agent's protocol has it.

    Reply(deny="no")  ──render──→  {"hookSpecificOutput": {"hookEventName": "PreToolUse", ...}}  ──→ its stdin

What an agent's protocol cannot carry (`carries`) is left out, since unknown keys make some refuse the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from relay.native.event import NativeEvent, NativeName

Part = Literal["context", "deny", "allow", "go_on", "notice"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent is told.

    context: text that the model gets beside what happened.
    deny:    why it may not: a tool call, a prompt, a compaction.
    allow:   the person has allowed this tool call in advance: it need not be asked for.
    go_on:   what the agent goes on with instead of ending its turn.
    notice:  one line that the agent shows to its person.
    """

    context: str = ""
    deny: str | None = None
    allow: bool = False
    go_on: str | None = None
    notice: str = ""


class Fate(Enum):
    """What became of a reply."""

    PRINTED = "printed"  # the agent's hook has printed it
    UNKNOWN = "unknown"  # it was sent, and nothing more was heard
    UNSENT = "unsent"  # the agent's hook had gone before it could be sent


Settle = Callable[[Fate], None]


def _nobody(_: Fate) -> None:
    """Nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A rendered reply. `settle` is called once, with what became of it."""

    stdout: str
    settle: Settle = _nobody


_CLAUDE: dict[NativeName, frozenset[Part]] = {
    NativeName.SESSION_START: frozenset({"context", "notice"}),
    NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "notice"}),
    NativeName.TOOL_PRE: frozenset({"context", "deny", "notice"}),
    NativeName.PERMISSION: frozenset({"deny", "allow", "notice"}),
    NativeName.TOOL_POST: frozenset({"context", "notice"}),
    NativeName.TOOL_FAILED: frozenset({"context", "notice"}),
    NativeName.STOP: frozenset({"go_on", "notice"}),
    NativeName.SUBAGENT_START: frozenset({"context"}),
    NativeName.SUBAGENT_STOP: frozenset({"go_on"}),
    NativeName.COMPACT: frozenset({"deny"}),
}
_CARRIED: Mapping[str, Mapping[NativeName, frozenset[Part]]] = MappingProxyType(
    {
        "claude": _CLAUDE,
        "codex": {**_CLAUDE, NativeName.COMPACT: frozenset()},
        "qwen": {**_CLAUDE, NativeName.SESSION_START: frozenset()},  # its model never sees that context
        "gemini": {
            NativeName.SESSION_START: frozenset({"context", "notice"}),
            NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "notice"}),
            NativeName.TOOL_PRE: frozenset({"deny", "notice"}),
            NativeName.TOOL_POST: frozenset({"context", "notice"}),
            NativeName.STOP: frozenset({"go_on", "notice"}),
        },
    }
)


def carries(agent: str, name: NativeName) -> frozenset[Part]:
    """What the reply to an event `name` can hold where the agent is of the kind `agent`."""
    return _CARRIED.get(agent, {}).get(name, frozenset())


def render(event: NativeEvent, reply: Reply) -> str:
    """The JSON for the standard output of the agent's hook; "" where there is nothing to say."""
    carried = carries(event.agent, event.name)
    answer: dict[str, Any] = {}
    specific: dict[str, Any] = {}
    if reply.deny is not None and "deny" in carried:
        why = reply.deny or "It is not allowed here."  # a block without a reason is none
        if event.agent != "gemini" and event.name is NativeName.TOOL_PRE:
            specific |= {"permissionDecision": "deny", "permissionDecisionReason": why}
        elif event.agent != "gemini" and event.name is NativeName.PERMISSION:
            specific |= {"decision": {"behavior": "deny", "message": why}}
        else:
            answer |= {"decision": "deny" if event.agent == "gemini" else "block", "reason": why}
    elif reply.allow and "allow" in carried:
        specific["decision"] = {"behavior": "allow"}
    elif reply.go_on is not None and "go_on" in carried:
        answer |= {"decision": "block", "reason": reply.go_on or "Go on."}
    if reply.context and "context" in carried and not answer:
        specific["additionalContext"] = reply.context
    if specific:
        answer["hookSpecificOutput"] = {"hookEventName": event.event, **specific}
    if reply.notice and "notice" in carried:
        answer["systemMessage"] = reply.notice
    return json.dumps(answer) if answer else ""
