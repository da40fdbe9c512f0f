"""The reply to a native event: one record, rendered in each agent's protocol.

    Reply(deny="no")  ──render──→  {"hookSpecificOutput": {"hookEventName": "PreToolUse", ...}}  ──→ its stdin

Parts that an agent's protocol cannot carry (`carries`) are left out, since some agents refuse a whole reply
for an unknown key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from relay.agents.hook_event import NativeEvent, NativeName

Part = Literal["context", "deny", "allow", "ask", "input", "halt", "go_on", "notice"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to the agent.

    context: text for the model, in addition to what happened.
    halt:    why the agent has to stop its action and its turn; a denial if its protocol has no halt.
    deny:    why a tool call, a prompt or a compaction is denied.
    ask:     why the agent has to ask the user about a tool call; a denial if its protocol has no ask.
    allow:   the user has allowed this tool call in advance: the agent does not ask.
    input:   the tool's whole input, replacing the agent's.
    go_on:   the text with which the agent continues instead of ending its turn.
    notice:  one line that the agent shows to its user.
    """

    context: str = ""
    halt: str | None = None
    deny: str | None = None
    ask: str | None = None
    allow: bool = False
    input: Mapping[str, Any] | None = None
    go_on: str | None = None
    notice: str = ""


class Fate(Enum):
    """The outcome of a reply."""

    PRINTED = "printed"  # the agent's hook has printed it
    UNKNOWN = "unknown"  # it was sent, and the hook did not confirm it
    UNSENT = "unsent"  # the agent's hook was gone before it could be sent


Settle = Callable[[Fate], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """A rendered reply. `settle` is called once, with its outcome."""

    stdout: str
    settle: Settle = lambda fate: None


_CLAUDE: dict[NativeName, frozenset[Part]] = {
    NativeName.SESSION_START: frozenset({"context", "notice"}),
    NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "halt", "notice"}),
    # claude takes `continue: false` here, but ends its turn only after the tool has run: so deny the call.
    NativeName.TOOL_PRE: frozenset({"context", "deny", "ask", "allow", "input", "notice"}),
    NativeName.PERMISSION: frozenset({"deny", "allow", "notice"}),
    NativeName.TOOL_POST: frozenset({"context", "halt", "notice"}),
    NativeName.TOOL_FAILED: frozenset({"context", "notice"}),
    NativeName.STOP: frozenset({"go_on", "halt", "notice"}),
    NativeName.SUBAGENT_START: frozenset({"context"}),
    NativeName.SUBAGENT_STOP: frozenset({"go_on"}),
    NativeName.COMPACT: frozenset({"deny"}),
}
_PLAIN: dict[NativeName, frozenset[Part]] = {
    name: parts - {"ask", "allow", "input", "halt"} if name is not NativeName.PERMISSION else parts
    for name, parts in _CLAUDE.items()
}
"""The parts for agents that adopted Claude's protocol but were not seen to act on its other parts."""

_CODEX = _PLAIN | {
    NativeName.TOOL_PRE: _PLAIN[NativeName.TOOL_PRE] | {"input"},
    NativeName.COMPACT: frozenset(),
}
_QWEN = _PLAIN | {
    NativeName.SESSION_START: frozenset(),  # its model never sees the context from these two
    NativeName.TOOL_PRE: _PLAIN[NativeName.TOOL_PRE] - {"context"},
}
_OPENCODE = {
    NativeName.SESSION_START: _PLAIN[NativeName.SESSION_START],
    NativeName.PROMPT_SUBMIT: _PLAIN[NativeName.PROMPT_SUBMIT],
    NativeName.TOOL_PRE: frozenset[Part]({"deny", "input", "notice"}),
    NativeName.PERMISSION: _PLAIN[NativeName.PERMISSION],
    NativeName.TOOL_POST: _PLAIN[NativeName.TOOL_POST],
    NativeName.STOP: _PLAIN[NativeName.STOP],
}

