"""Claude Code's hook set-up: `--settings FILE`, which it merges with user, project and local hooks.

It takes only the last `--settings`, so a user's own is merged into one file with ours.
"""

from __future__ import annotations

from typing import Any

from relay.agents.hook_setup import (
    TIMEOUT,
    Prepared,
    Run,
    entries,
    expanded,
    handler,
    installed,
    merged,
    parsed,
    read,
)

FLAG = "--settings"

SINCE = {
    "PermissionRequest": (2, 0, 77),
    "PostToolUseFailure": (2, 0, 77),
    "SubagentStart": (2, 0, 77),
    "StopFailure": (2, 1, 78),
}
"""Events that 1.0 lacks, and a version that has each. An unknown one is an error, and Claude asks."""

EXEC_FORM = (2, 1, 197)
"""A version whose hooks have `args`. 2.1.100 has no `args`: it would run `command` alone, in a shell."""


def prepare(run: Run) -> Prepared:
    """Return `claude ARG...` as `claude --settings FILE ARG...`, without a `--settings` among ARG."""
    arguments, theirs = _without_settings(run.arguments)
    settings: dict[str, Any] = {}
    if theirs.lstrip().startswith("{"):
        settings = parsed(theirs, f"what was given with {FLAG}")
    elif theirs:
        settings = read(expanded(theirs))
    version = installed(run, "/claude-code")
    ours = entries("claude", run.directory, handler if () < version < EXEC_FORM else _handler)
    known = {event: added for event, added in ours.items() if not version or version >= SINCE.get(event, ())}
    path = run.file("settings.json", merged(settings, known))
    note = ""
    if settings.get("disableAllHooks"):
        note = f"the settings given with {FLAG} disable all hooks, and so the bridge"
    return Prepared(run.with_flags([FLAG, path], arguments), run.env, "claude", note)


def _handler(command: list[str]) -> dict[str, Any]:
    """Return a handler in exec form (`args`), without a shell."""
    return {"type": "command", "command": command[0], "args": command[1:], "timeout": TIMEOUT}


def _without_settings(arguments: tuple[str, ...]) -> tuple[list[str], str]:
    """Return `arguments` without `--settings X`, and the last X; words after `--` belong to the prompt."""
    kept: list[str] = []
    found = ""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            kept += [word, *rest]
            break
        if word == FLAG and rest:
            found = rest.pop(0)
        elif word.startswith(FLAG + "="):
            found = word.removeprefix(FLAG + "=")
        else:
            kept.append(word)
    return kept, found
