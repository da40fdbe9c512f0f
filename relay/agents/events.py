"""Events from an agent's own hooks and its own record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.agents.conversation import Conversation
from relay.agents.failure import Failure
from relay.agents.hook_event import NativeEvent
from relay.agents.hook_reply import Answered
from relay.agents.transcript_lines import Failed, Said
from relay.agents.usage import Tokens
from relay.eventbus import Event, Question


class HookReported(Event):
    """The agent's own hook has reported `event`; if the hook `decides`, it waits for an answer.

    pid: of the hook's process, which runs until it is answered; 0 if unknown.
    """

    event: NativeEvent
    decides: bool
    pid: int = 0


class TextRead(Event):
    """The agent's own record has new texts, each exactly as the model wrote it (Markdown)."""

    texts: tuple[Said, ...]


class EarlierTextRead(TextRead):
    """The agent's own record had these texts when this session began."""


class FailureRead(Event):
    """The agent's own record says that a turn has failed."""

    failed: Failed


class AgentFailed(Event):
    """A turn of the agent, or the agent itself, has ended with an error: one event for each occurrence."""

    failure: Failure


class LastFailure(Question[Failure]):
    """Give the failure of the agent's last turn; no answer if it did not fail, or a later one ended well."""


class TurnShown(Event):
    """The screen shows the end of what may be a turn; its words are in the agent's own record.

    worked: the screen has shown that the agent worked after a prompt.
    """

    worked: bool


class TurnRead(Event):
    """The agent's own record was read up to the end of the turn that the screen has shown.

    silent: the record has nothing of that turn. cut: the user has interrupted the agent.
    up_to:  bytes of output when the screen showed the end.
    """

    silent: bool
    up_to: int
    cut: bool = False


class RecordLost(Event):
    """The agent's own record no longer has its words: they now come from the screen.

    why:     the reason, for the user.
    resumes: what an earlier session noted when it lost the record; None if it is lost now.
    """

    why: str
    resumes: Mapping[str, Any] | None = None


class UsageChanged(Event):
    """The agent has used more tokens. All figures cover its current life, not earlier ones.

    cost:     US dollars; None if no price is known. Where `unpriced` is not 0 it is a lower bound.
    turns:    number of turns begun so far.
    unpriced: tokens of models whose price is unknown.
    """

    tokens: Tokens
    cost: float | None
    turns: int
    unpriced: int = 0


class HookAsked(Question[Answered]):
    """The agent's own hook waits for an answer to `event`.

    nested: the event is from another agent that ours has started: only its tools are guarded.
    """

    event: NativeEvent
    nested: bool = False


class ConversationChanged(Event):
    """The agent has another conversation; None: the current one is unknown."""

    conversation: Conversation | None


class CurrentConversation(Question[Conversation]):
    """Name the agent's conversation, which can then be resumed; no answer if it is unknown."""
