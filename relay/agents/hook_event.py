"""An event from an agent's own hooks: one frozen record for every kind of agent.

    {"hook_event_name": "PreToolUse", ...}  ──parse──→  NativeEvent(name=tool_pre, tool_name="Bash", ...)

Agents name their events differently (AgentKind.events); most have adopted the names and fields below.
Everything in a payload is untrusted: a field of the wrong type is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from relay.agents.profile import PromptKind
from relay.dataclass import dataclass, field, fields
from relay.text import parse_json


class NativeName(StrEnum):
    SESSION_START = "session_start"
    PROMPT_SUBMIT = "prompt_submit"
    TOOL_PRE = "tool_pre"
    PERMISSION = "permission"
    TOOL_POST = "tool_post"
    TOOL_FAILED = "tool_failed"
    NOTIFICATION = "notification"
    STOP = "stop"
    SUBAGENT_START = "subagent_start"
    SUBAGENT_STOP = "subagent_stop"
    STOP_FAILURE = "stop_failure"
    COMPACT = "compact"
    SESSION_END = "session_end"
    MESSAGE_DISPLAY = "message_display"


EVENTS: Mapping[str, NativeName] = MappingProxyType(
    {
        "SessionStart": NativeName.SESSION_START,
        "UserPromptSubmit": NativeName.PROMPT_SUBMIT,
        "PreToolUse": NativeName.TOOL_PRE,
        "PermissionRequest": NativeName.PERMISSION,
        "PostToolUse": NativeName.TOOL_POST,
        "PostToolUseFailure": NativeName.TOOL_FAILED,
        "Notification": NativeName.NOTIFICATION,
        "Stop": NativeName.STOP,
        "SubagentStart": NativeName.SUBAGENT_START,
        "SubagentStop": NativeName.SUBAGENT_STOP,
        "StopFailure": NativeName.STOP_FAILURE,
        "PreCompact": NativeName.COMPACT,
        "SessionEnd": NativeName.SESSION_END,
    }
)
"""The events of most agents, and of programs that follow docs/PATTERNS.md, by their own names."""

OBSERVED = "ExitPlanMode|AskUserQuestion|EnterPlanMode"
"""The tools with which an agent asks its user something: the matcher for the silent observer."""

DIALOGS: Mapping[str, PromptKind | None] = MappingProxyType(
    {
        "ExitPlanMode": PromptKind.PLAN_APPROVAL,
        "AskUserQuestion": PromptKind.QUESTION,
        "EnterPlanMode": None,  # seen and noted; PromptKind.PLAN_APPROVAL here would make it a prompt
    }
)
"""The kind of prompt that each observed tool shows."""


def without(*names: str) -> Mapping[str, NativeName]:
    """Return EVENTS without those that an agent does not report."""
    return MappingProxyType({name: kind for name, kind in EVENTS.items() if name not in names})


@dataclass(frozen=True, slots=True)
class NativeEvent:
    """One event of an agent's own hooks. A field that the agent did not send is empty.

    agent:        the kind of agent (relay.agents.kinds); event: its own name for the event.
    session_id:   the agent's, not relay's; it changes with /clear.
    transcript_path: the file of its conversation, which may lag behind or be absent.
    duration_ms:  how long the tool took, in milliseconds.
    agent_id, agent_type: the subagent of a subagent's event.
    """

    name: NativeName
    agent: str
    event: str = ""
    session_id: str = ""
    cwd: str = ""
    transcript_path: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: Mapping[str, Any] = field(default_factory=dict)
    tool_response: Any = None
    tool_use_id: str = ""
    error: str = ""
    duration_ms: float = 0.0
    last_assistant_message: str = ""
    stop_hook_active: bool = False
    source: str = ""
    reason: str = ""
    trigger: str = ""
    notification_type: str = ""
    message: str = ""
    agent_id: str = ""
    agent_type: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """False for a tool call without a name, or with an input that is no object: rules cannot check it."""
        tool_input = self.raw.get("tool_input")
        named = bool(self.tool_name) or self.name is not NativeName.TOOL_PRE
        return named and (tool_input is None or isinstance(tool_input, dict))


MAX_MS = 1e12
"""Milliseconds, 30 years: a larger value is not a duration."""

_TEXTS = tuple(f.name for f in fields(NativeEvent) if f.type == "str" and f.name not in {"agent", "event"})
"""Fields copied from the payload unchanged if they are text."""


def parse(
    agent: str,
    known: Callable[[str], tuple[str, NativeName] | None],
    names: Mapping[str, str],
    event: str,
    payload: bytes | str,
) -> NativeEvent | None:
    """Return the event in `payload`, as AgentKind.parse does. known, names: the kind's `known`, `fields`."""
    text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
    try:
        raw = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    found = known(event or str(raw.get("hook_event_name", "")))
    if found is None:
        return None
    own, name = found
    raw = {names.get(key, key): value for key, value in raw.items()}
    tool_input = raw.get("tool_input")
    texts = {key: value for key in _TEXTS if isinstance(value := raw.get(key), str)}
    return NativeEvent(
        name=name,
        agent=agent,
        event=own,
        tool_input=tool_input if isinstance(tool_input, dict) else {},
        tool_response=raw.get("tool_response"),
        duration_ms=_duration(raw.get("duration_ms")),
        stop_hook_active=raw.get("stop_hook_active") is True,
        raw=raw,
        **texts,
    )


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_MS:
        return 0.0
    return float(value)
