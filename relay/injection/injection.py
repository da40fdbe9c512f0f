"""What is to be typed into an agent, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Kind = Literal["message", "hook", "closing", "notice"]


@dataclass(frozen=True, slots=True)
class Injection:
    """One text for the agent, as it came: not sanitised, not wrapped.

    id:     whatever the caller knows it by, for example the message's id.
    source: who it is from: the sender's name of a message, the hook's or handler's name otherwise.
    kind:   message  from a peer or the person
            hook     from a handler or a hook
            closing  the prompt at the session's end; it goes before everything that waits
            notice   from relay itself, such as what became of a directive
    """

    id: str
    text: str
    source: str
    kind: Kind = "message"


class Result(StrEnum):
    """How an injection ended, each honest."""

    INJECTED = "injected"  # submitted, and the terminal showed it
    UNCERTAIN = "uncertain"  # written, in whole or in part, and not verified; never typed again by itself
    REJECTED = "rejected"  # cannot be typed, or was withdrawn; nothing was written
    UNTYPED = "untyped"  # the session ended first; nothing was written


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an injection ended and, where that is not plain success, why: one sentence for a person."""

    result: Result
    detail: str = ""
