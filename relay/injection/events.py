"""Events and questions about texts for the agent, from the request to the outcome."""

from __future__ import annotations

from collections.abc import Callable

from relay.agents.hook_reply import ReplyOutcome
from relay.dataclass import dataclass
from relay.eventbus import Event, Question
from relay.injection.injection import Injection, Outcome


class Inject(Event):
    """Give this text to the agent as soon as it is safe."""

    injection: Injection


class Withdraw(Event):
    """Cancel the injection `id`, unless its delivery has begun."""

    id: str


class MayBegin(Question[None]):
    """`injection` is about to be delivered: record what is needed to recover from an interruption.

    begins: the injection begins its own turn, rather than accompanying another text.

    Raise MessageRefused if it is no longer wanted, or another RelayError to be asked again later.  Features
    that may refuse are asked before those that record.
    """

    injection: Injection
    begins: bool


class TryAgain(Event):
    """Retry the temporarily refused injections (MayBegin) at once: the reason is gone."""


class InjectionDeferred(Event):
    """Delivery was about to begin, but nothing was written: the injection is waiting again."""

    injection: Injection


class InjectionEnded(Event):
    """An injection has ended. An uncertain one may end a second time, as injected."""

    injection: Injection
    outcome: Outcome


class EarlierInjectionEnded(InjectionEnded):
    """An earlier session has seen how an injection ended, but may not have noted it in all places."""


class Compose(Question[tuple[Injection, ...]]):
    """These injections are about to be typed as one prompt: answer with the texts to put before them.

    Raise MessageRefused if the prompt must not be typed.
    """

    injections: tuple[Injection, ...]


@dataclass(frozen=True, slots=True)
class Contribution:
    """A text to add to a reply to the agent's own hook; `settle` takes the reply's outcome.

    notice: the line that the agent shows to its user, who would see nothing of the text otherwise.
    """

    text: str
    settle: Callable[[ReplyOutcome], None]
    notice: str = ""


class Contribute(Question[Contribution]):
    """A reply to the agent's own hook has room for texts.

    room:     bytes of UTF-8 for all contributions together.
    messages: the reply may also carry messages, and other words of other agents.
    extends:  the reply makes the agent continue a turn that it would end.
    """

    room: int
    messages: bool = True
    extends: bool = False


class Occupied(Question[str]):
    """Name what keeps a ready agent from being idle: what is waiting for it; no answer if nothing is."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """A prompt that the agent reports, as relay knows it.

    ours:     relay gave it, and nothing else with it.
    repeated: relay gave it, and the agent has already got it.
    sender:   a sentence that says who has sent it, if the agent says another; else "".
    """

    ours: bool = False
    repeated: bool = False
    sender: str = ""


class Recognize(Question[Recognition]):
    """The agent's hook has reported this prompt: did relay give it?"""

    prompt: str
