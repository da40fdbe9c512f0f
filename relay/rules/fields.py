"""Which fields an event has, so that a matcher which asks for another one is told of.

What agents tell is passed on as it is (relay.rules.payload), so there may be more. These are those that are
known of Claude Code, Codex, Qwen Code and Gemini CLI (tests/native/payloads), and those that relay adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_COMMON = (
    *("hook_event_name", "session_id", "transcript_path", "cwd", "permission_mode", "model", "effort"),
    *("prompt_id", "turn_id", "timestamp", "agent_id", "agent_type"),
)
_TOOL = ("tool_name", "tool_input", "tool_use_id")

FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: (*own, *_COMMON)
        for name, own in {
            "UserPromptSubmit": ("prompt",),
            "SessionStart": ("source",),
            "SessionEnd": ("reason",),
            "PreToolUse": _TOOL,
            "PostToolUse": (*_TOOL, "tool_response", "duration_ms"),
            "PostToolUseFailure": (*_TOOL, "error", "is_interrupt", "duration_ms"),
            "Stop": (
                *("last_assistant_message", "turn_end_reason", "at_max_iter", "stop_hook_active", "prompt"),
                *("background_tasks", "session_crons"),
            ),
            "PreCompact": ("trigger", "custom_instructions", "compaction_type"),
            "Notification": ("message", "title", "notification_type", "details"),
        }.items()
    }
)
"""By event, its own fields first."""
