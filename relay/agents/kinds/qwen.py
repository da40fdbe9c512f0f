"""Qwen Code: hooks by a file of system defaults for one run (hook_setup.with_defaults).

It takes the user's hooks from the user's settings and the project's from the project's; only if one of the
two has none does it take all hooks, ours included (0.15.10).

Its transcripts, ~/.qwen/projects/DIR/chats/SESSION.jsonl, have a line for each message, about when the next
hook runs; what subagents say is only in the telemetry lines of the same file. Usage is a
"qwen-code.api_response" for each response, subagents included; else the usageMetadata of messages. Input
includes the cache. Measured with 0.15.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.agents import hook_event, hook_reply, mcp_server
from relay.agents.hook_event import NativeName
from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, expanded, handler, read, with_defaults
from relay.agents.kind import AgentKind, Markers
from relay.agents.profile import PromptKind
from relay.agents.transcript_lines import LineReader, Said, dict_of, dicts, numbered, object_in, text_of
from relay.agents.usage import Charge, OneCharge, UsageFormat, charge_of
from relay.errors import ConfigError

if TYPE_CHECKING:
    from relay.agents.door import Door, Site
    from relay.agents.peers import PeerList

INBOUND = "crossSessionInbound"
"""The setting, below `agents`, for messages of other sessions: accept, hold or refuse."""

_HOUSEKEEPING = ("managed-auto-memory-", "managed-skill-")
"""Prefixes of the subagents that it runs for itself after a turn. No hook reports them."""


class Qwen(AgentKind):
    name = "qwen"
    events = hook_event.EVENTS
    replies = {
        **hook_reply.REPLIES,
        NativeName.SESSION_START: frozenset(),  # its model never sees the context from these two
        NativeName.TOOL_PRE: frozenset({"deny", "notice"}),
    }
    dialogs = {
        **hook_event.DIALOGS,
        "exit_plan_mode": PromptKind.PLAN_APPROVAL,  # by these names in its permission requests
        "ask_user_question": PromptKind.QUESTION,
    }
    forgets_prompts = True  # 0.24.4
    bequeaths_hooks = True
    door_since = "0.23.0"
    mcp_since = "0.15.10"
    tools = {
        "Bash": ("run_shell_command",),
        "Read": ("read_file", "read_many_files"),
        "Edit": ("edit",),
        "Write": ("write_file",),
        "NotebookEdit": ("notebook_edit",),
        "Grep": ("grep_search", "search_file_content"),
        "Glob": ("glob",),
        "LS": ("list_directory",),
        "WebFetch": ("web_fetch",),
        "WebSearch": ("web_search",),
        "TodoWrite": ("todo_write",),
        "Agent": ("task", "agent"),
        "Skill": ("skill",),
        "AskUserQuestion": ("ask_user_question",),
        "EnterPlanMode": ("enter_plan_mode",),
        "ExitPlanMode": ("exit_plan_mode",),
    }
    markers = Markers("QWEN_CODE", (), ("QWEN_CODE_NO_RELAUNCH", "PAGER=cat", "GIT_PAGER=cat"))

    def prepare(self, run: Run) -> Prepared:
        """Return the command with a file of defaults. Raise ConfigError if Qwen would ignore its hooks."""
        if _has_hooks(home_of(run.env)) and _has_hooks(Path(".qwen")):
            raise ConfigError(
                "Qwen accepts no further hooks if both the user's and the project's settings have some; "
                "relay reads its screen instead"
            )
        # Timeouts are in milliseconds: all of them in 0.15.10, those from 1,000 on in newer versions.
        ours = entries(self, run.directory, lambda command: handler(command, TIMEOUT * 1000))
        accept = {INBOUND: "accept"}  # otherwise it holds what comes by its door for its user to review
        names = {"linux": "qwen-code", "macos": "QwenCode"}
        return with_defaults(run, self.name, ours, "QWEN_CODE", agents=accept, **names)

    def connect(self, run: Run) -> Run | None:
        own = [home_of(run.env) / "settings.json", *mcp_server.project_files(run, ".qwen/settings.json")]
        return mcp_server.among_defaults(run, own, "permissions", "allow", "mcp__relay__")

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._qwen_door import QwenDoor

        return QwenDoor(site)

    def peers(self, site: Site) -> PeerList:
        from relay.agents.kinds._qwen_peers import QwenPeers

        return QwenPeers(site, home_of(site.env) / "sessions")

    def reader(self) -> LineReader:
        return _Messages().read

    def speaker(self, said: Said) -> str:
        return said.agent_type  # transcripts and hooks name a subagent differently; both say its kind

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()


def home_of(env: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings."""
    return expanded(env.get("QWEN_HOME") or f"{env.get('HOME', '~')}/.qwen")


