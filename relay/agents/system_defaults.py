"""The file of system defaults of Qwen and Gemini, which an environment variable moves for one run.

    defaults < the user's settings < the project's < the administrator's    each adds its hooks to the others'

The administrator's own defaults, where there are some, are copied into ours.  The system *settings* have a
variable, too; moving those would displace the administrator's, and the defaults beside them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.agents.hook_setup import HookEntries, Run, merged, read


@dataclass(frozen=True, slots=True)
class Defaults:
    """The places where an agent looks for them: two variables, and the folders of the system's settings."""

    variable: str
    settings_variable: str
    linux: str
    macos: str

    def path(self, env: dict[str, str]) -> Path:
        """Return the file that a run with `env` would read."""
        if own := env.get(self.variable):
            return Path(own)
        if settings := env.get(self.settings_variable):
            return Path(settings).parent / "system-defaults.json"
        return Path(self.macos if sys.platform == "darwin" else self.linux) / "system-defaults.json"

    def with_hooks(self, run: Run, ours: HookEntries) -> dict[str, str]:
        """Return the environment of a run whose defaults have `ours`.

        Raise ConfigError or OSError where the administrator's cannot be read.
        """
        path = self.path(run.env)
        theirs: dict[str, Any] = read(path) if path.exists() else {}
        return {**run.env, self.variable: run.file("system-defaults.json", merged(theirs, ours))}
