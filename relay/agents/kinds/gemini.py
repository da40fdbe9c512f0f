"""Gemini CLI: a file of system defaults with hooks for one run, or its session's name.

It reads such a file only if nobody but root could have written it (0.61.0), and complains on its screen about
any other.  It has no other place for the hooks of one run (docs/AGENTS.md), so only root's agents have a
bridge.  The words of other users' agents are in the transcripts of a session whose id we choose.

Its transcripts, ~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl, get a line as soon as a message has ended,
and the same again with the results of its tools. Those of subagents are chats/SESSION/ID.jsonl. Usage is
"tokens" of each message: input includes the cache; thoughts come on top of the output. Measured with 0.61.0.
"""

from __future__ import annotations

import glob
import re
import time
import uuid
from pathlib import Path

from relay.agents import hook_event, mcp_server
from relay.agents.hook_event import NativeName
from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, handler, with_defaults
from relay.agents.kind import AgentKind, Markers
from relay.agents.named_transcripts import Named, iso
from relay.agents.profile import PromptKind
from relay.agents.transcript_lines import Failed, LineReader, Said, dict_of, numbered, object_in, text_of
from relay.agents.usage import Charge, OneCharge, UsageFormat, charge_of, number

NOTE = (
    "Gemini takes hooks for a single run only from a folder that root owns and only root can write to; relay "
    "reads its screen instead"
)

_COMMANDS = frozenset({"mcp", "extension", "extensions", "gemma", "hook", "hooks", "skill", "skills"})
_NO_SESSION = frozenset(
    {"--delete-session", "--help", "--list-extensions", "--list-sessions", "--version", "-h", "-l", "-v"}
)
_RESUMES = frozenset({"--resume", "--session-file", "-r"})
_ID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\Z")


