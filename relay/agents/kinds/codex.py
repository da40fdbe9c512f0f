"""Codex: hooks by `-c hooks...` flags, with the hashes that make our entries, and no others, trusted.

Codex skips hooks that were not reviewed.  Its flag to skip the review would also run unreviewed hooks of the
project and the user; so each of our entries comes with the record of a review, in `hooks.state`.  A later
version that hashes differently asks its user for a review.

Its transcripts, ~/.codex/sessions/Y/M/D/rollout-*.jsonl, get a line as soon as a text has ended, before the
next hook; a text that the user interrupts is not written at all. A subagent has its own rollout, which may
begin with the counts of its parent. Usage is a "token_usage_record" for each response, in older versions only
a "token_count" with a growing total; input includes the cache. Measured with 0.169.0.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tomllib
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.agents import hook_event, hook_reply, mcp_server
from relay.agents.hook_event import NativeName
from relay.agents.hook_setup import Prepared, Run, entries, expanded, installed
from relay.agents.kind import AgentKind, Markers
from relay.agents.rate_limits import RateLimits, limits
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
from relay.agents.usage import Charge, Tokens, UsageFormat, number
from relay.dataclass import replace

if TYPE_CHECKING:
    from relay.agents.door import Door, Site

SINCE = (0, 169, 0)
"""The first version that is known to have a queue."""

PROGRAM = "codex"
"""The file of a run that names the program of its app-server, if it has a door."""

_SOURCE = "/<session-flags>/config.toml"
"""Codex' name for the file that a run's flags stand for."""

_LAST = 3
"""Seconds that Codex allows a SessionEnd hook; an entry with more has another hash than the recorded one."""


class Codex(AgentKind):
    name = "codex"
    events = hook_event.without("PostToolUseFailure", "Notification", "StopFailure")
    replies = {
        **hook_reply.REPLIES,
        NativeName.TOOL_PRE: frozenset({"context", "deny", "input", "notice"}),
        NativeName.COMPACT: frozenset(),
    }
    allows_changed_input = True
    ranks_context_above_user = True  # as `developer` (0.169.0)
    door_since = "0.169.0"
    mcp_since = "0.169.0"
    usage_is_timed = True  # the turn's model may come before the first event
    tools = {
        "Bash": ("shell", "local_shell", "exec_command", "unified_exec"),
        "Edit": ("apply_patch",),  # it both edits and writes files
        "Write": ("apply_patch",),
        "WebSearch": ("web_search",),
        "TodoWrite": ("update_plan",),
        "Agent": ("spawn_agent",),
        "AskUserQuestion": ("request_user_input",),
    }
    markers = Markers(
        "CODEX_THREAD_ID",
        ("CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID"),
        (
            *("CODEX_CI", "CODEX_VERSION", "CODEX_MANAGED_BY_NPM", "CODEX_MANAGED_PACKAGE_ROOT"),
            *("CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS", "NO_COLOR=1"),
            *("PAGER=cat", "GIT_PAGER=cat", "GH_PAGER=cat"),
        ),
    )

    def prepare(self, run: Run) -> Prepared:
        """Return `codex ARG...` as `codex -c hooks.EVENT=... -c hooks.state=... ARG...`."""
        flags = _without_daemon(run)
        trusted: dict[str, Any] = {}
        for event, groups in entries(self, run.directory).items():
            for group in groups if event == "SessionEnd" else ():
                group["hooks"][0]["timeout"] = _LAST
            flags += ["-c", f"hooks.{event}={_toml(groups)}"]
            label = _label(event)
            for place, group in enumerate(groups):
                trusted[f"{_SOURCE}:{label}:{place}:0"] = {"trusted_hash": _hash(label, group)}
        flags += ["-c", f"hooks.state={_toml(trusted)}"]
        return Prepared(run.with_flags(flags, run.arguments), run.env, self.name)

    def connect(self, run: Run) -> Run | None:
        """Add `-c mcp_servers.relay=...`; it gets only the variables that are named there."""
        if installed(run, "codex") < SINCE or _is_elsewhere(run) or _has_own_server(run):
            return None
        server = {
            **mcp_server.stdio(),
            "env_vars": mcp_server.variables(run),
            "tools": {tool: {"approval_mode": "approve"} for tool in mcp_server.UNASKED},
        }
        return run.flagged("-c", f"mcp_servers.{mcp_server.NAME}={_toml(server)}")

    def door(self, site: Site) -> Door:
        from relay.agents.kinds._codex_door import CodexDoor

        return CodexDoor(site)

    def reader(self) -> LineReader:
        return _said

    def failure(self, line: bytes) -> Failed | None:
        if b'"task_complete"' not in line:
            return None
        entry = object_in(line)
        payload = dict_of(entry.get("payload"))
        error = dict_of(payload.get("error"))
        if payload.get("type") != "task_complete" or not error:
            return None
        # "usage_limit_exceeded", or {"http_connection_failed": {"http_status_code": 401}}
        info = error.get("codex_error_info")
        code = next(iter(info), "") if isinstance(info, dict) else text_of(info)
        return Failed(
            text_of(error.get("message")),
            code,
            text_of(payload.get("turn_id")),
            text_of(entry.get("timestamp")),
        )

    def subagent_transcript(self, transcript_path: str, agent_id: str) -> str:
        return transcript_path  # the event names the subagent's own

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage(totals)


def home_of(env: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings and conversations."""
    return expanded(env.get("CODEX_HOME") or f"{env.get('HOME', '~')}/.codex")


