"""The wire formats of model APIs: how each dialect is parsed as a request and written as an answer.

    Anthropic Messages   POST /v1/messages                           claude
    OpenAI Chat          POST .../chat/completions                   qwen, pi, opencode, aider, copilot
    OpenAI Responses     POST .../responses                          codex
    Gemini               POST .../models/NAME:(stream)generateContent gemini

Answers contain only the fields that the agents' own clients read.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["user", "assistant", "result", "note"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a conversation.

    role:  note if the agent itself inserted it (reminders, hooks' context).
    above: its role in the request is one above the user's: system or developer.
    """

    role: Role
    text: str
    above: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call. namespace: of an MCP server, where codex lists its tools."""

    name: str
    schema: Mapping[str, Any]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: the conversation so far and the tools that the model may call."""

    system: str
    tools: tuple[Tool, ...]
    entries: tuple[Entry, ...]

    @property
    def user(self) -> str:
        """Return the user's newest text."""
        return next((each.text for each in reversed(self.entries) if each.role == "user"), "")

    @property
    def told(self) -> str:
        """Return all that the model did not say itself."""
        return "\n".join(each.text for each in self.entries if each.role != "assistant")

    @property
    def step(self) -> int:
        """Return how many times the model has answered since that text."""
        newer = itertools.takewhile(lambda each: each.role != "user", reversed(self.entries))
        return sum(each.role == "assistant" for each in newer)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call by the model. input: a text for a tool that takes no JSON, such as codex's apply_patch.

    namespace: the tool's.
    """

    name: str
    input: Mapping[str, Any] | str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the model: texts and calls, in order; `piece`: characters per streamed piece."""

    parts: tuple[str | Call, ...]
    piece: int = 16

    @property
    def calls(self) -> bool:
        return any(isinstance(part, Call) for part in self.parts)


Event = tuple[str | None, Any]
"""A server-sent event: its name, if the dialect has names, and its data (a string is sent unchanged)."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to parse an API's requests, and write answers whole or as events."""

    read: Callable[[Mapping[str, Any]], Turn]
    whole: Callable[[Answer], Any]
    stream: Callable[[Answer], Iterator[Event]]


def dialect_of(path: str) -> Dialect | None:
    """Return the dialect of a POST to `path`, or None if it is not one of these."""
    return next((dialect for ending, dialect in _ENDINGS.items() if path.endswith(ending)), None)


_REMINDER = re.compile(r"<system[-_]reminder>(.*?)</system[-_]reminder>\s*", re.DOTALL)  # claude's own notes
_BEFORE = re.compile(  # what copilot puts before a prompt, most of it in its plan mode
    r"<(current_datetime|mode_changed_notice)>.*?</\1>\s*|\[\[PLAN\]\] .*?\nMy request: ", re.DOTALL
)
_CONTINUATION = "Stop hook additional context:"
"""Begins the note by which a hook continues claude's turn; the model has to answer it."""

_PREAMBLE = re.compile(
    r"\s*(<environment_context>|<user_instructions>|<permissions instructions>|# AGENTS\.md instructions"
    r"|<session_context>|<hook_context>|<INSTRUCTIONS>|Additional context from preToolUse hook:)"
)
_RULES = re.compile(r"\n+# \*SEARCH/REPLACE block\* Rules:.*", re.DOTALL)  # aider, after the newest text
_serial = itertools.count(1)


def _id(prefix: str) -> str:
    return f"{prefix}_{next(_serial):012d}"


def _user(text: str) -> Iterator[Entry]:
    """Split a text in the user's role into the agent's notes and the user's text."""
    for note in _REMINDER.findall(text):
        yield Entry("user" if note.lstrip().startswith(_CONTINUATION) else "note", note)
    text = _RULES.sub("", _BEFORE.sub("", _REMINDER.sub("", text)))
    if text.strip():
        yield Entry("note" if _PREAMBLE.match(text) else "user", text)


