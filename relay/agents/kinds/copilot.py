"""GitHub Copilot CLI: hooks and an extension by a plug-in of the run, `--plugin-dir DIR`.

By Claude Code's names of events it reports them in Claude Code's words, but wants its replies without
"hookSpecificOutput".  Extensions are behind a feature flag; `--experimental` would change more than that.

Its transcripts, ~/.copilot/session-state/SESSION/events.jsonl, get a line as soon as a message has ended,
those of subagents with an "agentId".  Usage is a "session.usage_record" for each response; input includes the
cache.  Measured with 1.0.102.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.agents import hook_event, mcp_server
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Reply
from relay.agents.hook_setup import Prepared, Run, call, check_version, entries, expanded, plugin_options
from relay.agents.kind import AgentKind, Markers
from relay.agents.profile import PromptKind
from relay.agents.transcript_lines import Failed, LineReader, Said, dict_of, numbered, object_in, text_of
from relay.agents.usage import Charge, OneCharge, UsageFormat, charge_of
from relay.dataclass import replace

if TYPE_CHECKING:
    from relay.agents.door import Door, Site

OLDEST = "1.0.102"

_COMMANDS = frozenset(
    {
        *("app", "completion", "config", "help", "init", "instruction", "login", "lsp", "mcp", "memories"),
        *("plugin", "sandbox", "sessions", "skill", "update", "version", "workflow"),
    }
)
"""First arguments that start no agent, and must remain first."""

_FLAGS = "COPILOT_CLI_ENABLED_FEATURE_FLAGS"
_FILES = frozenset({"Edit", "Read", "Write"})
"""The tools whose `path` Claude Code calls `file_path`."""

_SERVERS = "--additional-mcp-config"
_DISABLED = rf'"disabledMcpServers"\s*:\s*\[[^\]]*"{mcp_server.NAME}"'

_EXTENSION = Path(__file__).with_suffix(".mjs")


class Copilot(AgentKind):
    name = "copilot"
    events = hook_event.without("StopFailure")
    replies = {
        NativeName.SESSION_START: frozenset({"context"}),
        NativeName.PROMPT_SUBMIT: frozenset({"context", "deny"}),
        NativeName.TOOL_PRE: frozenset({"allow", "ask", "context", "deny", "input"}),
        NativeName.PERMISSION: frozenset({"allow", "deny"}),
        NativeName.TOOL_POST: frozenset({"context"}),
        NativeName.STOP: frozenset({"continuation"}),
        NativeName.SUBAGENT_START: frozenset({"context"}),
        NativeName.SUBAGENT_STOP: frozenset({"continuation"}),
    }
    dialogs = {**hook_event.DIALOGS, "exit_plan_mode": PromptKind.PLAN_APPROVAL}
    fields = {
        "sessionId": "session_id",  # in some events
        "toolName": "tool_name",
        "toolInput": "tool_input",
        "tool_result": "tool_response",
        "transcriptPath": "transcript_path",
    }
    tools = {
        "Read": ("view",),
        "Edit": ("edit",),
        "Write": ("create",),
        "Grep": ("grep",),
        "Glob": ("glob",),
        "WebFetch": ("web_fetch",),
        "Agent": ("task",),
        "Skill": ("skill",),
        "AskUserQuestion": ("ask_user",),
        "ExitPlanMode": ("exit_plan_mode",),
    }
    forgets_prompts = True
    decides_after_hook = True
    prompt = re.compile(rb'"type":"user\.message"')
    door_since = OLDEST
    mcp_since = OLDEST
    markers = Markers(
        "COPILOT_CLI",
        ("COPILOT_AGENT_SESSION_ID", "COPILOT_CLI_BINARY_VERSION", "COPILOT_CLI_RESOLVED_DIST_DIR"),
        (
            *("COPILOT_LOADER_PID", "GCM_INTERACTIVE=Never", "GIT_ASKPASS=", "GIT_CONFIG_COUNT"),
            *("GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "SSH_ASKPASS="),
        ),
    )

    def prepare(self, run: Run) -> Prepared:
        """Return the command with the plug-in. Raise ConfigError for a Copilot CLI that is too old."""
        if run.arguments[:1] and run.arguments[0] in _COMMANDS:
            return Prepared(list(run.command), run.env)
        check_version(run, "/copilot", OLDEST, "relay's plug-in needs Copilot CLI")
        hooks = {"version": 1, "hooks": entries(self, run.directory)}
        plugin = {"name": "relay", "version": "1.0.0", "hooks": "hooks.json", "extensions": "extensions"}
        run.file("hooks.json", hooks)
        run.file("plugin.json", plugin)
        # It reports what no hook does, and asks for nothing.
        options = {**plugin_options(run), "hook": call(run.directory, "EVENT")}
        source = f"import join from {json.dumps(run.copy(_EXTENSION))}\nawait join({json.dumps(options)})\n"
        Path(run.directory, "extensions/relay").mkdir(parents=True, exist_ok=True)
        run.write("extensions/relay/extension.mjs", source)
        flags = ",".join(filter(None, (run.env.get(_FLAGS), "EXTENSIONS")))
        command = run.with_flags(["--plugin-dir", run.directory], run.arguments)
        return Prepared(command, {**run.env, _FLAGS: flags}, self.name)

    def connect(self, run: Run) -> Run | None:
        """Add `--additional-mcp-config @FILE`, and the tools that need no permission."""
        if _without_server(run):
            return None
        path = mcp_server.config_file(run)
        tools = ",".join(f"{mcp_server.NAME}({tool})" for tool in mcp_server.UNASKED)
        return run.flagged(_SERVERS, f"@{path}", f"--allow-tool={tools}")

    def parse(self, event: str, payload: bytes | str) -> NativeEvent | None:
        """Return None for a subagent's prompts and stops: SubagentStart and SubagentStop follow them."""
        found = super().parse(event, payload)
        if found is None or (found.agent_id and found.name in {NativeName.PROMPT_SUBMIT, NativeName.STOP}):
            return None
        raw = {"transcript_path": "", **found.raw}  # few events have one
        if found.source == "new":
            found, raw["source"] = replace(found, source="startup"), "startup"
        return replace(found, tool_input=_renamed(found, "path", "file_path"), raw=raw)

    def render(self, event: NativeEvent, reply: Reply) -> str:
        if not (rendered := super().render(event, reply)):
            return ""
        answer = json.loads(rendered)
        specific = answer.pop("hookSpecificOutput", {})
        specific.pop("hookEventName", None)
        if event.name is NativeName.PERMISSION:
            specific = specific["decision"]
        if "updatedInput" in specific:
            changed = replace(event, tool_input=specific.pop("updatedInput"))
            specific["modifiedArgs"] = _renamed(changed, "file_path", "path")
        return json.dumps({**answer, **specific})

    def reader(self) -> LineReader:
        return _said

    def failure(self, line: bytes) -> Failed | None:
        entry = _entry(line, "session.error")
        if not entry or entry.get("agentId"):
            return None
        data = dict_of(entry.get("data"))
        code, id, time = text_of(data.get("errorType")), text_of(entry.get("id")), _time(entry)
        return Failed(text_of(data.get("message")), code, id, time)

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._copilot_door import CopilotDoor  # not before an agent runs

        return CopilotDoor(site)