def _without_daemon(run: Run) -> list[str]:
    """Return the flag for a run whose own process takes what is queued, and note the program for its door."""
    program = shutil.which(run.command[run.at or 0], path=run.env.get("PATH"))
    if program is None or _is_elsewhere(run) or installed(run, "codex") < SINCE:
        return []
    run.write(PROGRAM, program)
    return [] if "--no-daemon" in run.arguments else ["--no-daemon"]


def _is_elsewhere(run: Run) -> bool:
    """Return True if the user's app-server runs the conversation."""
    return any(each.partition("=")[0] == "--remote" for each in run.arguments)


def _has_own_server(run: Run) -> bool:
    """Return True if the user has a server of the same name, which ours would change."""
    if any(re.match(rf"mcp_servers(\.{mcp_server.NAME}\b|\s*=)", each) for each in run.arguments):
        return True
    for file in (home_of(run.env) / "config.toml", *mcp_server.project_files(run, ".codex/config.toml")):
        with suppress(OSError, ValueError):
            if mcp_server.NAME in dict_of(tomllib.loads(file.read_text("utf-8")).get("mcp_servers")):
                return True
    return False


def _label(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()  # pre_tool_use


def _hash(label: str, group: dict[str, Any]) -> str:
    """Return the hash of an entry, as Codex records it (codex-rs/hooks, engine/discovery.rs)."""
    handlers = [{"async": False, **handler} for handler in group["hooks"]]
    identity = {**group, "event_name": label, "hooks": handlers}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _toml(value: Any) -> str:
    """Return `value` as TOML on one line; strings are JSON's, which is valid without control characters."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}={_toml(each)}" for key, each in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _said(line: bytes) -> list[Said]:
    # Not the "response_item" lines: they also contain the summary of a compaction.
    if b'"AgentMessage"' not in line:
        return []
    entry = object_in(line)
    payload = dict_of(entry.get("payload"))
    item = dict_of(payload.get("item"))
    if payload.get("type") != "item_completed" or item.get("type") != "AgentMessage":
        return []
    texts = (text_of(part.get("text")) for part in dicts(item.get("content")) if part.get("type") == "Text")
    return numbered(texts, text_of(item.get("id")), text_of(entry.get("timestamp")))


class _Usage:
    """totals: those counted so far, in other files, too."""

    def __init__(self, totals: set[str]) -> None:
        self.limits: RateLimits | None = None
        self._totals = totals
        self._thread = uuid.uuid4().hex  # unless the file names it
        self._model = ""
        self._nameless: list[Charge] = []  # charges before the line with the turn's model
        self._exact = False  # it has a record of each response
        self._repeats = False  # it is a subagent's, without a count of its own so far

    def read(self, line: bytes) -> list[Charge]:
        if not any(mark in line for mark in _MARKS):
            return []
        entry = object_in(line)
        payload = dict_of(entry.get("payload"))
        time = text_of(entry.get("timestamp"))
        charge = None
        match entry.get("type"), payload.get("type"):
            case "turn_context", _:
                return self._named(text_of(payload.get("model")))
            case "session_meta", _:
                self._thread = text_of(payload.get("id")) or self._thread
                self._repeats = bool(payload.get("parent_thread_id")) or "subagent" in dict_of(
                    payload.get("source")
                )
            case "token_usage_record", _:
                if id := text_of(payload.get("response_id")):
                    self._exact = True
                    charge = Charge(id, self._model, _tokens(payload.get("usage")), time=time)
            case "event_msg", "token_count":
                self.limits = _limits(payload.get("rate_limits"), time) or self.limits
                charge = None if self._exact else self._count(dict_of(payload.get("info")), time)
        if charge is None:
            return []
        if not self._model:
            self._nameless.append(charge)
        return [charge]

    def _named(self, model: str) -> list[Charge]:
        """Note the model of what follows; return the charges before it that had none."""
        self._model = model or self._model
        named = [replace(charge, model=model) for charge in self._nameless] if model else []
        if model:
            self._nameless.clear()
        return named

    def _count(self, info: dict[str, Any], time: str) -> Charge | None:
        """Return the charge of the last response, which the growing total identifies.

        Codex writes it again when the limits have changed.
        """
        sums = dict_of(info.get("total_token_usage"))
        tokens = _tokens(info.get("last_token_usage"))
        total = "/".join(str(number(sums.get(key))) for key in _TOTAL)
        self._repeats = self._repeats and total in self._totals
        if self._repeats or not sums or not tokens:
            return None  # its parent's
        self._totals.add(total)
        return Charge(f"{self._thread}/{total}", self._model, tokens, time=time)


_TOTAL = ("input_tokens", "cached_input_tokens", "output_tokens")
_MARKS = (b'"token_usage_record"', b'"token_count"', b'"turn_context"', b'"session_meta"')


def _tokens(value: object) -> Tokens:
    usage = dict_of(value)
    prompt, read, written = (
        number(usage.get(key)) for key in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens")
    )
    read = min(read, prompt)
    written = min(written, prompt - read)
    return Tokens(prompt - read - written, number(usage.get("output_tokens")), read, written)


def _limits(given: object, timestamp: str) -> RateLimits | None:
    """Return the limits in `rate_limits`; None if it has none. timestamp: its event's (ISO 8601).

    It is {"primary": WINDOW, "secondary": WINDOW}. A WINDOW is null, or {"used_percent": 42.0,
    "window_minutes": 300, "resets_at": 1764082800}; older versions have "resets_in_seconds" instead.
    """
    try:
        at = datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None
    values = dict_of(given)
    return limits(at, [values.get("primary"), values.get("secondary")])
