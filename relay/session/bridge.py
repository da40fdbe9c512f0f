"""The bridge to an agent's own hooks or transcript, set up before the agent starts."""

from __future__ import annotations

import os

from relay.agents import kinds
from relay.session.log import open_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relay.home import Home
    from relay.session.options import Options


def bridged(
    options: Options, env: dict[str, str], home: Home, directory: str, socket: str
) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Return (command, environment, facts about the bridge) with a bridge to the agent's hooks or transcript.

    directory: for the bridge's files, which exist if there is a bridge or a record.
    Log a failure and describe it in the note: the agent starts anyway.
    """
    command = options.command
    about: dict[str, Any] = {"bridge": "", "bridge_note": "", "record": {}, "mcp": False}
    # Only a command with the name of a kind of agent in one of its words waits for the profiles.
    known = any(name in os.path.basename(word) for word in command for name in kinds.names())
    if not (options.profile or known or os.path.isdir(os.path.join(home.config_dir, "patterns"))):
        return command, env, about
    try:
        from relay.agents import hook_setup

        mcp = _wants_mcp(home)
        done = hook_setup.bridge(options.profile, command, env, home, directory, socket, mcp=mcp)
    except Exception as error:  # noqa: BLE001 - our own bug; logged, and reported by the session
        import traceback

        try:
            with open(open_log(home), "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        except OSError:
            pass  # the note tells the user anyway
        return (
            command,
            env,
            about | {"bridge_note": f"setting it up failed ({type(error).__name__}: {error})"},
        )
    if done.kind:
        _note_guards(options, home, socket, env["RELAY_NAME"])
    record = {} if done.record is None else done.record.fields()
    facts = {"bridge": done.kind, "bridge_note": done.note, "record": record, "mcp": done.mcp}
    return done.command, done.env, facts


def _wants_mcp(home: Home) -> bool:
    """Return True if the agent is to have relay's MCP server: the setting `mcp`."""
    from relay.session.preflight import configured

    if not configured(home, ("relay.toml",)):
        return True
    from pathlib import Path

    from relay import settings
    from relay.hooks.trust import Trust

    return settings.load(home, Path.cwd(), Trust(home).covers)[0].mcp == "auto"


def _note_guards(options: Options, home: Home, socket: str, name: str) -> None:
    """Tell the agent's hooks that guards may be in force, until a session knows which."""
    from relay.agents import hook_guards
    from relay.session.preflight import configured

    guarded = (
        options.registry is not None
        or bool(options.rules or options.config)
        or configured(home, ("hooks.json", "relay.config.py"))
    )
    try:
        hook_guards.write(socket, name, hook_guards.GUARDED if guarded else ())
    except OSError:
        pass  # the session reports it, and hooks use what was there before
