"""What waits for the user: agents that need them, unread messages, and notices that no terminal has shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from relay.control.needs import Need, by_urgency, need
from relay.control.sessions import SessionInfo
from relay.errors import RelayError
from relay.home import Home
from relay.messaging.unread import number_of_unread
from relay.text import count, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.messaging.ledger import LedgerEntry


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that waits for the user.

    kind:  question, failed, escalation, unresponsive, held, notice or message.
    name:  the agent, or the sender of the message.
    since: in seconds since the epoch; None: unknown.
    text:  what it is about.
    next:  the command that deals with it.
    id:    of the message; "" for all else.
    """

    kind: str
    name: str
    team: str
    since: float | None
    text: str
    next: str
    id: str = ""

    def public(self) -> dict[str, Any]:
        """Return the JSON object of `relay inbox --json`."""
        return asdict(self)


_KINDS = {
    Need.PROMPTING: ("question", "answer"),
    Need.FAILED: ("failed", "attach"),
    Need.ESCALATED: ("escalation", "attach"),
    Need.UNRESPONSIVE: ("unresponsive", "reload"),
    Need.HELD: ("held", "release --from"),
}


def items(home: Home, agents: list[SessionInfo], team: str | None = None) -> list[Item]:
    """Return what waits for the user: first what `agents` need, then messages, then notices.

    Raise LedgerError if the messages cannot be read.
    """
    needs = [item for agent in by_urgency(agents) for item in _needs(agent)]
    messages = [_message(entry) for entry in unread(home, team)]
    return [*needs, *messages, *(item for agent in agents for item in _notices(agent))]


def unread(home: Home, team: str | None = None) -> list[LedgerEntry]:
    """Return the messages that the user has not read, oldest first. Raise LedgerError."""
    from relay.messaging.ledger import Ledger  # not at the top: `relay ps` only counts

    if not home.ledger.exists():
        return []
    with Ledger(home.ledger) as ledger:
        return ledger.unread(team)


def summary(home: Home, team: str | None = None) -> str:
    """Return a sentence on the user's unread messages; "" if there are none, or the ledger cannot be read."""
    number = number_of_unread(home.ledger, team)
    return f"{count(number, 'unread message')} for you: `relay inbox`" if number else ""


def _needs(agent: SessionInfo) -> Iterator[Item]:
    if (what := need(agent)) not in _KINDS:
        return
    kind, command = _KINDS[what]
    text = agent.question or agent.escalation or agent.reason or agent.state
    if what is Need.HELD:
        text = f"{count(agent.held or 0, 'message')} held"
    elif agent.state == "held":
        command = "release --agent"
    elif what is Need.FAILED and agent.pid is None:  # it has ended
        command = "logs"
    yield Item(kind, agent.name, agent.team, agent.since, text, f"relay {command} {agent.name}")


def _notices(agent: SessionInfo) -> Iterator[Item]:
    """Yield what no terminal of the agent has shown yet. Its messages to the user are listed anyway."""
    messages = f"{agent.name} says to you: ", f"{agent.name} in #"  # relay.features.sender
    with suppress(RelayError):
        for text in map(str, agent.ask({"op": "explain"}).get("notices", ())):
            if text.startswith(messages):
                continue
            yield Item("notice", agent.name, agent.team, None, text, f"relay attach {agent.name}")


def _message(entry: LedgerEntry) -> Item:
    from relay.message import ID_SHOWN

    message = entry.message
    text, show = one_line(message.body, None), f"relay inbox show {message.id[:ID_SHOWN]}"
    return Item("message", message.sender, entry.team, message.time, text, show, message.id)
