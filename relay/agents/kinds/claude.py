"""Claude Code: hooks by `--settings FILE`, which it merges with user, project and local hooks.

It takes only the last `--settings`, so a user's own is merged into one file with ours.

Its transcripts, ~/.claude/projects/DIR/SESSION.jsonl, have a line for each content block, about 0.1 s after
the end of the message, often after its PreToolUse or Stop hook. Those of subagents are in SESSION/subagents/.
The lines of a message all have its usage; all but the last may have only the usage so far. Input excludes the
cache. Measured with 2.1.197.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.agents import hook_event, hook_reply, mcp_server
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_setup import (
    TIMEOUT,
    Prepared,
    Run,
    entries,
    expanded,
    handler,
    installed,
    merged,
    parsed,
    read,
)
from relay.agents.kind import AgentKind, Markers
from relay.agents.transcript_lines import (
    Failed,
    LineReader,
    Said,
    dict_of,
    dicts,
    numbered,
    object_in,
    text_of,
)
from relay.agents.usage import Charge, OneCharge, Tokens, UsageFormat, number
from relay.agents.version import numbers
from relay.dataclass import replace
from relay.errors import ConfigError

if TYPE_CHECKING:
    from relay.agents.door import Door, Site
    from relay.agents.peers import PeerList

FLAG = "--settings"

SINCE = {
    "PermissionRequest": (2, 0, 77),
    "PostToolUseFailure": (2, 0, 77),
    "SubagentStart": (2, 0, 77),
    "StopFailure": (2, 1, 78),
}
"""Events that 1.0 lacks, and a version that has each. An unknown one is an error, and Claude asks."""

EXEC_FORM = (2, 1, 197)
"""A version whose hooks have `args`. 2.1.100 has no `args`: it would run `command` alone, in a shell."""


INBOUND = "crossSessionInbound"
"""The setting for messages of other sessions: accept, hold (until that is set to accept) or refuse."""

_PROJECT = ("settings.json", "settings.local.json")
_SYSTEM = Path("/etc/claude-code")
_MANAGED = _SYSTEM / "managed-settings.json"
_ALONE = frozenset({"--strict-mcp-config", "--bare", "--safe-mode"})
"""Flags of a user who wants no further servers."""
_ENVELOPE = re.compile(r"<cross-session-message\b[^>]*>\n(.*)\n</cross-session-message>", re.DOTALL)


class Claude(AgentKind):
    name = "claude"
    events = {**hook_event.EVENTS, "MessageDisplay": NativeName.MESSAGE_DISPLAY}
    unasked = frozenset({NativeName.MESSAGE_DISPLAY})
    replies = {
        **hook_reply.REPLIES,
        NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "halt", "notice"}),
        # It takes `continue: false` here, but ends its turn only after the tool has run: so deny the call.
        NativeName.TOOL_PRE: frozenset({"context", "deny", "ask", "allow", "input", "notice"}),
        NativeName.TOOL_POST: frozenset({"context", "halt", "notice"}),
        NativeName.STOP: frozenset({"continuation", "halt", "notice"}),
    }
    continues_with_context = True  # it draws a block as an error, and 2.1.330 sends it to its model twice
    forgets_prompts = True  # 2.1.197
    door_since = "2.1.224"
    mcp_since = "2.1.197"
    markers = Markers(
        "CLAUDECODE",
        ("CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_SESSION_ID"),
        (
            *("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH", "CLAUDE_EFFORT", "AI_AGENT", "TRACEPARENT"),
            *("GIT_EDITOR=true", "COREPACK_ENABLE_AUTO_PIN=0", "NoDefaultCurrentDirectoryInExePath"),
            *("TMUX", "TMUX_PANE"),  # of the server that it starts for its own commands
        ),
    )

    def prepare(self, run: Run) -> Prepared:
        """Return `claude ARG...` as `claude --settings FILE ARG...`, without a `--settings` among ARG."""
        arguments, theirs = _without_settings(run.arguments)
        settings: dict[str, Any] = {}
        if theirs.lstrip().startswith("{"):
            settings = parsed(theirs, f"what was given with {FLAG}")
        elif theirs:
            settings = read(expanded(theirs))
        version = installed(run, "/claude-code")
        ours = entries(self, run.directory, handler if () < version < EXEC_FORM else _handler)
        known = {
            event: added for event, added in ours.items() if not version or version >= SINCE.get(event, ())
        }
        if version >= numbers(self.door_since) and not inbound(run.env) and INBOUND not in settings:
            settings[INBOUND] = "accept"  # with its permissions bypassed, it asks about each message
        path = run.file("settings.json", merged(settings, known))
        note = ""
        if settings.get("disableAllHooks"):
            note = f"the settings given with {FLAG} disable all hooks, and so the bridge"
        return Prepared(run.with_flags([FLAG, path], arguments), run.env, self.name, note)

    def connect(self, run: Run) -> Run | None:
        """Add `--mcp-config FILE`, and the tools that need no permission: both add to the user's own."""
        version = installed(run, "/claude-code")
        if version < numbers(self.mcp_since) or _without_servers(run) or _has_own_server(run):
            return None
        path = mcp_server.config_file(run)
        tools = ",".join(f"mcp__{mcp_server.NAME}__{tool}" for tool in mcp_server.UNASKED)
        # Each of the two takes all words up to the next flag; the flag of `prepare` follows.
        return run.flagged("--mcp-config", path, "--allowedTools", tools)

    def parse(self, event: str, payload: bytes | str) -> NativeEvent | None:
        """Return the event; a prompt that another session has sent comes without its envelope."""
        found = super().parse(event, payload)
        return None if found is None else replace(found, prompt=without_envelope(found.prompt))

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._claude_door import ClaudeDoor  # not before an agent runs

        return ClaudeDoor(site)

    def peers(self, site: Site) -> PeerList:
        from relay.agents.kinds._claude_peers import ClaudePeers

        return ClaudePeers(site, folder_of(site.env) / "sessions")

    def reader(self) -> LineReader:
        return _said

    def failure(self, line: bytes) -> Failed | None:
        if b'"isApiErrorMessage"' not in line:
            return None
        entry = object_in(line)
        if entry.get("isApiErrorMessage") is not True or entry.get("isSidechain") is True:
            return None
        blocks = dicts(dict_of(entry.get("message")).get("content"))
        text = "\n".join(text_of(block.get("text")) for block in blocks)
        return Failed(text, *(text_of(entry.get(key)) for key in ("error", "uuid", "timestamp")))

    def subagent_transcript(self, transcript_path: str, agent_id: str) -> str:
        if not transcript_path.endswith(".jsonl") or "/" in agent_id:
            return ""
        return f"{transcript_path.removesuffix('.jsonl')}/subagents/agent-{agent_id}.jsonl"

    def runs_itself(self, event: NativeEvent) -> bool:
        return bool(event.agent_id and not event.agent_type)  # such as for the summary of a compaction

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()

    def subagent_folder(self, transcript: Path, session: str) -> Path:
        return transcript.with_suffix("") / "subagents"