def _without_server(run: Run) -> bool:
    """Return True if the user has a server of the same name, which ours would hide, or has disabled it."""
    home = expanded(run.env.get("COPILOT_HOME") or f"{run.env.get('HOME', '~')}/.copilot")
    given = _values(run.arguments, _SERVERS)
    files = [home / "mcp-config.json", *mcp_server.project_files(run, ".mcp.json", ".github/mcp.json")]
    files += [expanded(each.removeprefix("@")) for each in given if each.startswith("@")]
    return (
        mcp_server.named_in(files)
        or any(f'"{mcp_server.NAME}"' in each for each in given)
        or mcp_server.named_in([home / "settings.json"], _DISABLED)
        or mcp_server.NAME in _values(run.arguments, "--disable-mcp-server")
    )


def _values(arguments: Iterable[str], flag: str) -> list[str]:
    words = iter(arguments)
    split = (word.partition("=") for word in words)
    return [value if equals else next(words, "") for name, equals, value in split if name == flag]


def _renamed(event: NativeEvent, old: str, new: str) -> dict[str, object]:
    """Return the input of a tool call with its key `old` called `new`, if that is a file's path."""
    names = {old: new} if event.tool_name in _FILES else {}
    return {names.get(name, name): value for name, value in event.tool_input.items()}


def _time(entry: dict[str, object]) -> str:
    return text_of(entry.get("timestamp"))


def _entry(line: bytes, type: str) -> dict[str, Any]:
    """Return the entry in a line of the transcript, if it is of this type, else {}."""
    entry = object_in(line) if f'"{type}"'.encode() in line else {}
    return entry if entry.get("type") == type else {}


def _said(line: bytes) -> list[Said]:
    entry = _entry(line, "assistant.message")
    if not entry:
        return []
    data = dict_of(entry.get("data"))
    text, id = text_of(data.get("content")), text_of(data.get("messageId"))
    return numbered(iter([text]), id, _time(entry), text_of(entry.get("agentId")))


class _Usage(OneCharge):
    def charge(self, line: bytes) -> Charge | None:
        entry = _entry(line, "session.usage_record")
        if not entry:
            return None
        usage = dict_of(dict_of(entry.get("data")).get("usage"))
        keys = ("inputTokens", "cacheReadTokens", "outputTokens", "", "")  # its output includes thoughts
        return charge_of(usage, keys, text_of(entry.get("id")), entry)
