"""What a line of an agent's transcript says: the three formats, one function each.

Measured with claude 2.1.197, codex 0.169.0 and qwen 0.15.10. All write JSON lines, one object a line, with an
ISO 8601 "timestamp" in UTC.

    claude  ~/.claude/projects/DIR/SESSION.jsonl: a line for each content block, about 0.1 s after the end
            of the message, often after its PreToolUse or Stop hook. Subagents: SESSION/subagents/.
    codex   ~/.codex/sessions/Y/M/D/rollout-*.jsonl: a line as soon as a text has ended, before the next hook.
            Subagents: a rollout of their own.
    qwen    ~/.qwen/projects/DIR/chats/SESSION.jsonl: a line for each message, about when the next hook runs.
            Subagents: only in the telemetry lines of the same file.

Not what an agent said, and left out: its program's own words about an API error, the summary of a compaction,
thinking, and a text that the person interrupted. Codex does not write that last one at all, and of what was
cut off nobody can say whether it was meant to be acted on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spoken:
    """One text of one line.

    id:   the same wherever the agent copies the line to.
    time: the line's own timestamp as it stands there; "" for none.
    subagent, agent_type: who said it, "" for the main agent.
    """

    text: str
    id: str
    time: str
    subagent: str = ""
    agent_type: str = ""


_HOUSEKEEPING = ("managed-auto-memory-", "managed-skill-")
"""How the subagents are called that qwen runs for itself after a turn. No hook tells of them."""

Reader = Callable[[bytes], list[Spoken]]
"""What a complete line says; nothing for a line that is bad or says nothing."""


def reader(kind: str) -> Reader:
    """A new reader of the format `kind`: "claude", "codex" or "qwen". KeyError for another."""
    return {"claude": _claude, "codex": _codex, "qwen": _Qwen().read}[kind]


def subagent_path(kind: str, transcript_path: str, agent_id: str) -> str:
    """The file of a subagent whose event names `transcript_path` only; "" where it has none of its own.

    There claude names the session's file, codex the subagent's own; qwen has one file for all.
    """
    if kind == "codex":
        return transcript_path
    if kind != "claude" or not transcript_path.endswith(".jsonl") or "/" in agent_id:
        return ""
    return f"{transcript_path.removesuffix('.jsonl')}/subagents/agent-{agent_id}.jsonl"


def _claude(line: bytes) -> list[Spoken]:
    if b'"assistant"' not in line:
        return []
    entry = _object(line)
    message = _dict(entry.get("message"))
    # The model "<synthetic>" is claude itself: an API error, an interrupted text, "No response requested."
    if (
        entry.get("type") != "assistant"
        or entry.get("isApiErrorMessage")
        or message.get("model") == "<synthetic>"
    ):
        return []
    aside = entry.get("isSidechain") is True
    return _numbered(
        (_str(block.get("text")) for block in _dicts(message.get("content")) if block.get("type") == "text"),
        _str(entry.get("uuid")) or _str(message.get("id")),
        _str(entry.get("timestamp")),
        (_str(entry.get("agentId")) or "subagent") if aside else "",
        _str(entry.get("attributionAgent")) if aside else "",
    )


def _codex(line: bytes) -> list[Spoken]:
    # Not the "response_item" lines: those also hold the summary of a compaction.
    if b'"AgentMessage"' not in line:
        return []
    entry = _object(line)
    payload = _dict(entry.get("payload"))
    item = _dict(payload.get("item"))
    if payload.get("type") != "item_completed" or item.get("type") != "AgentMessage":
        return []
    texts = (_str(part.get("text")) for part in _dicts(item.get("content")) if part.get("type") == "Text")
    return _numbered(texts, _str(item.get("id")), _str(entry.get("timestamp")))


class _Qwen:
    """An interrupted message is one without a count of its tokens, where others have one."""

    def __init__(self) -> None:
        self._counted = False  # some servers never count

    def read(self, line: bytes) -> list[Spoken]:
        if b'"assistant"' in line:
            return self._message(_object(line))
        if b'"subagent_name"' in line:
            return self._subagent(_object(line))
        return []

    def _message(self, entry: dict[str, Any]) -> list[Spoken]:
        if entry.get("type") != "assistant":
            return []
        counted = "usageMetadata" in entry
        self._counted = self._counted or counted
        if self._counted and not counted:
            return []
        parts = _dicts(_dict(entry.get("message")).get("parts"))
        text = "".join(_str(part.get("text")) for part in parts if part.get("thought") is not True)
        return _numbered(iter([text]), _str(entry.get("uuid")), _str(entry.get("timestamp")))

    def _subagent(self, entry: dict[str, Any]) -> list[Spoken]:
        told = _dict(_dict(entry.get("systemPayload")).get("uiEvent"))
        name = _str(told.get("subagent_name"))
        if told.get("event.name") != "qwen-code.api_response" or not name or name.startswith(_HOUSEKEEPING):
            return []
        if self._counted and not told.get("total_token_count"):
            return []
        # "SESSION#general-purpose-ua8de6#0": which subagent, and its how-manieth request
        agent = _str(told.get("prompt_id")).split("#")
        return _numbered(
            iter([_str(told.get("response_text"))]),
            _str(entry.get("uuid")),
            _str(entry.get("timestamp")),
            agent[1] if len(agent) > 1 and agent[1] else name,
            name,
        )


def _numbered(
    texts: Iterator[str], id: str, time: str, subagent: str = "", agent_type: str = ""
) -> list[Spoken]:
    return [
        Spoken(text, f"{id}/{number}" if number else id, time, subagent, agent_type)
        for number, text in enumerate(texts)
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
    """A text, if it is one; half a surrogate pair, which JSON can hold and no file can, becomes "?"."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
