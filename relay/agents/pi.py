"""pi's hook set-up: `--extension FILE`, which it loads before the user's own extensions.

FILE belongs to the run and hands pi.mjs what it needs.  pi loads it with `--no-extensions`, too: that leaves
out what it would find by itself.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from relay.agents.hook_setup import Prepared, Run, plugin_options
from relay.errors import ConfigError

FLAG = "--extension"

OLDEST = (0, 65)
"""The first version with the events that pi.mjs needs. Before 0.35 FILE would be taken for a prompt."""

_COMMANDS = frozenset({"auth", "config", "install", "list", "remove", "uninstall", "update"})
"""First arguments that start no agent, and that have to remain the first."""

_EXTENSION = Path(__file__).with_name("pi.mjs")


def prepare(run: Run) -> Prepared:
    """Return `pi ARG...` as `pi --extension FILE ARG...`. Raise ConfigError for a pi that is too old."""
    if run.arguments[:1] and run.arguments[0] in _COMMANDS:
        return Prepared(list(run.command), run.env)
    version = _version(run)
    if version and version < OLDEST:
        raise ConfigError(
            f"relay's extension needs pi {'.'.join(map(str, OLDEST))} or later; what this one does is read "
            "from its screen"
        )
    source = f"import extension from {json.dumps(str(_EXTENSION))}\n"
    source += f"export default extension({json.dumps(plugin_options(run, 'pi'))})\n"
    return Prepared(run.with_flags([FLAG, run.write("relay.js", source)], run.arguments), run.env, "pi")


def _version(run: Run) -> tuple[int, ...]:
    """Return major and minor version, by the package.json above the program; () if that is unknown."""
    program = shutil.which(run.command[run.at or 0], path=run.env.get("PATH"))
    for folder in Path(os.path.realpath(program)).parents if program else ():
        try:
            package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
            if package["name"].endswith("/pi-coding-agent"):
                return tuple(int(part) for part in package["version"].split(".")[:2])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return ()
