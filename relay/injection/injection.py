"""An injection, one text for the agent, and its outcome."""

from __future__ import annotations

import secrets
import time
from enum import StrEnum
from typing import Any, Literal

from relay.dataclass import dataclass, fields
from relay.message import Priority

Kind = Literal["message", "hook", "closing", "notice", "task", "nudge"]
Route = Literal["", "typed", "native", "door", "mcp", "program"]
Role = Literal["", "user", "system", "assistant"]
Proof = Literal["", "echo", "screen", "hook", "printed", "record", "agent"]

THE_USER = "the user"
"""The user's name for agents: `you` would mean the agent, and no agent has a name with a blank."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One text for the agent, neither sanitised nor wrapped.

    id:     the caller's, for example the message's id.
    source: the sender of a message, otherwise the name of the hook or handler.
    kind:   message  from a peer or the user
            hook     from a handler or a hook
            closing  the prompt at the session's end; goes before everything that is waiting
            notice   from relay itself, such as the outcome of a directive
            task     the first prompt of a conversation
            nudge    from the agent's supervision, to make it continue
    wakes:  it is worth its own turn; else an agent whose hooks can carry it gets it in its next turn.
    priority: of a message; other kinds are normal.
    channel: the channel that a message was sent to, without its `#`; else None.
    event:   for a hook's text: its event, such as "PostToolUse"; else "".
    role:    the intended role; a terminal only has user input.
    place:   for a rule's text: its file and line; else "".
    quiet:   relay's own displays do not show it.
    time:    of the request, in seconds since the epoch; 0 if irrelevant.
    remark:  its handler's text for the user; shown again, as an error, if the injection fails.
    """

    id: str
    text: str
    source: str
    kind: Kind = "message"
    wakes: bool = True
    channel: str | None = None
    priority: Priority = Priority.NORMAL
    event: str = ""
    role: Role = ""
    place: str = ""
    quiet: bool = False
    time: float = 0.0
    remark: str = ""

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Injection:
        """Return the injection that asdict() has made `given` of. Raise TypeError, ValueError or KeyError."""
        known = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        return cls(**{**known, "priority": Priority(given["priority"])})

    @property
    def by_user(self) -> bool:
        return self.kind == "message" and self.source == THE_USER

    @property
    def by_agent(self) -> bool:
        """True if another agent has sent this message."""
        return self.kind == "message" and not self.by_user

    @property
    def quotes_others(self) -> bool:
        """True if it may have the words of other agents: a message, or what the team remembers."""
        return self.kind == "message" or self.source in {"@memory:search", "@memory:list"}


def notice(text: str, *, wakes: bool = True) -> Injection:
    """Return a text from relay itself for the agent."""
    return Injection(secrets.token_hex(8), text, "relay", "notice", wakes, time=time.time())


def nudge(text: str, source: str = "") -> Injection:
    """Return a text that makes the agent continue. source: "gate" for a gate's output."""
    return Injection(secrets.token_hex(8), text, source, "nudge", time=time.time())


class Result(StrEnum):
    """The end of an injection, never better than what is known."""

    INJECTED = "injected"  # given to the agent, and seen to arrive
    UNCERTAIN = "uncertain"  # written, fully or partly, but not verified; never given again automatically
    REJECTED = "rejected"  # cannot be given, or was dropped before; nothing was written
    WITHDRAWN = "withdrawn"  # no longer needed; nothing was written
    UNTYPED = "untyped"  # the session ended first; nothing was written


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an injection.

    detail:   the reason for anything but plain success, in one sentence.
    route:    typed into the agent's terminal, in a reply to one of its own hooks (native), by its inbox
              (door), by a tool that it called (mcp), or taken by a program (relay.connect); empty if nothing
              was given.
    role:     the text's role for the agent.
    verified: the proof that it arrived, or empty: the terminal's echo, the screen, the agent's own prompt
              hook, the hook's client or server of tools that printed it for the agent, its record, or its
              door's word (agent).
    """

    result: Result
    detail: str = ""
    route: Route = ""
    role: Role = ""
    verified: Proof = ""

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Outcome:
        """Return the outcome that asdict() has made `given` of. Raise TypeError, ValueError or KeyError."""
        return cls(**{**given, "result": Result(given["result"])})