def _text(content: Any) -> str:
    """Return the text in a message's content, in any dialect."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Mapping):
        for key in ("text", "content", "output"):
            if key in content:
                return _text(content[key])
        return json.dumps(content, ensure_ascii=False)
    return "\n".join(map(_text, content))


def _pieces(answer: Answer, text: str) -> list[str]:
    return [text[at : at + answer.piece] for at in range(0, len(text), answer.piece)] or [""]


# Anthropic Messages


def _read_anthropic(body: Mapping[str, Any]) -> Turn:
    entries: list[Entry] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            entries.append(Entry("assistant", _text([each for each in blocks if each["type"] == "text"])))
        elif message["role"] == "system":  # claude's notes within the conversation
            entries.append(Entry("note", _text(content), above=True))
        else:
            for block in blocks:
                if block["type"] == "tool_result":
                    entries.append(Entry("result", _text(block.get("content"))))
                elif block["type"] == "text":
                    entries.extend(_user(block["text"]))
    tools = tuple(Tool(each["name"], each.get("input_schema") or {}) for each in body.get("tools") or ())
    return Turn(_text(body.get("system")), tools, tuple(entries))


def _anthropic_message(content: Sequence[Any], stop: str | None) -> dict[str, Any]:
    return {
        "id": _id("msg"),
        "type": "message",
        "role": "assistant",
        "model": "mock-model",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 10},
    }


def _anthropic_block(part: str | Call) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "tool_use", "id": _id("toolu"), "name": part.name, "input": part.input}


def _whole_anthropic(answer: Answer) -> Any:
    blocks = [_anthropic_block(part) for part in answer.parts]
    return _anthropic_message(blocks, "tool_use" if answer.calls else "end_turn")


def _stream_anthropic(answer: Answer) -> Iterator[Event]:
    def event(name: str, **data: Any) -> Event:
        return name, {"type": name, **data}

    yield event("message_start", message=_anthropic_message([], None))
    for index, part in enumerate(answer.parts):
        block = _anthropic_block(part)
        if isinstance(part, str):
            start = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(answer, part)]
        else:
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(part.input)}]
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": 10})
    yield event("message_stop")


# OpenAI Chat

_CHAT_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _read_chat(body: Mapping[str, Any]) -> Turn:
    system, entries = "", list[Entry]()
    for message in body["messages"]:
        role, text = message["role"], _text(message.get("content"))
        if role in ("system", "developer"):
            if entries:
                entries.append(Entry("note", text, above=True))
            else:
                system += text
        elif role == "user":
            entries.extend(_user(text))
        else:
            entries.append(Entry("result" if role == "tool" else "assistant", text))
    functions = [each["function"] for each in body.get("tools") or () if "function" in each]
    tools = tuple(Tool(each["name"], each.get("parameters") or {}) for each in functions)
    return Turn(system, tools, tuple(entries))


def _chat_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.input)}
    return {"id": _id("call"), "type": "function", "function": function}


def _whole_chat(answer: Answer) -> Any:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(part for part in answer.parts if isinstance(part, str)),
    }
    if answer.calls:
        message["tool_calls"] = [_chat_call(part) for part in answer.parts if isinstance(part, Call)]
    return {
        "id": _id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "mock-model",
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}
        ],
        "usage": _CHAT_USAGE,
    }


def _stream_chat(answer: Answer) -> Iterator[Event]:
    head = {
        "id": _id("chatcmpl"),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": "mock-model",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    calls = itertools.count()
    for part in answer.parts:
        if isinstance(part, str):
            for piece in _pieces(answer, part):
                yield chunk({"content": piece})
        else:
            yield chunk({"tool_calls": [{"index": next(calls), **_chat_call(part)}]})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    yield None, {**head, "choices": [], "usage": _CHAT_USAGE}
    yield None, "[DONE]"


# OpenAI Responses


def _read_responses(body: Mapping[str, Any]) -> Turn:
    entries: list[Entry] = []
    items = body.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    answering = False
    for item in items:
        kind, role = item.get("type", "message"), item.get("role")
        if kind.endswith("_call") or role == "assistant":
            if not answering:  # one answer may consist of several items
                entries.append(Entry("assistant", _text(item.get("content"))))
            answering = True
        elif kind.endswith("_output"):
            entries.append(Entry("result", _text(item.get("output"))))
            answering = False
        elif kind == "message":
            content = item.get("content")
            for part in content if isinstance(content, list) else [content]:
                if role == "user":
                    entries.extend(_user(_text(part)))
                else:
                    entries.append(Entry("note", _text(part), above=True))
            answering = False
    tools = tuple(
        Tool(each.get("name") or each["type"], each.get("parameters") or {}, namespace)
        for group in body.get("tools") or ()
        for namespace, each in _grouped(group)
    )
    return Turn(body.get("instructions") or "", tools, tuple(entries))


def _grouped(group: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tools in one element of the request's `tools`, each with its namespace."""
    if group.get("type") != "namespace":
        yield "", group
    else:
        yield from ((group["name"], each) for each in group["tools"])


