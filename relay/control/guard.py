"""The guard rail: it limits the requests and commands of a wrapped agent's own processes.

They may send as themselves, join and leave channels, list sessions, and read their own messages, memory and
events.  They may not attach, stop, answer, trust or act as another: an agent must not approve itself.  It is
a guard rail, not a boundary: agents under one account can read each other's files.
"""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from relay import names
from relay.control.caller import Caller, agents, ancestors, caller
from relay.control.sessions import call
from relay.errors import NotAllowed
from relay.home import Home
from relay.storage.journal import Journal

if TYPE_CHECKING:
    from relay.control.server import Request

ALLOWED = frozenset({"info", "explain", "rules", "send", "drain", "roster", "join", "leave", "hook_printed"})
"""Operations that a descendant of an agent may ask for."""

_PERSONS = "an agent may not ask for {!a}. The person can, from a terminal outside of the session."

OWN = frozenset({"hook"})
"""Operations that nobody but a descendant of the session's own agent may ask for."""


def check(request: Request, agent: int, agents: Container[int]) -> None:
    """Raise NotAllowed if a process descended from one of `agents` asks for an operation that it may not use.

    agent: the process id of the session's own.
    """
    operation = str(request.fields.get("op"))
    if operation in OWN:
        if agent not in ancestors(request.pid):
            raise NotAllowed(f"only the agent of this session, and what it runs, may ask for {operation!a}.")
    elif operation not in ALLOWED and any(pid in agents for pid in ancestors(request.pid)):
        raise NotAllowed(_PERSONS.format(operation))


def refusal(home: Home, agent: int, pid: int, operation: str) -> str | None:
    """Return why the process `pid` may not ask the shim of `agent` for `operation`, None if it may."""
    if {agent, *agents(home)}.isdisjoint(ancestors(pid)):
        return None
    return _PERSONS.format(operation)


def person_only(home: Home, operation: str, why: str) -> None:
    """Raise NotAllowed(why) if this process belongs to an agent, and note the refusal in the journal."""
    if (own := caller(home)) is not None:
        _refuse(home, own, operation, why)


def own_only(home: Home, operation: str, sender: str, team: str) -> None:
    """Raise NotAllowed if this process belongs to an agent that did not send the message in question."""
    if (own := caller(home)) is not None and not _is(own, sender, team):
        why = "a message of somebody else cannot be changed by an agent; the person can do that."
        _refuse(home, own, operation, why)


def as_itself(
    home: Home, operation: str, *, name: str | None = None, team: str | None = None, advice: str
) -> Caller | None:
    """Return the agent to which this process belongs, None if it is the user's.

    Raise NotAllowed, with `advice`, in an agent that asks for another's `name` or `team`.
    """
    own = caller(home)
    if own is not None and not _is(own, name or own.name, team or own.team):
        _refuse(
            home, own, operation, f"this runs inside the agent {own.name} of the team {own.team}: {advice}"
        )
    return own


def own_session(home: Home, operation: str, *, name: str | None, advice: str) -> str | None:
    """Return the id of the session of the agent to which this process belongs, None if it is the user's.

    Raise NotAllowed, with `advice`, in an agent that asks for another's `name`.
    """
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

    Raise NotAllowed, with `advice`, in an agent that asks for another's `name` or `team`; InvalidName.
    """
    own = as_itself(home, operation, name=name, team=team, advice=advice)
    if own is not None:
        return Actor(own.name, own.team, own)
    if name is None or names.same(name, names.PERSON):
        return Actor(names.PERSON, names.team(team))
    return Actor(names.validate(name), names.team(team))


def _is(own: Caller, name: str, team: str) -> bool:
    return names.same(name, own.name) and names.same(team, own.team)


def _refuse(home: Home, own: Caller, operation: str, why: str) -> NoReturn:
    session = os.environ.get("RELAY_SESSION", "")
    Journal(home.journal, session, own.name).write("refused", operation=operation, pid=os.getpid())
    raise NotAllowed(why)
