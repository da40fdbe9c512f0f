"""Questions and events from handlers to the session: messages, members and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from relay.dataclass import dataclass
from relay.eventbus import Event, Question
from relay.message import Message, OutgoingMessage

ProblemKind = Literal["raised", "timed_out", "blocked", "exited", "bad_result", "printed", "not_sent"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A handler's fault; the session continues.

    handler: its name, with what it handles: `deploy (@deploy)`.
    what:    what happened and what to do, without the handler's name: `raised ValueError: no such host`.
    path, line: where, if known; 1-based.
    """

    handler: str
    kind: ProblemKind
    what: str
    path: Path | None = None
    line: int | None = None

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        where = f"{self.path.name}{line}: " if self.path else ""
        return f"{where}the handler {self.handler} {self.what}"


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of the team. online: True if a live session has the name; None while that is not known."""

    name: str
    online: bool | None


class SendMessage(Question[tuple[Message, ...]]):
    """Send `message` in this agent's name: one Message per receiver, each committed in the ledger.

    wait: seconds to wait until every message is final or held; None: answer at once.

    Raise UnknownRecipient, InvalidName or MessageRefused.
    """

    message: OutgoingMessage
    wait: float | None = None


class ListMembers(Question[tuple[Member, ...]]):
    """List every agent that the team has known, except finished runs and this agent.

    name: only the agent with this name; None: all of them.
    """

    name: str | None = None


class ListChannels(Question[tuple[str, ...]]):
    """List the channels that this agent is in, sorted."""


class SpawnAgent(Question[str]):
    """Start another agent beside this one; the answer is a sentence about it. No answer: it may not.

    name, command, task: as in relay.supervision.spawn.SpawnRequest.

    Raise NotAllowed, InvalidName or another RelayError if it is not started.
    """

    name: str
    command: str
    task: str = ""


class ReleaseAgent(Question[str]):
    """End an agent that this one has started; the answer is a sentence about it. No answer: it may not.

    Raise NotAllowed or another RelayError if it is not ended.
    """

    name: str


NO_SPAWN = (
    "this agent may not start or stop others. Ask the user to set spawn = true below [fleet] in a trusted "
    "fleet file, which allows it to that file's agents."
)


class HandlerProblem(Event):
    """A handler has a fault; the session continues."""

    problem: Problem


class HandlerPrinted(Event):
    """A handler has printed `text`. handler: its name."""

    handler: str
    text: str
