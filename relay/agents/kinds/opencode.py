"""opencode: a plugin of ours in OPENCODE_CONFIG_CONTENT, which it merges with other configuration.

The plugin is a mere path there, as early versions require; its options have their own variable. The door is a
plugin in OPENCODE_TUI_CONFIG, unless the user's own file is named there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from relay.agents import hook_event, hook_reply, mcp_server
from relay.agents.hook_event import NativeName
from relay.agents.hook_setup import Prepared, Run, expanded, parsed, plugin_options
from relay.agents.kind import Markers
from relay.agents.kinds.relay import RelayDialect
from relay.dataclass import replace
from relay.errors import ConfigError

if TYPE_CHECKING:
    from relay.agents.door import Door, Site

_CONFIG = "OPENCODE_CONFIG_CONTENT"
_OPTIONS = "RELAY_BRIDGE"
_TUI = "OPENCODE_TUI_CONFIG"
_FILES = ("config.json", "opencode.json", "opencode.jsonc")

_RETRIES = {"npm_config_fetch_retry_mintimeout": "500", "npm_config_fetch_retry_maxtimeout": "1000"}
"""Milliseconds between npm's attempts.

With a plugin, opencode first installs its own package, once; without a network and without these values, npm
takes 70 seconds for that (1.18.33), at each start.
"""

_PLUGIN = Path(__file__).with_suffix(".mjs")
_DOOR = Path(__file__).with_name("opencode_tui.mjs")


class OpenCode(RelayDialect):
    """opencode, whose plugin speaks relay's dialect."""

    name = "opencode"
    events = hook_event.without("Notification")
    replies = {
        name: hook_reply.REPLIES[name]
        for name in (
            NativeName.SESSION_START,
            NativeName.PROMPT_SUBMIT,
            NativeName.PERMISSION,
            NativeName.TOOL_POST,
            NativeName.STOP,
        )
    } | {NativeName.TOOL_PRE: frozenset({"deny", "input", "notice"})}
    door_since = "1.18.33"
    mcp_since = "1.18.33"
    markers = Markers("OPENCODE", (), ("OPENCODE_PID", "AGENT=1"))

    def prepare(self, run: Run) -> Prepared:
        """Return the command with the plugin in its environment. Raise ConfigError for invalid JSON."""
        theirs = run.env.get(_CONFIG, "")
        config = parsed(theirs, f"what was given in {_CONFIG}") if theirs else {}
        plugins = config.get("plugin", [])
        if not isinstance(plugins, list):
            raise ConfigError(f'"plugin" in {_CONFIG} is not a list')
        config["plugin"] = [*plugins, _uri(run.copy(_PLUGIN))]
        options = plugin_options(run)
        retries = {name: value for name, value in _RETRIES.items() if name not in run.env}
        tui = {}
        if not run.env.get(_TUI):
            door = [_uri(run.copy(_DOOR)), {"door": options["door"]}]
            tui = {_TUI: run.file("tui.json", {"plugin": [door]})}
        # The agent's shells get the user's own values.
        shell = {_CONFIG: theirs, _OPTIONS: "", **dict.fromkeys([*retries, *tui], "")}
        env = {
            **retries,
            **tui,
            _CONFIG: json.dumps(config, ensure_ascii=False),
            _OPTIONS: json.dumps({**options, "shell": shell}),
        }
        pure = "--pure" in run.arguments or run.env.get("OPENCODE_PURE")
        note = "--pure (OPENCODE_PURE) disables all plugins, and so the bridge" if pure else ""
        return Prepared(list(run.command), {**run.env, **env}, self.name, note)

    def connect(self, run: Run) -> Run | None:
        """Add the server to its configuration; it asks about tools only if the user has said so."""
        config = parsed(run.env[_CONFIG], _CONFIG)
        own = config.get("mcp", {})
        user = expanded(run.env.get("XDG_CONFIG_HOME") or f"{run.env.get('HOME', '~')}/.config") / "opencode"
        files = [*(user / name for name in _FILES), *mcp_server.project_files(run, *_FILES)]
        if named := run.env.get("OPENCODE_CONFIG"):
            files.append(Path(named))
        if not isinstance(own, dict) or mcp_server.NAME in own or mcp_server.named_in(files):
            return None
        server = {"type": "local", "command": [mcp_server.PROGRAM, *mcp_server.ARGUMENTS]}
        config["mcp"] = {**own, mcp_server.NAME: server}
        return replace(run, env={**run.env, _CONFIG: json.dumps(config, ensure_ascii=False)})

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._plugin_door import PluginDoor  # not before an agent runs

        return PluginDoor(site)


def _uri(path: str) -> str:
    return Path(path).absolute().as_uri()
