"""Qwen Code's hook set-up: a file of system defaults for one run (relay.agents.system_defaults).

It takes the user's hooks from the user's settings and the project's from the project's; only where one of the
two has none does it take all there are, ours among them (0.15.10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relay.agents import system_defaults
from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, handler, read
from relay.errors import ConfigError


def prepare(run: Run) -> Prepared:
    """Return the command with a file of defaults. Raise ConfigError where Qwen would ignore its hooks."""
    home = run.env.get("QWEN_HOME") or f"{run.env.get('HOME', '~')}/.qwen"
    if _has_hooks(Path(home).expanduser()) and _has_hooks(Path(".qwen")):
        raise ConfigError(
            "Qwen takes no more hooks where both the user's and the project's settings have some; "
            "what it does is read from its screen"
        )
    return system_defaults.prepare(
        run,
        "qwen",
        entries("qwen", run.socket, _handler),
        "QWEN_CODE",
        linux="/etc/qwen-code",
        macos="/Library/Application Support/QwenCode",
    )


def _handler(command: list[str]) -> dict[str, Any]:
    """Return a handler with its timeout in milliseconds, as 0.15.10 has it, and newer ones from 1,000 on."""
    return handler(command, TIMEOUT * 1000)


def _has_hooks(folder: Path) -> bool:
    try:
        return bool(read(folder / "settings.json").get("hooks"))
    except (ConfigError, OSError):
        return False