def _response(output: Sequence[Any], status: str = "completed") -> dict[str, Any]:
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": "mock-model",
        "output": output,
        "parallel_tool_calls": False,
        "tools": [],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 110,
        },
    }


def _response_item(part: str | Call) -> dict[str, Any]:
    if isinstance(part, str):
        content = [{"type": "output_text", "text": part, "annotations": []}]
        return {"type": "message", "id": _id("msg"), "role": "assistant", "content": content}
    if isinstance(part.input, str):
        call = {"id": _id("ctc"), "call_id": _id("call"), "name": part.name, "input": part.input}
        return {"type": "custom_tool_call", "status": "completed", **call}
    namespace = {"namespace": part.namespace} if part.namespace else {}
    return {
        "type": "function_call",
        **namespace,
        "id": _id("fc"),
        "call_id": _id("call"),
        "name": part.name,
        "arguments": json.dumps(part.input),
        "status": "completed",
    }


def _whole_responses(answer: Answer) -> Any:
    return _response([_response_item(part) for part in answer.parts])


def _stream_responses(answer: Answer) -> Iterator[Event]:
    count = itertools.count()

    def event(name: str, **data: Any) -> Event:
        return name, {"type": name, "sequence_number": next(count), **data}

    items = [_response_item(part) for part in answer.parts]
    response = _response(items)
    yield event("response.created", response={**response, "status": "in_progress", "output": []})
    for index, (part, item) in enumerate(zip(answer.parts, items, strict=True)):
        place = {"output_index": index, "item_id": item["id"]}
        if isinstance(part, str):
            place["content_index"] = 0
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.output_item.added", output_index=index, item={**item, "content": []})
            yield event("response.content_part.added", **place, part=empty)
            for piece in _pieces(answer, part):
                yield event("response.output_text.delta", **place, delta=piece)
            yield event("response.output_text.done", **place, text=part)
            yield event("response.content_part.done", **place, part=item["content"][0])
        else:
            key, name = "arguments", "function_call_arguments"
            if isinstance(part.input, str):
                key, name = "input", "custom_tool_call_input"
            started = {**item, "status": "in_progress", key: ""}
            yield event("response.output_item.added", output_index=index, item=started)
            yield event(f"response.{name}.delta", **place, delta=item[key])
            yield event(f"response.{name}.done", **place, **{key: item[key]})
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)


# Gemini


def _read_gemini(body: Mapping[str, Any]) -> Turn:
    entries: list[Entry] = []
    for content in body.get("contents") or ():
        parts = content.get("parts") or ()
        if content.get("role") == "model":
            entries.append(Entry("assistant", _text([part for part in parts if "text" in part])))
            continue
        for part in parts:
            if "functionResponse" in part:
                entries.append(Entry("result", json.dumps(part["functionResponse"].get("response"))))
            elif "text" in part:
                entries.extend(_user(part["text"]))
    tools = tuple(
        Tool(each["name"], each.get("parametersJsonSchema") or each.get("parameters") or {})
        for group in body.get("tools") or ()
        for each in group.get("functionDeclarations") or ()
    )
    return Turn(_text((body.get("systemInstruction") or {}).get("parts")), tools, tuple(entries))


def _gemini_chunk(parts: Sequence[Any], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    return {"candidates": [candidate], "modelVersion": "mock-model", "usageMetadata": usage}


def _gemini_part(part: str | Call) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    return {"functionCall": {"id": _id("fc"), "name": part.name, "args": part.input}}


def _whole_gemini(answer: Answer) -> Any:
    return _gemini_chunk([_gemini_part(part) for part in answer.parts], "STOP")


def _stream_gemini(answer: Answer) -> Iterator[Event]:
    for part in answer.parts:
        for piece in _pieces(answer, part) if isinstance(part, str) else [part]:
            yield None, _gemini_chunk([_gemini_part(piece)], None)
    yield None, _gemini_chunk([{"text": ""}], "STOP")


_GEMINI = Dialect(_read_gemini, _whole_gemini, _stream_gemini)
_ENDINGS = {
    "/messages": Dialect(_read_anthropic, _whole_anthropic, _stream_anthropic),
    "/chat/completions": Dialect(_read_chat, _whole_chat, _stream_chat),
    "/responses": Dialect(_read_responses, _whole_responses, _stream_responses),
    ":generateContent": _GEMINI,
    ":streamGenerateContent": _GEMINI,
}
