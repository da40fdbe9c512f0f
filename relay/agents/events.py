"""Events from an agent's own hooks and its own record."""

from __future__ import annotations

from dataclasses import dataclass

from relay.agents.hook_event import NativeEvent
from relay.agents.hook_reply import Answered
from relay.agents.transcript_formats import Said
from relay.eventbus import Event, Question


@dataclass(frozen=True, slots=True)
class HookReported(Event):
    """A hook of the agent's own has reported `event`; if it `decides`, it waits for an answer."""

    event: NativeEvent
    decides: bool


@dataclass(frozen=True, slots=True)
class TextRead(Event):
    """The agent's own record holds new texts, each exactly as the model wrote it (Markdown).

    again: an earlier session may have read them.
    """

    texts: tuple[Said, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class HookAsked(Question[Answered]):
    """A hook of the agent's own waits for an answer to `event`.

    nested: it is the event of another agent, which ours has started: only its tools are guarded.
    """

    event: NativeEvent
    nested: bool = False
