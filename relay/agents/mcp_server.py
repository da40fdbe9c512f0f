"""relay's MCP server, as an agent is told of it for one run (AgentKind.connect).

The agent starts `relay mcp` itself, which tells from its process whose server it is (relay.mcp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relay.agents.hook_setup import DEFAULTS, Run, read
from relay.agents.transcript_lines import dict_of
from relay.home import PYTHON
from relay.project import folders

NAME = "relay"
"""The server's name in the agent's configuration."""

PROGRAM, *ARGUMENTS = (*PYTHON, "-m", "relay", "mcp")

UNASKED = (
    *("whoami", "list_agents", "send_message", "wait_for_message", "inbox", "message_status"),
    *("remember", "recall", "ask_user"),
)
"""The tools that need no permission: each does what a directive does, which needs none either, or reads only
what is the agent's own. The others show, delete, start or end something."""

_HOMES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")


def stdio() -> dict[str, Any]:
    """Return the server's entry in the form that most agents share."""
    return {"command": PROGRAM, "args": ARGUMENTS}


def config_file(run: Run) -> str:
    """Write the file that adds the server to an agent with a flag for such files. Return its path."""
    return run.file("mcp.json", {"mcpServers": {NAME: stdio()}})


def among_defaults(run: Run, own: Iterable[Path], group: str, key: str, prefix: str) -> Run | None:
    """Return `run` with the server in its file of system defaults.

    own: the user's settings. group, key: where the tools that need no permission are listed; prefix: of their
    names there. Return None if the user or the administrator has a server of this name: that would be used
    instead, and its tools need permission.
    """
    defaults = read(Path(run.directory, DEFAULTS))
    servers, settings = dict_of(defaults.get("mcpServers")), dict_of(defaults.get(group))
    if NAME in servers or named_in(own):
        return None
    listed = settings.get(key)
    allowed = [*(listed if isinstance(listed, list) else []), *(f"{prefix}{tool}" for tool in UNASKED)]
    more = {"mcpServers": {**servers, NAME: stdio()}, group: {**settings, key: allowed}}
    run.file(DEFAULTS, {**defaults, **more})
    return run


def variables(run: Run) -> list[str]:
    """Return the variables that the server needs, for an agent that passes only named ones on."""
    return sorted(name for name in run.env if name.startswith("RELAY_") or name in _HOMES)


def named_in(files: Iterable[Path], pattern: str = rf'"{NAME}"\s*:') -> bool:
    """Return True if one of the user's `files` matches `pattern`; by default, if it has NAME as a key.

    Comments may make it invalid JSON.
    """
    return any(re.search(pattern, _text(file)) for file in files)


def project_files(run: Run, *names: str) -> list[Path]:
    """Return the paths of these files in the run's project, whether or not they exist."""
    here = run.env.get("PWD") or str(Path.cwd())
    return [Path(folder, name) for folder in folders(here) for name in names]


def _text(path: Path) -> str:
    try:
        # A pipe, such as bash's <(...), can be read only once.
        return path.read_text("utf-8", "replace") if path.is_file() else ""
    except OSError:
        return ""
