"""The usage in transcripts: what a line says about the tokens of a model's answer, one class for each format.

Measured with claude 2.1.197, codex 0.169.0, qwen 0.15.10 and gemini 0.61.0; transcript_formats.py says where
the files are.

    claude  message.usage of each "assistant" line; a message has a line for each of its blocks, all with the
            same message.id; all but the last may have only the usage so far. Input excludes the cache.
    codex   "token_usage_record" for each response; older versions only "token_count", with a growing total.
            Input includes the cache. A subagent's file may begin with the counts of its parent.
    qwen    "qwen-code.api_response" for each response, subagents included; else usageMetadata of messages.
            Input includes the cache.
    gemini  "tokens" of each message, which is written again with the results of its tools. Input includes the
            cache; thoughts come on top of the output.
    relay   {"type": "usage", "id": ..., "model": ..., "input": ..., "output": ..., "cache_read": ...,
            "cache_write": ..., "cost": ...}: what our plugins in pi and opencode write (docs/NATIVE.md).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from relay.agents.rate_limits import RateLimits, codex_limits
from relay.agents.usage import Charge, Tokens, number


class UsageFormat(Protocol):
    """Reads the lines of one file. limits: the newest that it has reported; None: it reports none."""

    limits: RateLimits | None

    def read(self, line: bytes) -> list[Charge]:
        """Return the charges in a line; none for a line that is bad.

        A charge without a model may come again with one.
        """
        ...


KINDS = frozenset({"claude", "codex", "qwen", "gemini", "relay"})
"""The formats of transcripts (relay.agents.transcript_formats) that have usage."""


def usage_format(kind: str, totals: set[str]) -> UsageFormat:
    """Return a new reader of one file of the format `kind`, one of KINDS.

    totals: the same set for all files of a run: it tells a subagent's counts from its parent's.
    """
    made: dict[str, Callable[[], UsageFormat]] = {
        "claude": _Claude,
        "codex": lambda: _Codex(totals),
        "qwen": _Qwen,
        "gemini": _Gemini,
        "relay": _Relay,
    }
    return made[kind]()


class _OneCharge:
    """A format in which a line has at most one charge."""

    limits: RateLimits | None = None

    def read(self, line: bytes) -> list[Charge]:
        charge = self._charge(line)
        return [] if charge is None else [charge]

    def _charge(self, line: bytes) -> Charge | None:
        raise NotImplementedError


class _Claude(_OneCharge):
    def _charge(self, line: bytes) -> Charge | None:
        if b'"usage"' not in line:
            return None
        entry = _object(line)
        message = _dict(entry.get("message"))
        usage, id = _dict(message.get("usage")), _str(message.get("id"))
        model = _str(message.get("model"))
        if entry.get("type") != "assistant" or not usage or model == "<synthetic>" or not id:
            return None
        written = number(usage.get("cache_creation_input_tokens"))
        kept = number(_dict(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
        tokens = Tokens(
            number(usage.get("input_tokens")),
            number(usage.get("output_tokens")),
            number(usage.get("cache_read_input_tokens")),
            written,
            min(kept, written),
        )
        return Charge(id, model, tokens, time=_str(entry.get("timestamp")))


class _Codex:
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
        if not any(mark in line for mark in _CODEX):
            return []
        entry = _object(line)
        payload = _dict(entry.get("payload"))
        time = _str(entry.get("timestamp"))
        charge = None
        match entry.get("type"), payload.get("type"):
            case "turn_context", _:
                return self._named(_str(payload.get("model")))
            case "session_meta", _:
                self._thread = _str(payload.get("id")) or self._thread
                self._repeats = bool(payload.get("parent_thread_id")) or "subagent" in _dict(
                    payload.get("source")
                )
            case "token_usage_record", _:
                if id := _str(payload.get("response_id")):
                    self._exact = True
                    charge = Charge(id, self._model, _codex_tokens(payload.get("usage")), time=time)
            case "event_msg", "token_count":
                self.limits = codex_limits(payload.get("rate_limits"), time) or self.limits
                charge = None if self._exact else self._count(_dict(payload.get("info")), time)
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
        sums = _dict(info.get("total_token_usage"))
        tokens = _codex_tokens(info.get("last_token_usage"))
        total = "/".join(str(number(sums.get(key))) for key in _CODEX_TOTAL)
        self._repeats = self._repeats and total in self._totals
        if self._repeats or not sums or not tokens:
            return None  # its parent's
        self._totals.add(total)
        return Charge(f"{self._thread}/{total}", self._model, tokens, time=time)


_CODEX_TOTAL = ("input_tokens", "cached_input_tokens", "output_tokens")
_CODEX = (b'"token_usage_record"', b'"token_count"', b'"turn_context"', b'"session_meta"')


def _codex_tokens(value: object) -> Tokens:
    usage = _dict(value)
    prompt, read, written = (
        number(usage.get(key)) for key in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens")
    )
    read = min(read, prompt)
    written = min(written, prompt - read)
    return Tokens(prompt - read - written, number(usage.get("output_tokens")), read, written)


class _Qwen(_OneCharge):
    def __init__(self) -> None:
        self._exact = False  # it has an event for each response

    def _charge(self, line: bytes) -> Charge | None:
        if b'"qwen-code.api_response"' in line:
            entry = _object(line)
            event = _dict(_dict(entry.get("systemPayload")).get("uiEvent"))
            if event.get("event.name") == "qwen-code.api_response":
                self._exact = True
                keys = ("input_token_count", "cached_content_token_count", "output_token_count")
                id = _str(event.get("response_id")) or _str(entry.get("uuid"))
                return _google(event, (*keys, "thoughts_token_count", "total_token_count"), id, entry)
        elif b'"usageMetadata"' in line and not self._exact:
            entry = _object(line)
            keys = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount")
            if entry.get("type") == "assistant":
                usage = {**_dict(entry.get("usageMetadata")), "model": entry.get("model")}
                id = _str(entry.get("uuid"))
                return _google(usage, (*keys, "thoughtsTokenCount", "totalTokenCount"), id, entry)
        return None


class _Gemini(_OneCharge):
    def _charge(self, line: bytes) -> Charge | None:
        if b'"tokens"' not in line:
            return None
        entry = _object(line)
        if entry.get("type") != "gemini":
            return None
        usage = {**_dict(entry.get("tokens")), "model": entry.get("model")}
        tool = number(usage.get("tool"))  # tokens that its own tools have read for it
        usage["input"] = number(usage.get("input")) + tool
        keys = ("input", "cached", "output", "thoughts", "total")
        return _google(usage, keys, _str(entry.get("id")), entry)


def _google(
    usage: Mapping[str, Any], keys: tuple[str, str, str, str, str], id: str, entry: Mapping[str, Any]
) -> Charge | None:
    """Return the charge of an answer. keys: of prompt, cached part of it, output, thoughts and total."""
    prompt, cached, output, thoughts, total = (number(usage.get(key)) for key in keys)
    if not id or not (prompt or output or total):
        return None
    cached = min(cached, prompt)
    # Some servers count thoughts as output, some separately: the total shows which.
    written = max(total - prompt, output) if total else output + thoughts
    tokens = Tokens(prompt - cached, min(written, output + thoughts), cached)
    return Charge(id, _str(usage.get("model")), tokens, time=_str(entry.get("timestamp")))


class _Relay(_OneCharge):
    def _charge(self, line: bytes) -> Charge | None:
        if b'"usage"' not in line:
            return None
        entry = _object(line)
        id = _str(entry.get("id"))
        if entry.get("type") != "usage" or not id:
            return None
        cost = entry.get("cost")
        known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 < cost < 1e9
        tokens = Tokens.of(entry)
        return Charge(id, _str(entry.get("model")), tokens, cost if known else None, _str(entry.get("time")))


def _object(line: bytes) -> dict[str, Any]:
    try:
        return _dict(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _str(value: object) -> str:
    """Return `value` if it is a text; half a surrogate pair, which no file can hold, becomes "?"."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
