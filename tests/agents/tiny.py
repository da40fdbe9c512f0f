"""A kind of agent for tests/fakes/agent_tiny.py: what a new module of relay/agents/kinds has to say."""

from __future__ import annotations

import json
import re

from relay.agents.hook_event import NativeName
from relay.agents.hook_reply import Reply
from relay.agents.hook_setup import Prepared, Run, call
from relay.agents.kind import AgentKind, NativeEvent
from relay.agents.transcript_lines import Failed, LineReader, Said
from relay.agents.usage import Charge, OneCharge, Tokens, UsageFormat


class Tiny(AgentKind):
    """A small agent with its own names, replies and record."""

    name = "tiny"
    events = {
        "born": NativeName.SESSION_START,
        "asked": NativeName.PROMPT_SUBMIT,
        "uses": NativeName.TOOL_PRE,
        "used": NativeName.TOOL_POST,
        "done": NativeName.STOP,
        "broke": NativeName.STOP_FAILURE,
        "dies": NativeName.SESSION_END,
    }
    replies = {
        NativeName.SESSION_START: frozenset({"context"}),
        NativeName.PROMPT_SUBMIT: frozenset({"context", "deny"}),
        NativeName.TOOL_PRE: frozenset({"deny"}),
        NativeName.TOOL_POST: frozenset({"context"}),
    }

    prompt = re.compile(rb'"user"')

    def prepare(self, run: Run) -> Prepared:
        hook = json.dumps(call(run.directory, "decide", "EVENT"))
        env = {**run.env, "TINY_HOOK": hook, "TINY_RECORD": f"{run.directory}/record"}
        return Prepared(list(run.command), env, self.name)

    def render(self, event: NativeEvent, reply: Reply) -> str:
        if reply.deny is not None and "deny" in self.carries(event.name):
            return f"refused: {reply.deny}"
        return reply.context if "context" in self.carries(event.name) else ""

    def reader(self) -> LineReader:
        return lambda line: [Said(text, id) for id, text in _entry(line, "said")]

    def failure(self, line: bytes) -> Failed | None:
        return next((Failed(text, id=id) for id, text in _entry(line, "broke")), None)

    def usage(self, totals: set[str]) -> UsageFormat:
        return _Usage()


class _Usage(OneCharge):
    def charge(self, line: bytes) -> Charge | None:
        return next((Charge(id, "tiny-1", Tokens(*counts)) for id, counts in _entry(line, "tokens")), None)


def _entry(line: bytes, wanted: str) -> list[tuple[str, object]]:
    if not line:
        return []
    id, kind, value = json.loads(line)
    return [(id, value)] if kind == wanted else []
