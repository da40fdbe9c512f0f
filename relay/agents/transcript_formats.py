"""The formats of transcripts: what a line of an agent's transcript says, one function for each format.

Measured with claude 2.1.197, codex 0.169.0, qwen 0.15.10, gemini 0.61.0 and aider 0.86.2. All but aider write
JSON lines, one object a line, with an ISO 8601 "timestamp" in UTC.

    claude  ~/.claude/projects/DIR/SESSION.jsonl: a line for each content block, about 0.1 s after the end
            of the message, often after its PreToolUse or Stop hook. Subagents: SESSION/subagents/.
    codex   ~/.codex/sessions/Y/M/D/rollout-*.jsonl: a line as soon as a text has ended, before the next hook.
            Subagents: their own rollout.
    qwen    ~/.qwen/projects/DIR/chats/SESSION.jsonl: a line for each message, about when the next hook runs.
            Subagents: only in the telemetry lines of the same file.
    gemini  ~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl: a line as soon as a message has ended, the same
            again with the results of its tools. Subagents: chats/SESSION/ID.jsonl.
    aider   the file of --llm-history-file: each request whole, then each answer as soon as it has ended, with
            the role before every line. (Its chat history does not separate a tool's output from its words.)
    relay   what programs without their own transcript write for relay (docs/NATIVE.md), and our plugins
            in other agents: a line for each text as soon as it is complete. Subagents: in the same file.

Left out, as the model did not say it: the program's own text about an API error, the summary of a compaction,
thinking, and a text that the user interrupted. Codex does not write an interrupted text at all, and nothing
shows whether a text that was cut off was meant to be acted on. `failure` returns the errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """One text of an agent, as the model wrote it (Markdown).

    id:         unique in the session, even for equal texts; the same wherever the agent copies the line.
    time:       the line's own timestamp, unchanged; "" for none.
    subagent:   the subagent that said it; "" for the agent itself.
    agent_type: the kind of that subagent, as the agent calls it.
    place:      the offset in bytes of the end of its line in the transcript; 0 if it is from a stop event.
    version:    of the agent, if its lines have it.
    """

    text: str
    id: str
    time: str = ""
    subagent: str = ""
    agent_type: str = ""
    place: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn of the agent that has ended with an error.

    text: what the agent says about it. code: its own name for the error; "" if it has none.
    id, time: as in Said.
    """

    text: str
    code: str = ""
    id: str = ""
    time: str = ""


_HOUSEKEEPING = ("managed-auto-memory-", "managed-skill-")
"""Prefixes of the subagents that qwen runs for itself after a turn. No hook reports them."""

LineReader = Callable[[bytes], list[Said]]
"""Return the texts of a complete line; none for a line that is bad or has none. Raise Ambiguous.

It gets an empty line if the file has not grown since the last look. A text that ended before the line has the
place BEFORE.
"""

BEFORE = -1


class Ambiguous(Exception):
    """Nothing that follows in this transcript is certain; the message says why."""


def reader(kind: str) -> LineReader:
    """Return a new reader of the format `kind`, a relay.agents.profile.TranscriptFormat. Raise KeyError."""
    stateless: dict[str, LineReader] = {
        "claude": _claude,
        "codex": _codex,
        "gemini": _gemini,
        "relay": _relay,
    }
    made: dict[str, Callable[[], LineReader]] = {"qwen": lambda: _Qwen().read, "aider": lambda: _Aider().read}
    return made[kind]() if kind in made else stateless[kind]


def failure(kind: str, line: bytes) -> Failed | None:
    """Return the failed turn that a complete line of a transcript reports; None for another line."""
    read = {"claude": _claude_failed, "codex": _codex_failed, "gemini": _gemini_failed}.get(kind)
    return None if read is None else read(line)


