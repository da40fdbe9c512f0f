"""Qwen Code's hook set-up: a file of system defaults for one run (hook_setup.with_defaults).

It takes the user's hooks from the user's settings and the project's from the project's; only if one of the
two has none does it take all hooks, ours included (0.15.10).
"""

from __future__ import annotations

from pathlib import Path

from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, expanded, handler, read, with_defaults
from relay.errors import ConfigError


def prepare(run: Run) -> Prepared:
    """Return the command with a file of defaults. Raise ConfigError if Qwen would ignore its hooks."""
    home = run.env.get("QWEN_HOME") or f"{run.env.get('HOME', '~')}/.qwen"
    if _has_hooks(expanded(home)) and _has_hooks(Path(".qwen")):
        raise ConfigError(
            "Qwen accepts no further hooks if both the user's and the project's settings have some; relay "
            "reads its screen instead"
        )
    # Timeouts are in milliseconds: all of them in 0.15.10, those from 1,000 on in newer versions.
    ours = entries("qwen", run.directory, lambda command: handler(command, TIMEOUT * 1000))
    return with_defaults(run, "qwen", ours, "QWEN_CODE", linux="qwen-code", macos="QwenCode")


def _has_hooks(folder: Path) -> bool:
    try:
        return bool(read(folder / "settings.json").get("hooks"))
    except ConfigError:
        return False