_CARRIED: Mapping[str, Mapping[NativeName, frozenset[Part]]] = MappingProxyType(
    {
        "claude": _CLAUDE,
        "codex": _CODEX,
        "qwen": _QWEN,
        "opencode": _OPENCODE,
        "pi": _PLAIN | {NativeName.TOOL_PRE: _PLAIN[NativeName.TOOL_PRE] | {"input"}},
        "relay": _PLAIN,
        "gemini": {
            NativeName.SESSION_START: frozenset({"context", "notice"}),
            NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "notice"}),
            NativeName.TOOL_PRE: frozenset({"deny", "notice"}),
            NativeName.TOOL_POST: frozenset({"context", "notice"}),
            NativeName.STOP: frozenset({"go_on", "notice"}),
        },
    }
)


_ABOVE_THE_USER = frozenset({"codex"})
"""Kinds of agents whose model gets context in a role above the user's (`developer`: Codex 0.169.0)."""


def ranks_context_above_user(agent: str) -> bool:
    """Return True if a text that is not the user's must not be context for an agent of the kind `agent`."""
    return agent in _ABOVE_THE_USER


def carries(agent: str, name: NativeName) -> frozenset[Part]:
    """Return the parts that an agent of the kind `agent` accepts in the reply to an event `name`."""
    return _CARRIED.get(agent, {}).get(name, frozenset())


def render(event: NativeEvent, reply: Reply) -> str:
    """Return the JSON for the standard output of the agent's hook; "" for an empty reply."""
    carried = carries(event.agent, event.name)
    deny = _refusal(reply, carried)
    answer: dict[str, Any] = {}
    specific: dict[str, Any] = {}
    if reply.halt is not None and "halt" in carried:
        answer |= {"continue": False, "stopReason": reply.halt}
    elif deny is not None and "deny" in carried:
        why = deny or "It is not allowed here."  # a block without a reason does not count
        if event.agent != "gemini" and event.name is NativeName.TOOL_PRE:
            specific |= {"permissionDecision": "deny", "permissionDecisionReason": why}
        elif event.agent != "gemini" and event.name is NativeName.PERMISSION:
            specific |= {"decision": {"behavior": "deny", "message": why}}
        else:
            answer |= {"decision": "deny" if event.agent == "gemini" else "block", "reason": why}
    elif reply.ask is not None and "ask" in carried:
        specific |= {"permissionDecision": "ask", "permissionDecisionReason": reply.ask}
    elif reply.allow and "allow" in carried:
        tool = event.name is NativeName.TOOL_PRE
        specific |= {"permissionDecision": "allow"} if tool else {"decision": {"behavior": "allow"}}
    elif reply.go_on is not None and "go_on" in carried:
        if event.agent == "claude":  # draws a block as an error, and 2.1.330 sends it to its model twice
            specific["additionalContext"] = reply.go_on or "Go on."
        else:
            answer |= {"decision": "block", "reason": reply.go_on or "Go on."}
    if reply.input is not None and "input" in carried and deny is None and not answer:
        specific["updatedInput"] = dict(reply.input)
        if event.agent == "codex":  # accepts it only with this word, and still asks its user
            specific["permissionDecision"] = "allow"
    if reply.context and "context" in carried and not answer:
        specific["additionalContext"] = reply.context
    if specific:
        answer["hookSpecificOutput"] = {"hookEventName": event.event, **specific}
    if reply.notice and "notice" in carried:
        answer["systemMessage"] = reply.notice
    return json.dumps(answer) if answer else ""


def _refusal(reply: Reply, carried: frozenset[Part]) -> str | None:
    """Return why it is denied, or why it must be if the protocol has no halt, no ask or no changed input."""
    if reply.deny is not None:
        return reply.deny
    if reply.halt is not None and "halt" not in carried:
        return reply.halt
    if reply.ask is not None and "ask" not in carried:
        return f"{reply.ask or 'The user must be asked.'} (This agent cannot be made to ask the user.)"
    if reply.input is not None and "input" not in carried:
        return "Its input must be changed, which this agent does not allow. Call it with the required input."
    return None
