"""Claude Code's hook set-up: `--settings FILE`, which it merges with user, project and local hooks.

It takes the last `--settings` only, so that a user's own is put into one file with ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, merged, parsed, read

FLAG = "--settings"


def prepare(run: Run) -> Prepared:
    """Return `claude ARG...` as `claude --settings FILE ARG...`, without a `--settings` among ARG."""
    arguments, theirs = _without_settings(run.arguments)
    settings: dict[str, Any] = {}
    if theirs.lstrip().startswith("{"):
        settings = parsed(theirs, f"what was given with {FLAG}")
    elif theirs:
        settings = read(Path(theirs).expanduser())
    path = run.file("settings.json", merged(settings, entries("claude", run.socket, _handler)))
    note = ""
    if settings.get("disableAllHooks"):
        note = f"what was given with {FLAG} disables all hooks, and so the bridge"
    return Prepared(run.with_flags([FLAG, path], arguments), run.env, "claude", note)


def _handler(command: list[str]) -> dict[str, Any]:
    """Return a handler in exec form (`args`), without a shell."""
    return {"type": "command", "command": command[0], "args": command[1:], "timeout": TIMEOUT}


def _without_settings(arguments: tuple[str, ...]) -> tuple[list[str], str]:
    """Return `arguments` without `--settings X`, and the last X; words behind `--` belong to the prompt."""
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
