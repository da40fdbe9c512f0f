"""pi: hooks by `--extension FILE`, which it loads before the user's own extensions.

FILE belongs to the run and passes pi.mjs its options.  pi loads it even with `--no-extensions`, which leaves
out only the extensions that pi finds by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from relay.agents import hook_event, hook_reply, mcp_server
from relay.agents.hook_event import NativeName
from relay.agents.hook_setup import Prepared, Run, check_version, installed, plugin_options
from relay.agents.kind import Markers
from relay.agents.kinds.relay import RelayDialect
from relay.agents.version import numbers

if TYPE_CHECKING:
    from relay.agents.door import Door, Site

FLAG = "--extension"

OLDEST = "0.65"
"""The first version with the events that pi.mjs needs. Before 0.35, pi would take FILE for a prompt."""

_COMMANDS = frozenset({"auth", "config", "install", "list", "remove", "uninstall", "update"})
"""First arguments that start no agent, and must remain first."""

_PACKAGE = "/pi-coding-agent"
_EXTENSION = Path(__file__).with_name("pi.mjs")

_SERVER = """\
// Connects relay's MCP server, if pi has loaded its own support for such servers, which --no-mcp leaves out.
export default (pi) =>
  pi.on("session_start", () => {
    if (pi.getCommands().some(({ name }) => name === "mcp")) pi.registerMcpServer(NAME, SERVER)
  })
"""


class Pi(RelayDialect):
    """pi, whose extension speaks relay's dialect."""

    name = "pi"
    events = hook_event.without(
        "PermissionRequest", "Notification", "SubagentStart", "SubagentStop", "StopFailure"
    )
    replies = {
        **hook_reply.REPLIES,
        NativeName.TOOL_PRE: frozenset({"context", "deny", "input", "notice"}),
    }
    door_since = OLDEST
    mcp_since = "0.99"
    markers = Markers("PI_CODING_AGENT", (), ("AI_AGENT",))

    def prepare(self, run: Run) -> Prepared:
        """Return `pi ARG...` as `pi --extension FILE ARG...`. Raise ConfigError for a pi that is too old."""
        if run.arguments[:1] and run.arguments[0] in _COMMANDS:
            return Prepared(list(run.command), run.env)
        check_version(run, _PACKAGE, OLDEST, "relay's extension needs pi")
        source = f"import extension from {json.dumps(run.copy(_EXTENSION))}\n"
        source += f"export default extension({json.dumps(plugin_options(run))})\n"
        return Prepared(
            run.with_flags([FLAG, run.write("relay.js", source)], run.arguments), run.env, self.name
        )

    def connect(self, run: Run) -> Run | None:
        """Add another extension; a server of the user's with the same name takes precedence."""
        if installed(run, _PACKAGE) < numbers(self.mcp_since):
            return None
        server = {**mcp_server.stdio(), "exposure": "direct"}  # or else, the model has to look for its tools
        source = _SERVER.replace("NAME", json.dumps(mcp_server.NAME)).replace("SERVER", json.dumps(server))
        return run.flagged(FLAG, run.write("relay_mcp.js", source))

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._plugin_door import PluginDoor  # not before an agent runs

        return PluginDoor(site)
