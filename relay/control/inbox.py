"""The user's inbox as commands show it: the list in the ledger, and sessions that do not answer."""

from __future__ import annotations

import os
from collections.abc import Sequence

from relay.control.sessions import UNRESPONSIVE, SessionInfo
from relay.dataclass import replace
from relay.home import Home
from relay.messaging.ledger import Ledger
from relay.messaging.user_inbox import Item, in_order
from relay.messaging.user_inbox import item as make
from relay.names import key
from relay.storage.locks import is_held
from relay.supervision.records import Records
from relay.supervision.states import Phase

ATTACH = frozenset({"question", "failed", "held", "escalation"})
"""The kinds that the user deals with in the agent's own terminal."""


def items(home: Home, agents: Sequence[SessionInfo], team: str | None = None) -> list[Item]:
    """Return what waits for the user, the most urgent first. agents: those that run. Raise LedgerError."""
    hung = [each for each in agents if each.state == UNRESPONSIVE and _runs(each.agent_pid)]
    found = [
        make("", "unresponsive", each.name, key(each.team), each.since, "its session does not answer")
        for each in hung
    ]
    if home.ledger.exists():
        with Ledger(home.ledger) as ledger:
            found += waiting(home, ledger, team)
    running = {(key(each.team), key(each.name)) for each in agents}
    found = [_attachable(each) if (each.team, key(each.name)) in running else each for each in found]
    if len({each.team for each in found}) > 1:
        found = [_with_team(each) for each in found]
    return in_order(found)


def waiting(home: Home, ledger: Ledger, team: str | None) -> list[Item]:
    """Return the items in the ledger that still wait, and end the others.

    Those are over whose agent has died, or has failed and was then stopped or forgotten by the user.
    """
    ledger.user_inbox.settle(lambda team, name: is_held(home.agent_lock(team, name)))
    found = []
    for each in ledger.user_inbox.items(team):
        if each.kind == "failed" and not _has_failed(home, each.team, each.name):
            ledger.user_inbox.end(each.team, each.name, "failed")
        else:
            found.append(each)
    return found


def _has_failed(home: Home, team: str, name: str) -> bool:
    if is_held(home.agent_lock(team, name)):
        return True  # it says itself when it no longer has
    record = Records(home).get(team, name)
    return record is not None and record.wanted == "up" and record.phase in {Phase.FAILED, Phase.HELD}


def _attachable(item: Item) -> Item:
    """Return the item of a running agent: if it has failed, its terminal says more than its log."""
    return replace(item, next=f"relay attach {item.name}") if item.kind == "failed" else item


def _with_team(item: Item) -> Item:
    """Return the item with its team in the command, unless that has an id."""
    named = item.id and item.id[:8] in item.next
    return item if named else replace(item, next=f"{item.next} -t {item.team}")


def _runs(pid: int | None) -> bool:
    """Return True if the process exists: a session of an agent that has ended is ending, too."""
    try:
        os.kill(pid or 0, 0)
    except OSError:
        return False
    return pid is not None
