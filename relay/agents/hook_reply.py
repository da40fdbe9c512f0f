"""The reply to a native event: one record, which each kind of agent renders in its protocol.

    Reply(deny="no")  ──AgentKind.render──→  {"hookSpecificOutput": {...}}  ──→ its hook's standard output

Parts that an agent's protocol cannot carry (AgentKind.replies) are left out, since some agents refuse a whole
reply for an unknown key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from relay.agents.hook_event import NativeName
from relay.dataclass import dataclass

Part = Literal["context", "deny", "allow", "ask", "input", "halt", "continuation", "notice"]
Parts = frozenset[Part]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to the agent.

    context: text for the model, in addition to what happened.
    halt:    why the agent has to stop its action and its turn; a denial if its protocol has no halt.
    deny:    why a tool call, a prompt or a compaction is denied.
    ask:     why the agent has to ask the user about a tool call; a denial if its protocol has no ask.
    allow:   the user has allowed this tool call in advance: the agent does not ask.
    input:   the tool's whole input, replacing the agent's.
    continuation: the text with which the agent continues instead of ending its turn.
    notice:  one line that the agent shows to its user.
    """

    context: str = ""
    halt: str | None = None
    deny: str | None = None
    ask: str | None = None
    allow: bool = False
    input: Mapping[str, Any] | None = None
    continuation: str | None = None
    notice: str = ""


class ReplyOutcome(Enum):
    PRINTED = "printed"  # the agent's hook has printed it
    UNKNOWN = "unknown"  # it was sent, and the hook did not confirm it
    UNSENT = "unsent"  # the agent's hook was gone before it could be sent


Settle = Callable[[ReplyOutcome], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """A rendered reply. `settle` is called once, with its outcome."""

    stdout: str
    settle: Settle = lambda outcome: None


REPLIES: Mapping[NativeName, Parts] = MappingProxyType(
    {
        NativeName.SESSION_START: frozenset({"context", "notice"}),
        NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "notice"}),
        NativeName.TOOL_PRE: frozenset({"context", "deny", "notice"}),
        NativeName.PERMISSION: frozenset({"deny", "allow", "notice"}),
        NativeName.TOOL_POST: frozenset({"context", "notice"}),
        NativeName.TOOL_FAILED: frozenset({"context", "notice"}),
        NativeName.STOP: frozenset({"continuation", "notice"}),
        NativeName.SUBAGENT_START: frozenset({"context"}),
        NativeName.SUBAGENT_STOP: frozenset({"continuation"}),
        NativeName.COMPACT: frozenset({"deny"}),
    }
)
"""The parts that most agents accept, and programs that follow docs/PATTERNS.md."""


def refusal(reply: Reply, carried: Parts) -> str | None:
    """Return why it is denied, or must be as the agent accepts only the parts `carried`; None: it is not."""
    if reply.deny is not None:
        return reply.deny
    if reply.halt is not None and "halt" not in carried:
        return reply.halt
    if reply.ask is not None and "ask" not in carried:
        return f"{reply.ask or 'The user must be asked.'} (This agent cannot be made to ask the user.)"
    if reply.input is not None and "input" not in carried:
        return "Its input must be changed, which this agent does not allow. Call it with the required input."
    return None
