"""A program that speaks relay's own dialect (docs/PATTERNS.md), which our plug-ins in agents speak, too.

The program calls `relay hook decide EVENT`, which finds the session by itself, and may write a transcript: a
line for each text as soon as it is complete, those of subagents in the same file; and its usage, {"type":
"usage", "id": ..., "model": ..., "input": ..., "output": ..., "cache_read": ..., "cache_write": ..., "cost":
...}.
"""

from __future__ import annotations

from relay.agents import hook_event, hook_reply
from relay.agents.hook_setup import Prepared, Run, transcript
from relay.agents.kind import AgentKind
from relay.agents.transcript_lines import LineReader, Said, object_in, text_of
from relay.agents.usage import Charge, OneCharge, Tokens, UsageFormat

VARIABLE = "RELAY_TRANSCRIPT"


class RelayDialect(AgentKind):
    """A program that speaks relay's dialect."""

    name = "relay"
    events = hook_event.EVENTS
    replies = hook_reply.REPLIES
    transcript_is_ours = True

    def prepare(self, run: Run) -> Prepared:
        """Return the command with RELAY_TRANSCRIPT in its environment: a path that it may create."""
        return Prepared(list(run.command), {**run.env, VARIABLE: transcript(run)}, self.name)

    def reader(self) -> LineReader:
        return _said

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()


def _said(line: bytes) -> list[Said]:
    entry = object_in(line)
    text, id = text_of(entry.get("text")), text_of(entry.get("id"))
    if entry.get("type") != "said" or not id or not text.strip():
        return []
    time, subagent, kind = (text_of(entry.get(key)) for key in ("time", "subagent", "agent_type"))
    return [Said(text, id, time, subagent, kind)]


class _Usage(OneCharge):
    def charge(self, line: bytes) -> Charge | None:
        if b'"usage"' not in line:
            return None
        entry = object_in(line)
        id = text_of(entry.get("id"))
        if entry.get("type") != "usage" or not id:
            return None
        cost = entry.get("cost")
        known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 < cost < 1e9
        tokens = Tokens.of(entry)
        return Charge(
            id, text_of(entry.get("model")), tokens, cost if known else None, text_of(entry.get("time"))
        )
