"""The file of system defaults of Qwen and Gemini, which an environment variable moves for one run.

    defaults < the user's settings < the project's < the administrator's    each adds its hooks to the others'

The administrator's own defaults, where there are some, are copied into ours.  The system *settings* have a
variable, too; moving those would displace the administrator's, and the defaults beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from relay.agents.hook_setup import HookEntries, Prepared, Run, merged, read

FILE = "system-defaults.json"


def prepare(run: Run, kind: str, ours: HookEntries, prefix: str, *, linux: str, macos: str) -> Prepared:
    """Return the command of `run` with an environment that names a file of defaults with `ours`.

    prefix: of the agent's variables; linux, macos: the folder of the system's settings.

    Raise ConfigError or OSError where the administrator's defaults cannot be read.
    """
    variable = f"{prefix}_SYSTEM_DEFAULTS_PATH"
    settings = run.env.get(f"{prefix}_SYSTEM_SETTINGS_PATH")
    folder = Path(settings).parent if settings else Path(macos if sys.platform == "darwin" else linux)
    path = Path(run.env.get(variable) or folder / FILE)
    theirs = read(path) if path.exists() else {}
    return Prepared(list(run.command), {**run.env, variable: run.file(FILE, merged(theirs, ours))}, kind)
