"""Joining and leaving channels from outside: through the member's session, or in the ledger where none runs.

A session announces it to the team at once; what the ledger holds is announced when the member starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay import names
from relay.control import guard, sessions
from relay.errors import NoSuchSession
from relay.home import Home
from relay.messaging.ledger import Ledger

Operation = Literal["join", "leave"]


@dataclass(frozen=True, slots=True)
class Membership:
    """The channels of a member after a change.

    name: the member. changed: False if it was in, or out, already. channels: all that it is in.
    notice: a sentence for the user, or nothing.
    """

    name: str
    team: str
    changed: bool
    channels: tuple[str, ...]
    notice: str = ""


def change(
    home: Home, operation: Operation, channel: str, *, name: str | None, team: str | None
) -> Membership:
    """Have `name` join or leave `channel`: in an agent only that agent, else anybody, by default the user.

    Raise InvalidName, NotAllowed, NotAMember, SessionUnresponsive or LedgerError.
    """
    channel = names.channel(channel)
    advice = "an agent joins and leaves channels for itself only. Leave out --name and --team."
    who = guard.acting_as(home, operation, name=name, team=team, advice=advice)
    if who.agent is None and who.name == names.PERSON:
        return _write(home, operation, channel, who)
    socket = sessions.socket_of(home, who.team, who.name) if who.agent is None else who.agent.socket
    try:
        answer = sessions.call(socket, {"op": operation, "channel": channel})
    except NoSuchSession:
        if who.agent is not None:
            raise
        return _write(home, operation, channel, who)
    return Membership(answer["name"], answer["team"], answer["changed"], tuple(answer["channels"]))


def _write(home: Home, operation: Operation, channel: str, who: guard.Member) -> Membership:
    name, team = who.name, who.team
    with Ledger(home.ledger) as ledger:
        changed, notice = True, ""
        if operation == "join":
            changed = ledger.channels.join(team, channel, name)
            notice = _never_seen(name, team, ledger.registry.known(team))
        else:
            ledger.channels.leave(team, channel, name)
        return Membership(name, team, changed, tuple(ledger.channels.of(team, name)), notice)


def _never_seen(name: str, team: str, known: list[str]) -> str:
    """Return a notice if nobody ever had `name`: it may be a slip of the pen, or yet to come."""
    if any(names.same(name, each) for each in (*known, names.PERSON)):
        return ""
    meant = names.suggest(name, known)
    return f"Nobody called {name} was ever in team {team}" + (f"; did you mean {meant}?" if meant else ".")