class Gemini(AgentKind):
    name = "gemini"
    events = {
        "SessionStart": NativeName.SESSION_START,
        "BeforeAgent": NativeName.PROMPT_SUBMIT,
        "BeforeTool": NativeName.TOOL_PRE,
        "AfterTool": NativeName.TOOL_POST,
        "Notification": NativeName.NOTIFICATION,
        "AfterAgent": NativeName.STOP,
        "PreCompress": NativeName.COMPACT,
        "SessionEnd": NativeName.SESSION_END,
    }
    unasked = frozenset({NativeName.COMPACT})
    replies = {
        NativeName.SESSION_START: frozenset({"context", "notice"}),
        NativeName.PROMPT_SUBMIT: frozenset({"context", "deny", "notice"}),
        NativeName.TOOL_PRE: frozenset({"deny", "notice"}),
        NativeName.TOOL_POST: frozenset({"context", "notice"}),
        NativeName.STOP: frozenset({"continuation", "notice"}),
    }
    refuses_plainly = True
    dialogs = {
        **hook_event.DIALOGS,
        "exit_plan_mode": PromptKind.PLAN_APPROVAL,
        "ask_user_question": PromptKind.QUESTION,
    }
    fields = {"prompt_response": "last_assistant_message"}  # tests/agents/payloads/gemini
    notifications = {"ToolPermission": "permission_prompt"}
    bequeaths_hooks = True
    stops_after_failure = True
    omits_joiners = True  # 0.61.0
    mcp_since = "0.61.0"
    tools = {
        "Bash": ("run_shell_command",),
        "Read": ("read_file", "read_many_files"),
        "Edit": ("replace",),
        "Write": ("write_file",),
        "Grep": ("search_file_content", "grep_search"),
        "Glob": ("glob",),
        "LS": ("list_directory",),
        "WebFetch": ("web_fetch",),
        "WebSearch": ("google_web_search",),
        "TodoWrite": ("write_todos",),
        "Skill": ("activate_skill",),
        "AskUserQuestion": ("ask_user",),
        "EnterPlanMode": ("enter_plan_mode",),
        "ExitPlanMode": ("exit_plan_mode",),
    }
    markers = Markers(
        "GEMINI_CLI",
        (),
        (
            *("GEMINI_CLI_NO_RELAUNCH", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"),
            *("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_NOSYSTEM=1"),
            *("GIT_CONFIG_COUNT", "GIT_ASKPASS=", "SSH_ASKPASS=", "GCM_INTERACTIVE=never"),
            *("GH_PROMPT_DISABLED=1", "DISPLAY=", "DBUS_SESSION_BUS_ADDRESS="),
        ),
    )

    def prepare(self, run: Run) -> Prepared:
        """Return the command with a file of defaults, or else with a session id."""
        if not _only_root_writes(Path(run.directory)):
            return _with_session(run)
        ours = entries(self, run.directory, _handler)
        return with_defaults(run, self.name, ours, "GEMINI_CLI", linux="gemini-cli", macos="GeminiCli")

    def connect(self, run: Run) -> Run | None:
        own = [Path(_home(run), ".gemini/settings.json")]
        own += mcp_server.project_files(run, ".gemini/settings.json")
        return mcp_server.among_defaults(run, own, "tools", "allowed", "mcp_relay_")

    def reader(self) -> LineReader:
        return _said

    def failure(self, line: bytes) -> Failed | None:
        if b'"error"' not in line:
            return None
        entry = object_in(line)
        if entry.get("type") != "error":
            return None
        return Failed(
            text_of(entry.get("content")), "", text_of(entry.get("id")), text_of(entry.get("timestamp"))
        )

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()

    def subagent_folder(self, transcript: Path, session: str) -> Path | None:
        return transcript.parent / session if session and "/" not in session else None


def _handler(command: list[str]) -> dict[str, object]:
    """Return a handler with its timeout in milliseconds; Gemini shows its `name` while it runs."""
    return {**handler(command, TIMEOUT * 1000), "name": "relay"}


def _only_root_writes(folder: Path) -> bool:
    """Return True if Gemini trusts `folder` and all its parents, with and without links resolved."""
    folders = {each for path in (folder.absolute(), folder.resolve()) for each in (path, *path.parents)}
    return all(info.st_uid == 0 and not info.st_mode & 0o022 for info in map(Path.stat, folders))


def _home(run: Run) -> str:
    return run.env.get("GEMINI_CLI_HOME") or run.env.get("HOME", "")


def _with_session(run: Run) -> Prepared:
    """Return the command with `--session-id`, unless the user has chosen the session."""
    command, id = list(run.command), _session(run.arguments)
    if id is None:
        id = str(uuid.uuid4())
        command = run.with_flags(["--session-id", id], run.arguments)
    if not id:
        return Prepared(command, run.env, note=NOTE)
    pattern = f"{glob.escape(_home(run))}/.gemini/tmp/*/chats/session-*-{glob.escape(id[:8])}.jsonl"
    record = Named("gemini", pattern, iso(time.time()), f'"{id}"', session=id)
    return Prepared(command, run.env, note=NOTE, record=record)


def _session(arguments: tuple[str, ...]) -> str | None:
    """Return the id of the session that the user chose: "" if unknown or none, None if left to Gemini."""
    if not _COMMANDS.isdisjoint(arguments):
        return ""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--":
            break
        if name in _NO_SESSION:
            return ""
        if name == "--session-id":
            return value if equals else next(words, "")
        if name in _RESUMES or name.startswith("-r"):  # -rlatest
            value = value if equals else next(words, "")
            return value if _ID.match(value) else ""
    return None


def _said(line: bytes) -> list[Said]:
    # Messages that Gemini makes up itself, as in a compressed conversation, name no model.
    if b'"gemini"' not in line:
        return []
    entry = object_in(line)
    if entry.get("type") != "gemini" or not text_of(entry.get("model")):
        return []
    text, id = text_of(entry.get("content")), text_of(entry.get("id"))
    return numbered(iter([text]), id, text_of(entry.get("timestamp")))


class _Usage(OneCharge):
    def charge(self, line: bytes) -> Charge | None:
        if b'"tokens"' not in line:
            return None
        entry = object_in(line)
        if entry.get("type") != "gemini":
            return None
        usage = {**dict_of(entry.get("tokens")), "model": entry.get("model")}
        tool = number(usage.get("tool"))  # tokens that its own tools have read for it
        usage["input"] = number(usage.get("input")) + tool
        keys = ("input", "cached", "output", "thoughts", "total")
        return charge_of(usage, keys, text_of(entry.get("id")), entry)