def inbound(env: Mapping[str, str]) -> str:
    """Return what the user's and the project's settings say about messages of other sessions; "": nothing."""
    for folder in (Path(env.get("PWD", "."), ".qwen"), home_of(env)):
        with suppress(ConfigError):
            if said := text_of(dict_of(read(folder / "settings.json").get("agents")).get(INBOUND)):
                return said
    return ""


def _has_hooks(folder: Path) -> bool:
    try:
        return bool(read(folder / "settings.json").get("hooks"))
    except ConfigError:
        return False


class _Messages:
    """The format, in which an interrupted message lacks the token count that other messages have."""

    def __init__(self) -> None:
        self._counted = False  # some servers never count

    def read(self, line: bytes) -> list[Said]:
        if b'"assistant"' in line:
            return self._message(object_in(line))
        if b'"subagent_name"' in line:
            return self._subagent(object_in(line))
        return []

    def _message(self, entry: dict[str, Any]) -> list[Said]:
        if entry.get("type") != "assistant":
            return []
        counted = "usageMetadata" in entry
        self._counted = self._counted or counted
        if self._counted and not counted:
            return []
        parts = dicts(dict_of(entry.get("message")).get("parts"))
        text = "".join(text_of(part.get("text")) for part in parts if part.get("thought") is not True)
        id, time, version = (text_of(entry.get(key)) for key in ("uuid", "timestamp", "version"))
        return numbered(iter([text]), id, time, version=version)

    def _subagent(self, entry: dict[str, Any]) -> list[Said]:
        event = dict_of(dict_of(entry.get("systemPayload")).get("uiEvent"))
        name = text_of(event.get("subagent_name"))
        if event.get("event.name") != "qwen-code.api_response" or not name or name.startswith(_HOUSEKEEPING):
            return []
        if self._counted and not event.get("total_token_count"):
            return []
        # "SESSION#general-purpose-ua8de6#0": the subagent, and the number of its request
        agent = text_of(event.get("prompt_id")).split("#")
        return numbered(
            iter([text_of(event.get("response_text"))]),
            text_of(entry.get("uuid")),
            text_of(entry.get("timestamp")),
            agent[1] if len(agent) > 1 and agent[1] else name,
            name,
        )


class _Usage(OneCharge):
    def __init__(self) -> None:
        self._exact = False  # it has an event for each response

    def charge(self, line: bytes) -> Charge | None:
        if b'"qwen-code.api_response"' in line:
            entry = object_in(line)
            event = dict_of(dict_of(entry.get("systemPayload")).get("uiEvent"))
            if event.get("event.name") == "qwen-code.api_response":
                self._exact = True
                keys = ("input_token_count", "cached_content_token_count", "output_token_count")
                id = text_of(event.get("response_id")) or text_of(entry.get("uuid"))
                return charge_of(event, (*keys, "thoughts_token_count", "total_token_count"), id, entry)
        elif b'"usageMetadata"' in line and not self._exact:
            entry = object_in(line)
            keys = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount")
            if entry.get("type") == "assistant":
                usage = {**dict_of(entry.get("usageMetadata")), "model": entry.get("model")}
                id = text_of(entry.get("uuid"))
                return charge_of(usage, (*keys, "thoughtsTokenCount", "totalTokenCount"), id, entry)
        return None
