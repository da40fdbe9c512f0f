"""The guard rail: it limits the requests and commands of a wrapped agent's own processes.

They may send as themselves, join and leave channels, list sessions, look at their own screen and output, read
their own messages, memory and events, and start and end agents if their fleet file allows that. They may not
attach, view, stop, answer, trust, or act as another agent: an agent must not approve its own actions.
This is not a security boundary: agents that run as one user can read each other's files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from relay import names
from relay.control.caller import Caller, agent_of, caller
from relay.control.lineage import (
    Lineage,
    ancestors,
    because,
    belongs_to_an_agent,
    connected,
    refusal,
    through,
)
from relay.control.sessions import call
from relay.control.team_choice import team_of
from relay.dataclass import dataclass
from relay.errors import NotAllowed
from relay.home import Home

if TYPE_CHECKING:
    from relay.control.server import Request

ALLOWED = frozenset({"info", "explain", "rules", "roster", "hook_printed", "received", "peer"})
"""Operations that a descendant of an agent may request."""

AS_ITSELF = frozenset({"send", "join", "leave"})
"""Operations in the name of the session's agent, which its own descendants and the user may request."""

OWN = frozenset({"hook", "receive", "spawn", "dismiss"})
"""Operations that only a descendant of the session's own agent may request."""

LOOKS = frozenset({"peek", "logs"})
"""Operations that a descendant of the session's own agent may request, and so may the rest of its team if the
setting `look` allows that."""


def check(request: Request, own: Lineage, home: Home, shown_to: str | None = None) -> None:
    """Raise NotAllowed if a process descended from an agent requests an operation that it may not use.

    own: that of the session's agent. shown_to: the team whose agents may request LOOKS.
    """
    operation = str(request.fields.get("op"))
    fd = request.channel.fileno()
    if operation in ALLOWED or (operation in LOOKS and _may_look(fd, own, home, shown_to)):
        return
    if operation in AS_ITSELF and through(home, own, connected(fd)):
        return
    if operation in OWN:
        if not through(home, own, connected(fd)):
            raise NotAllowed(
                f"only this session's agent, and the programs it runs, may request {operation!r}."
            )
    elif (why := refusal(home, own, fd, operation)) is not None:
        raise NotAllowed(why)


def _may_look(fd: int, own: Lineage, home: Home, team: str | None) -> bool:
    pids = connected(fd)
    if through(home, own, pids):
        return True
    found = None if team is None else agent_of(home, pids)
    return found is not None and team is not None and names.same(found.team, team)


def _because(own: Caller) -> str:
    """Return the reason why the caller counts as the agent `own`, and the way out."""
    if not own.through:
        return f"RELAY_NAME and RELAY_SOCKET say that this belongs to {own.name or 'an agent'}."
    return because(own.name, own.through)


def user_only(home: Home, operation: str, why: str) -> None:
    """Raise NotAllowed(why) if this process belongs to an agent, and record the refusal in the journal."""
    if (own := _caller(home, operation)) is not None:
        _refuse(home, own, operation, why)


def own_only(home: Home, operation: str, sender: str, team: str) -> None:
    """Raise NotAllowed if this process belongs to an agent that did not send the message in question."""
    if (own := _caller(home, operation)) is not None and not _is(own, sender, team):
        why = "an agent cannot change another agent's message. The user can."
        _refuse(home, own, operation, why)


def as_itself(
    home: Home, operation: str, *, name: str | None = None, team: str | None = None, advice: str
) -> Caller | None:
    """Return the agent of this process, if any. Raise NotAllowed (`advice`) for another's name or team."""
    own = _caller(home, operation)
    if own is not None and not _is(own, name or own.name, team or own.team):
        _refuse(
            home, own, operation, f"this runs inside the agent {own.name} of the team {own.team}: {advice}"
        )
    return own


def own_session(home: Home, operation: str, *, name: str | None, advice: str) -> str | None:
    """Return the session id of this process's agent, if any. Raise NotAllowed (`advice`) for another name."""
    own = as_itself(home, operation, name=name, advice=advice)
    return None if own is None else str(call(own.socket, {"op": "info"})["info"]["id"])


@dataclass(frozen=True, slots=True)
class Actor:
    """The agent or user that a command acts as. agent: set in an agent's own process."""

    name: str
    team: str
    agent: Caller | None = None


def acting_as(home: Home, operation: str, *, name: str | None, team: str | None, advice: str) -> Actor:
    """Return the actor of a command: an agent as itself; the user as `name` in `team`, by default themselves.

    Raise NotAllowed, with `advice`, if an agent gives another's `name` or `team`; InvalidName for a bad one.
    """
    own = as_itself(home, operation, name=name, team=team, advice=advice)
    if own is not None:
        return Actor(own.name, own.team, own)
    if name is None or names.same(name, names.PERSON):
        return Actor(names.PERSON, names.team(team))
    return Actor(names.validate(name), team_of(home, name, team))


def certain(home: Home, operation: str) -> Caller | None:
    """Return the agent that this process descends from, None if it is the user's.

    Raise NotAllowed if nothing but the environment says whose it is, or if that says another; and for a
    descendant of another home's agent, unless RELAY_HOME says that this home is meant.
    """
    own = _caller(home, operation)
    if own is None:
        if "RELAY_HOME" not in os.environ and any(map(belongs_to_an_agent, ancestors(os.getpid()))):
            note_refusal(home, None, operation)
            raise NotAllowed(
                "this descends from an agent of another home. Set RELAY_HOME, RELAY_SOCKET, RELAY_NAME and "
                "RELAY_TEAM as in that agent's environment."
            )
    elif not (own.through and os.environ.get("RELAY_SOCKET", str(own.socket)) == str(own.socket)):
        why = "this is not certainly a process of the agent that RELAY_SOCKET names."
        _refuse(home, own, operation, why)
    return own


def _is(own: Caller, name: str, team: str) -> bool:
    return names.same(name, own.name) and names.same(team, own.team)


def _caller(home: Home, operation: str) -> Caller | None:
    try:
        return caller(home)
    except NotAllowed:
        note_refusal(home, None, operation)
        raise


def _refuse(home: Home, own: Caller, operation: str, why: str) -> NoReturn:
    note_refusal(home, own, operation)
    raise NotAllowed(f"{why} {_because(own)}")


def note_refusal(home: Home, own: Caller | None, operation: str) -> None:
    """Record in the journal that an operation was refused to this process. own: its agent, if known."""
    session = os.environ.get("RELAY_SESSION", "")
    from relay.storage.journal import Journal  # 20 ms, and refusals are rare

    Journal(home.journal, session, "" if own is None else own.name).write(
        "refused", operation=operation, pid=os.getpid()
    )
