"""Events and questions about texts for the agent, from the request to the outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay.agents.hook_reply import Fate
from relay.eventbus import Event, Question
from relay.injection.injection import Injection, Outcome


@dataclass(frozen=True, slots=True)
class Inject(Event):
    """Give this text to the agent as soon as that is safe."""

    injection: Injection


@dataclass(frozen=True, slots=True)
class Withdraw(Event):
    """Cancel the injection `id`, unless its delivery has begun."""

    id: str


@dataclass(frozen=True, slots=True)
class MayBegin(Question[None]):
    """`injection` is about to be delivered: record what is needed to recover if that is interrupted.

    begins: it begins its own turn, and does not ride along with another text.

    Raise MessageRefused if it is not wanted any more, another RelayError to be asked again later.
    """

    injection: Injection
    begins: bool


@dataclass(frozen=True, slots=True)
class TryAgain(Event):
    """Retry at once the injections that were refused for now (MayBegin): the reason is gone."""


@dataclass(frozen=True, slots=True)
class InjectionDeferred(Event):
    """Delivery was allowed, but nothing was written: the injection waits again."""

    injection: Injection


@dataclass(frozen=True, slots=True)
class InjectionEnded(Event):
    """An injection has ended. One that was uncertain may end a second time, as injected.

    again: an earlier session has seen that, and may not have recorded it.
    """

    injection: Injection
    outcome: Outcome
    again: bool = False


@dataclass(frozen=True, slots=True)
class Compose(Question[tuple[Injection, ...]]):
    """These injections are about to be typed as one prompt: answer with the texts to put before them.

    Raise MessageRefused if the prompt is not to be typed.
    """

    injections: tuple[Injection, ...]


@dataclass(frozen=True, slots=True)
class Contribution:
    """A text that goes with a reply to the agent's own hook; `settle` takes the outcome of the reply."""

    text: str
    settle: Callable[[Fate], None]


@dataclass(frozen=True, slots=True)
class Contribute(Question[Contribution]):
    """A reply to the agent's own hook has room for texts.

    room:     bytes of UTF-8 of all contributions together.
    messages: messages of other agents may ride on it, too.
    extends:  the reply makes the agent continue with a turn that it would end.
    """

    room: int
    messages: bool = True
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Occupied(Question[str]):
    """Say why a ready agent is not idle: what waits for it; no answer if nothing does."""


@dataclass(frozen=True, slots=True)
class Recognize(Question[bool]):
    """The agent's hook has reported this prompt: was it typed by relay, and nothing else with it?"""

    prompt: str
