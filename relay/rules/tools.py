"""The names that agents have for the same tool: Claude Code's `Bash` is `run_shell_command` elsewhere.

Names are those of Claude Code, Codex, Qwen Code and Gemini CLI; a tool without a row has only one name.
"""

from __future__ import annotations

from relay.names import suggest

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
"""One tool per row, Claude Code's name first. Codex's `apply_patch` both edits and writes files."""

_CLAUDES = frozenset({row[0] for row in _ROWS} | {"Task"})


_ALIASES: dict[str, tuple[str, ...]] = {}
for _row in _ROWS:
    for _name in _row:
        _ALIASES[_name] = tuple(dict.fromkeys((_name, *_ALIASES.get(_name, ()), *_row)))

_CLAUDE_NAMES = {name: row[0] for row in reversed(_ROWS) for name in row}
_SPELLINGS = {name.casefold(): name for name in reversed(_ALIASES)}


def aliases(tool: str) -> tuple[str, ...]:
    """Return every name of the tool, `tool` first."""
    return _ALIASES.get(tool, (tool,))


def claude_names(tool: str) -> tuple[str, ...]:
    """Return Claude Code's names for the tool: two for `Agent`; `tool` itself if it is unknown."""
    return tuple(name for name in aliases(tool) if name in _CLAUDES) or (tool,)


def known() -> tuple[str, ...]:
    """Return every name of every tool with a row."""
    return tuple(_ALIASES)


def close_to(tool: str) -> str | None:
    """Return the known name that `tool` is probably a typo of: "Bash" for "bash" or "Bahs"; else None."""
    if tool in _ALIASES:
        return None
    return _SPELLINGS.get(tool.casefold()) or suggest(tool, _CLAUDES, 0.85)


def claude_name(tool: str) -> str:
    """Return Claude Code's name for the tool: "Bash" for "run_shell_command"; `tool` itself if unknown."""
    return tool if tool in _CLAUDES else _CLAUDE_NAMES.get(tool, tool)
