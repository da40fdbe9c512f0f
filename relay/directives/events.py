"""Events for the agent's words, from its terminal or its own record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Self

from relay.directives.directive import Directive
from relay.directives.grammar import PassedOver, unescape
from relay.eventbus import Event
from relay.place import Place
from relay.readers.line import Line


class SourceChosen(Event):
    """From now on the agent's words come from this source (relay.place); None: from none.

    kept: the words on the screen are kept meanwhile, as the source may turn out to lack them.
    """

    source: str | None
    kept: bool = False


class AgentSaid(Event):
    """The agent has said these lines, with escapes of directives undone.

    place: of the last one. places: of all of them.
    """

    lines: tuple[str, ...]
    place: Place
    places: tuple[Place, ...] = ()


class DirectiveRead(Event):
    """The agent has said a directive."""

    directive: Directive


class EarlierWords(Event):
    """The agent's words when this session began: an earlier one may have read them, and acted on them."""

    said: tuple[AgentSaid, ...]
    directives: tuple[Directive, ...]

    @classmethod
    def of(cls, words: Collection[Event]) -> Self:
        said = tuple(each for each in words if isinstance(each, AgentSaid))
        return cls(said, tuple(each.directive for each in words if isinstance(each, DirectiveRead)))


class SessionResumed(EarlierWords):
    """The session has restored what earlier ones of its agent knew, and now goes on.

    keys: the last that the user had typed.
    """

    keys: bytes = b""


class DirectivePassedOver(Event):
    """A line looks like a directive, but is ignored: hidden, after a sign such as `> `, ... (PassedOver)."""

    passed: PassedOver


class DirectiveRecognized(Event):
    """An earlier session had begun to act on a directive. outcome: done; unknown; again: it is repeated."""

    outcome: Literal["done", "unknown", "again"]


class DirectiveBegun(Event):
    """A directive is handed to its handlers."""


class DirectiveFailed(Event):
    """The handlers of a directive have failed, or refused it."""


def said(lines: Sequence[Line], directives: Sequence[Directive], prefix: str) -> list[Event]:
    """Return the events for `lines`, and for the `directives` that they complete."""
    found: list[Event] = []
    if lines:
        texts = tuple(unescape(line.text, prefix) for line in lines)
        found.append(AgentSaid(texts, lines[-1].place, tuple(line.place for line in lines)))
    return found + [DirectiveRead(directive) for directive in directives]
