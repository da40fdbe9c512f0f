"""Claude Code: `--settings FILE`, which it merges with the user's, the project's and the local hooks.

It takes the last `--settings` only, so that a user's own is put into one file with ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relay.agents.hook_setup import TIMEOUT, Prepared, Run, merged, parsed, read, rules

FLAG = "--settings"


def prepare(run: Run) -> Prepared:
    """`claude ARG...` as `claude --settings FILE ARG...`, without a `--settings` among ARG."""
    arguments, theirs = _without_settings(run.arguments)
    settings: dict[str, Any] = {}
    if theirs.lstrip().startswith("{"):
        settings = parsed(theirs, f"what was given with {FLAG}")
    elif theirs:
        settings = read(Path(theirs).expanduser())
    path = run.file("settings.json", merged(settings, rules("claude", run.socket, _handler)))
    note = ""
    if settings.get("disableAllHooks"):
        note = f"what was given with {FLAG} disables all hooks, and so the bridge"
    return Prepared(run.with_flags([FLAG, path], arguments), run.env, "claude", note)


def _handler(command: list[str]) -> dict[str, Any]:
    """In exec form (`args`): no shell takes part."""
    return {"type": "command", "command": command[0], "args": command[1:], "timeout": TIMEOUT}


def _without_settings(arguments: tuple[str, ...]) -> tuple[list[str], str]:
    """`arguments` without `--settings X`, and the last X; what follows `--` is the prompt's."""
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