def subagent_path(kind: str, transcript_path: str, agent_id: str) -> str:
    """Return the transcript of a subagent whose event names only `transcript_path`; "" if it has none.

    Claude names the session's file there, codex the subagent's own; the others have one file for all.
    """
    if kind == "codex":
        return transcript_path
    if kind != "claude" or not transcript_path.endswith(".jsonl") or "/" in agent_id:
        return ""
    return f"{transcript_path.removesuffix('.jsonl')}/subagents/agent-{agent_id}.jsonl"


def _claude(line: bytes) -> list[Said]:
    if b'"assistant"' not in line:
        return []
    entry = _object(line)
    message = _dict(entry.get("message"))
    # The model "<synthetic>" is claude itself: an API error, an interrupted text, "No response requested."
    own = entry.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    if entry.get("type") != "assistant" or own:
        return []
    aside = entry.get("isSidechain") is True
    return _numbered(
        (_str(block.get("text")) for block in _dicts(message.get("content")) if block.get("type") == "text"),
        _str(entry.get("uuid")) or _str(message.get("id")),
        _str(entry.get("timestamp")),
        (_str(entry.get("agentId")) or "subagent") if aside else "",
        _str(entry.get("attributionAgent")) if aside else "",
        version=_str(entry.get("version")),
    )


def _claude_failed(line: bytes) -> Failed | None:
    if b'"isApiErrorMessage"' not in line:
        return None
    entry = _object(line)
    if entry.get("isApiErrorMessage") is not True or entry.get("isSidechain") is True:
        return None
    blocks = _dicts(_dict(entry.get("message")).get("content"))
    text = "\n".join(_str(block.get("text")) for block in blocks)
    return Failed(text, *(_str(entry.get(key)) for key in ("error", "uuid", "timestamp")))


def _codex(line: bytes) -> list[Said]:
    # Not the "response_item" lines: they also contain the summary of a compaction.
    if b'"AgentMessage"' not in line:
        return []
    entry = _object(line)
    payload = _dict(entry.get("payload"))
    item = _dict(payload.get("item"))
    if payload.get("type") != "item_completed" or item.get("type") != "AgentMessage":
        return []
    texts = (_str(part.get("text")) for part in _dicts(item.get("content")) if part.get("type") == "Text")
    return _numbered(texts, _str(item.get("id")), _str(entry.get("timestamp")))


def _codex_failed(line: bytes) -> Failed | None:
    if b'"task_complete"' not in line:
        return None
    entry = _object(line)
    payload = _dict(entry.get("payload"))
    error = _dict(payload.get("error"))
    if payload.get("type") != "task_complete" or not error:
        return None
    # "usage_limit_exceeded", or {"http_connection_failed": {"http_status_code": 401}}
    info = error.get("codex_error_info")
    code = next(iter(info), "") if isinstance(info, dict) else _str(info)
    return Failed(
        _str(error.get("message")), code, _str(payload.get("turn_id")), _str(entry.get("timestamp"))
    )


class _Qwen:
    """Qwen's format, in which an interrupted message lacks the token count that other messages have."""

    def __init__(self) -> None:
        self._counted = False  # some servers never count

    def read(self, line: bytes) -> list[Said]:
        if b'"assistant"' in line:
            return self._message(_object(line))
        if b'"subagent_name"' in line:
            return self._subagent(_object(line))
        return []

    def _message(self, entry: dict[str, Any]) -> list[Said]:
        if entry.get("type") != "assistant":
            return []
        counted = "usageMetadata" in entry
        self._counted = self._counted or counted
        if self._counted and not counted:
            return []
        parts = _dicts(_dict(entry.get("message")).get("parts"))
        text = "".join(_str(part.get("text")) for part in parts if part.get("thought") is not True)
        id, time, version = (_str(entry.get(key)) for key in ("uuid", "timestamp", "version"))
        return _numbered(iter([text]), id, time, version=version)

    def _subagent(self, entry: dict[str, Any]) -> list[Said]:
        event = _dict(_dict(entry.get("systemPayload")).get("uiEvent"))
        name = _str(event.get("subagent_name"))
        if event.get("event.name") != "qwen-code.api_response" or not name or name.startswith(_HOUSEKEEPING):
            return []
        if self._counted and not event.get("total_token_count"):
            return []
        # "SESSION#general-purpose-ua8de6#0": the subagent, and the number of its request
        agent = _str(event.get("prompt_id")).split("#")
        return _numbered(
            iter([_str(event.get("response_text"))]),
            _str(entry.get("uuid")),
            _str(entry.get("timestamp")),
            agent[1] if len(agent) > 1 and agent[1] else name,
            name,
        )


