"""What waits for the user: agents that need them, messages held or unread, and mistakes in configuration."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from relay.control.needs import Need, by_urgency, need
from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.dataclass import asdict, dataclass, replace
from relay.errors import RelayError
from relay.home import Home
from relay.messaging.unread import number_of_unread
from relay.text import count, listed, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that waits for the user.

    docs/JSON.md shows these lines (`make man`). Times are in seconds since the epoch.

    kind:  `question`, `failed`, `escalation`, `unresponsive`, `held`, `message` or `configuration`.
    name, team: the agent, or the sender of the messages; several agents for a mistake in their configuration.
    since: since when it waits; None if unknown.
    text:  what it is about.
    next:  the command that deals with it.
    id:    the id of the message; empty for all else.
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
}


def items(home: Home, agents: Sequence[SessionInfo], team: str | None = None) -> list[Item]:
    """Return what waits for the user: the most urgent needs of `agents` first, then messages, then mistakes.

    Raise LedgerError if the messages cannot be read.
    """
    needs = [item for agent in by_urgency(agents) for item in _needs(agent)]
    found = [*needs, *_messages(home, team), *_mistakes(agents)]
    if len({item.team for item in found}) > 1:
        found = [item if item.id else replace(item, next=f"{item.next} -t {item.team}") for item in found]
    return found


def summary(home: Home, team: str | None = None) -> str:
    """Return a sentence on the user's unread messages; "" if there are none, or the ledger cannot be read."""
    number = number_of_unread(home.ledger, team)
    return f"{count(number, 'unread message')} for you: `relay inbox`" if number else ""


def _needs(agent: SessionInfo) -> Iterator[Item]:
    what = need(agent)
    if what not in _KINDS or (agent.state == UNRESPONSIVE and not _runs(agent.agent_pid)):
        return  # a session of an agent that has ended is ending, too
    kind, command = _KINDS[what]
    text = agent.question or agent.escalation or agent.reason or agent.state
    if agent.state == "held":
        command = "release --agent"
    elif what is Need.FAILED and agent.pid is None:  # it has ended
        command = "logs"
    yield Item(kind, agent.name, agent.team, agent.since, text, f"relay {command} {agent.name}")


def _runs(pid: int | None) -> bool:
    if pid is None:
        return False
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def _messages(home: Home, team: str | None) -> Iterator[Item]:
    """Yield the senders whose messages are held, and the messages to the user."""
    from relay.message import ID_SHOWN  # not at the top: `relay ps` only counts
    from relay.messaging.ledger import Ledger

    if not home.ledger.exists():
        return
    with Ledger(home.ledger) as ledger:
        held = ledger.lookup(ledger.held(team=team))
        unread = ledger.unread(team)
    for (name, of), number in Counter((each.message.sender, each.team) for each in held).items():
        since = min(each.message.time for each in held if (each.message.sender, each.team) == (name, of))
        yield Item(
            "held", name, of, since, f"{count(number, 'message')} held", f"relay release --from {name}"
        )
    for entry in unread:
        message, text = entry.message, one_line(entry.message.body, None)
        show = f"relay inbox show {message.id[:ID_SHOWN]}"
        yield Item("message", message.sender, entry.team, message.time, text, show, message.id)


def _mistakes(agents: Sequence[SessionInfo]) -> Iterator[Item]:
    """Yield each mistake in the configuration that is in force, once for all the agents that it concerns."""
    found: dict[str, list[SessionInfo]] = {}
    for agent in agents:
        with suppress(RelayError):
            for text in agent.ask({"op": "explain"}).get("configuration", ()):
                found.setdefault(str(text), []).append(agent)
    for text, those in found.items():
        names = listed([agent.name for agent in those], 3)
        yield Item("configuration", names, those[0].team, None, text, f"relay explain {those[0].name}")
