"""The names that agents have for the same tool: Claude Code's `Bash` is `run_shell_command` elsewhere.

Names are those of Claude Code, Codex, Qwen Code and Gemini CLI; a tool that is in no row has one name only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ROWS: tuple[tuple[str, ...], ...] = (
    ("Bash", "run_shell_command", "shell", "local_shell", "exec_command", "unified_exec"),
    ("Read", "read_file", "read_many_files"),
    ("Edit", "replace", "edit", "apply_patch"),
    ("Write", "write_file", "apply_patch"),
    ("NotebookEdit", "notebook_edit"),
    ("Grep", "search_file_content", "grep_search"),
    ("Glob", "glob"),
    ("LS", "list_directory"),
    ("WebFetch", "web_fetch"),
    ("WebSearch", "web_search", "google_web_search"),
    ("TodoWrite", "todo_write", "write_todos", "update_plan"),
    ("Agent", "Task", "task", "agent", "spawn_agent"),
    ("Skill", "skill", "activate_skill"),
    ("AskUserQuestion", "ask_user_question", "ask_user", "request_user_input"),
    ("EnterPlanMode", "enter_plan_mode"),
    ("ExitPlanMode", "exit_plan_mode"),
)
"""One tool a row, Claude Code's name first. Codex's `apply_patch` both edits and writes files."""

_CLAUDES = frozenset({row[0] for row in _ROWS} | {"Task"})


def _aliases() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in _ROWS:
        for name in row:
            found[name] = tuple(dict.fromkeys((name, *found.get(name, ()), *row)))
    return found


_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(_aliases())
_CLAUDE_NAMES: Mapping[str, str] = MappingProxyType({name: row[0] for row in reversed(_ROWS) for name in row})


def aliases(tool: str) -> tuple[str, ...]:
    """Return every name of the tool, `tool` first."""
    return _ALIASES.get(tool, (tool,))


_SPELLINGS: Mapping[str, str] = MappingProxyType({name.casefold(): name for name in reversed(list(_ALIASES))})


def in_other_case(tool: str) -> str | None:
    """Return the known name that differs from `tool` in case only: "Bash" for "bash"; else None."""
    return None if tool in _ALIASES else _SPELLINGS.get(tool.casefold())


def claude_name(tool: str) -> str:
    """Return Claude Code's name of the tool: "Bash" for "run_shell_command"; `tool` itself if unknown."""
    return tool if tool in _CLAUDES else _CLAUDE_NAMES.get(tool, tool)