def _gemini(line: bytes) -> list[Said]:
    # Messages that Gemini makes up itself, as in a compressed conversation, name no model.
    if b'"gemini"' not in line:
        return []
    entry = _object(line)
    if entry.get("type") != "gemini" or not _str(entry.get("model")):
        return []
    text, id = _str(entry.get("content")), _str(entry.get("id"))
    return _numbered(iter([text]), id, _str(entry.get("timestamp")))


def _gemini_failed(line: bytes) -> Failed | None:
    if b'"error"' not in line:
        return None
    entry = _object(line)
    if entry.get("type") != "error":
        return None
    return Failed(_str(entry.get("content")), "", _str(entry.get("id")), _str(entry.get("timestamp")))


class _Aider:
    """aider's log of its model calls. A text ends with the next line that is not part of it.

        TO LLM 2026-11-23T15:45:05                  LLM RESPONSE 2026-11-23T15:45:07
        -------                                     ASSISTANT I say this
        USER what the user said, and whole files    ASSISTANT in two lines

    A part of a request that is a list, as when prompts are cached, has its role only before its first line:
    a file that the user has added could then look like an answer.
    """

    def __init__(self) -> None:
        self._answers = 0
        self._lines: list[str] | None = None  # of the answer that is being read

    def read(self, line: bytes) -> list[Said]:
        if self._lines is not None and (line + b" ").startswith(b"ASSISTANT "):
            self._lines.append(line[len(b"ASSISTANT ") :].decode("utf-8", "replace"))
            return []
        said = self._end()
        if _AIDER_ANSWER.match(line):
            self._answers += 1
            self._lines = []
        elif line and not _AIDER_REQUEST.match(line):
            raise Ambiguous("its log of model calls does not distinguish files in the chat from answers")
        return said

    def _end(self) -> list[Said]:
        if not self._lines:
            return []
        text, self._lines = _THOUGHTS.sub("", "\n".join(self._lines)), None
        return [Said(text, f"answer/{self._answers}", place=BEFORE)] if text.strip() else []


_AIDER_ANSWER = re.compile(rb"LLM RESPONSE [-0-9T:]{19}$")
_AIDER_REQUEST = re.compile(rb"TO LLM [-0-9T:]{19}$|-------$|[A-Z]+( |$)")
_THOUGHTS = re.compile(r"<(thinking-content-\w+|think(?:ing)?)>.*?(</\1>|\Z)", re.DOTALL)
"""aider's tags (reasoning_tags.py), and those of models that write them themselves."""


def _relay(line: bytes) -> list[Said]:
    entry = _object(line)
    text, id = _str(entry.get("text")), _str(entry.get("id"))
    if entry.get("type") != "said" or not id or not text.strip():
        return []
    time, subagent, kind = (_str(entry.get(key)) for key in ("time", "subagent", "agent_type"))
    return [Said(text, id, time, subagent, kind)]


def _numbered(
    texts: Iterator[str], id: str, time: str, subagent: str = "", agent_type: str = "", *, version: str = ""
) -> list[Said]:
    numbered = ((f"{id}/{number}" if number else id, text) for number, text in enumerate(texts))
    return [
        Said(text, each, time, subagent, agent_type, version=version)
        for each, text in numbered
        if text.strip()
    ]


def _object(line: bytes) -> dict[str, Any]:
    try:
        return _dict(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _str(value: Any) -> str:
    """Return `value` if it is a text; half a surrogate pair, which no file can hold, becomes "?"."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
