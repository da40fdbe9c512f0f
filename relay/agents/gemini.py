"""Gemini CLI's hook set-up: a file of system defaults for one run (hook_setup.with_defaults).

It reads such a file only where nobody but root could have written it (0.61.0), and complains on its screen of
any other.  It has no other place for the hooks of one run, so that only root's agents have a bridge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, handler, with_defaults
from relay.errors import ConfigError


def prepare(run: Run) -> Prepared:
    """Return the command with a file of defaults. Raise ConfigError if Gemini would not read it."""
    if not _only_root_writes(Path(run.directory)):
        raise ConfigError(
            "Gemini takes hooks for one run only from a folder that belongs to root and nobody else can "
            "write to; what it does is read from its screen"
        )
    ours = entries("gemini", run.socket, _handler)
    return with_defaults(run, "gemini", ours, "GEMINI_CLI", linux="gemini-cli", macos="GeminiCli")


def _handler(command: list[str]) -> dict[str, Any]:
    """Return a handler with its timeout in milliseconds; Gemini shows its `name` while it runs."""
    return {**handler(command, TIMEOUT * 1000), "name": "relay"}


def _only_root_writes(folder: Path) -> bool:
    """Return True if Gemini trusts `folder` and all its parents, with and without links resolved."""
    folders = {each for path in (folder.absolute(), folder.resolve()) for each in (path, *path.parents)}
    return all(info.st_uid == 0 and not info.st_mode & 0o022 for info in map(Path.stat, folders))
