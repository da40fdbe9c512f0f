"""What is to be given to an agent, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from relay.messaging.message import Priority

Kind = Literal["message", "hook", "closing", "notice"]
Route = Literal["", "typed", "native"]
Role = Literal["", "user", "system", "assistant"]
Proof = Literal["", "echo", "screen", "hook", "printed"]


@dataclass(frozen=True, slots=True)
class Injection:
    """One text for the agent, as it came: not sanitised, not wrapped.

    id:     whatever the caller knows it by, for example the message's id.
    source: who it is from: the sender's name of a message, the hook's or handler's name otherwise.
    kind:   message  from a peer or the person
            hook     from a handler or a hook
            closing  the prompt at the session's end; it goes before everything that waits
            notice   from relay itself, such as what became of a directive
    wakes:  it is worth a turn of its own; else an agent whose hooks can carry it gets it in its next one.
    priority: of a message; everything else is normal.
    channel: the channel to which a message was sent, without its `#`, if it was.
    event:   of a hook's text: the event at which it was given, such as "PostToolUse"; else "".
    role:    as whose words it was to be given; a terminal has user input only.
    place:   of a rule's text: its file and line; else "".
    quiet:   it is not shown to the person in relay's own displays.
    time:    when it was asked for, in seconds since the epoch; 0 where that is of no interest.
    remark:  what its handler told the person with it; told again, as an error, if it cannot be given.
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


class Result(StrEnum):
    """How an injection ended, each honest."""

    INJECTED = "injected"  # given to the agent, and seen to arrive
    UNCERTAIN = "uncertain"  # written, in whole or in part, and not verified; never given again by itself
    REJECTED = "rejected"  # cannot be given, or was dropped before; nothing was written
    WITHDRAWN = "withdrawn"  # there is no reason to give it any more; nothing was written
    UNTYPED = "untyped"  # the session ended first; nothing was written


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an injection ended.

    detail:   where that is not plain success, why: one sentence for a person.
    route:    how it went to the agent: typed into its terminal, or in a reply to one of its own hooks
              (native); empty when nothing was written.
    role:     as whose words the agent has it.
    verified: what showed that it arrived, empty when nothing did: the terminal's echo, the screen, the
              agent's own prompt hook, or the hook's client, which had printed it for the agent.
    """

    result: Result
    detail: str = ""
    route: Route = ""
    role: Role = ""
    verified: Proof = ""