def without_envelope(text: str) -> str:
    """Return what another session has written, without the envelope around it."""
    envelope = _ENVELOPE.search(text)
    return text if envelope is None else envelope[1]


def folder_of(env: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings."""
    return expanded(env.get("CLAUDE_CONFIG_DIR") or f"{env.get('HOME', '~')}/.claude")


def inbound(env: Mapping[str, str], *, directory: str = "") -> str:
    """Return what settings files say about messages of other sessions, the strictest; "" if they say nothing.

    directory: of the run's own settings.
    """
    files = [
        folder_of(env) / "settings.json",
        *(Path(env.get("PWD", "."), ".claude", name) for name in _PROJECT),
    ]
    files += [_MANAGED, *([Path(directory) / "settings.json"] if directory else [])]
    found = set[object]()
    for file in files:
        with suppress(ConfigError):
            found.add(read(file).get(INBOUND))
    return next((each for each in ("refuse", "hold", "accept") if each in found), "")


def _without_servers(run: Run) -> bool:
    """Return True if the user, or the administrator, wants no further servers.

    With an administrator's managed-mcp.json, or disableSideloadFlags, Claude refuses to start with the flag.
    """
    settings = (_MANAGED, *_SYSTEM.glob("managed-settings.d/*"), folder_of(run.env) / "remote-settings.json")
    return (
        not _ALONE.isdisjoint(run.arguments)
        or (_SYSTEM / "managed-mcp.json").exists()
        or mcp_server.named_in(settings, "disableSideloadFlags")
    )


def _has_own_server(run: Run) -> bool:
    """Return True if the user has a server of the same name: one of the two would hide the other."""
    given = _given_servers(run.arguments)
    if mcp_server.named_in(map(expanded, given)) or f'"{mcp_server.NAME}"' in " ".join(given):
        return True
    own = folder_of(run.env) if run.env.get("CLAUDE_CONFIG_DIR") else folder_of(run.env).parent
    places = [own / ".claude.json", *mcp_server.project_files(run, ".mcp.json")]
    for file in places:
        with suppress(ConfigError):
            found = read(file)
            projects = dict_of(found.get("projects"))
            here = (dict_of(projects.get(str(folder))) for folder in mcp_server.project_files(run, ""))
            if any(mcp_server.NAME in dict_of(each.get("mcpServers")) for each in (found, *here)):
                return True
    return False


def _given_servers(arguments: tuple[str, ...]) -> list[str]:
    """Return the values of `--mcp-config`: files, and JSON; it takes all words up to the next flag."""
    found: list[str] = []
    taking = False
    for word in arguments:
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            taking = flag == "--mcp-config" and not equals
            found += [value] if flag == "--mcp-config" and equals else []
        elif taking:
            found.append(word)
    return found


def _handler(command: list[str]) -> dict[str, Any]:
    """Return a handler in exec form (`args`), without a shell."""
    return {"type": "command", "command": command[0], "args": command[1:], "timeout": TIMEOUT}


def _without_settings(arguments: tuple[str, ...]) -> tuple[list[str], str]:
    """Return `arguments` without `--settings X`, and the last X; words after `--` belong to the prompt."""
    kept: list[str] = []
    found = ""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            kept += [word, *rest]
            break
        if word == FLAG and rest:
            found = rest.pop(0)
        elif word.startswith(FLAG + "="):
            found = word.removeprefix(FLAG + "=")
        else:
            kept.append(word)
    return kept, found


def _said(line: bytes) -> list[Said]:
    if b'"assistant"' not in line:
        return []
    entry = object_in(line)
    message = dict_of(entry.get("message"))
    # The model "<synthetic>" is claude itself: an API error, an interrupted text, "No response requested."
    own = entry.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    if entry.get("type") != "assistant" or own:
        return []
    aside = entry.get("isSidechain") is True
    return numbered(
        (
            text_of(block.get("text"))
            for block in dicts(message.get("content"))
            if block.get("type") == "text"
        ),
        text_of(entry.get("uuid")) or text_of(message.get("id")),
        text_of(entry.get("timestamp")),
        (text_of(entry.get("agentId")) or "subagent") if aside else "",
        text_of(entry.get("attributionAgent")) if aside else "",
        version=text_of(entry.get("version")),
    )


class _Usage(OneCharge):
    def charge(self, line: bytes) -> Charge | None:
        if b'"usage"' not in line:
            return None
        entry = object_in(line)
        message = dict_of(entry.get("message"))
        usage, id = dict_of(message.get("usage")), text_of(message.get("id"))
        model = text_of(message.get("model"))
        if entry.get("type") != "assistant" or not usage or model == "<synthetic>" or not id:
            return None
        written = number(usage.get("cache_creation_input_tokens"))
        kept = number(dict_of(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
        tokens = Tokens(
            number(usage.get("input_tokens")),
            number(usage.get("output_tokens")),
            number(usage.get("cache_read_input_tokens")),
            written,
            min(kept, written),
        )
        return Charge(id, model, tokens, time=text_of(entry.get("timestamp")))
