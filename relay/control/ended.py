"""Ended agents: those with a record whose names no session holds."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from relay import names
from relay.control.sessions import SessionInfo, claims, socket_of
from relay.errors import NoSuchSession, RelayError
from relay.home import Home
from relay.names import key
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import ENDED, Phase

KEPT = 7 * 86400.0
"""Seconds that an ended agent stays listed, unless its fleet file still has it."""

PLAIN = 3600.0
"""The same for an unsupervised program without a conversation, which nothing could bring back."""

GONE = "gone"
"""The state of an agent whose processes were killed with no session left to record it, as after a reboot."""


def ended(home: Home, live: Collection[SessionInfo], team: str | None = None) -> list[SessionInfo]:
    """Return the agents of `team` (None: of all teams) that are not among `live`, sorted by team and name.

    Remove the records of those that ended PLAIN or KEPT ago.
    """
    running = {(key(session.team), key(session.name)) for session in live}
    records, now, found = Records(home), time.time(), []
    for record in records.all(team):
        if (key(record.team), key(record.name)) in running:
            continue
        if record.at < now - _kept(record) and not _is_defined(record):
            records.forget(record.team, record.name)
            continue
        found.append(as_session(home, record))
    return found


def ended_record(home: Home, name: str, team: str | None) -> AgentRecord:
    """Return the record of an agent that has ended. team: None: any. Raise RelayError for none."""
    running = {(key(claim.team), key(claim.name)) for claim in claims(home)}
    known = Records(home).all(team)
    named = [record for record in known if names.same(record.name, name)]
    found = [record for record in named if (key(record.team), key(record.name)) not in running]
    if len(found) == 1:
        return found[0]
    if found:
        teams = ", ".join(record.team for record in found)
        raise NoSuchSession(f"several teams had an agent called {name!r} ({teams}). Choose one with --team.")
    if named:
        raise RelayError(f"it is running. `relay stop {name}` stops it.")
    hint = names.did_you_mean(name, [record.name for record in known])
    raise NoSuchSession(f"there is no agent called {name!r}. {hint}`relay ps -a` lists ended agents, too.")


def _kept(record: AgentRecord) -> float:
    plain = not (record.supervised or record.fleet or record.parent or record.conversation)
    return PLAIN if plain and record.phase in ENDED else KEPT


def _is_defined(record: AgentRecord) -> bool:
    """Return True if a fleet file has the agent, so that `relay up` needs the record, or cannot be read."""
    if not record.fleet or record.parent:
        return False
    from relay.supervision import fleet_file  # 15 ms; most records are no fleet's

    path = Path(record.fleet)
    try:
        fleet = fleet_file.parse(path, fleet_file.read(path), names.DEFAULT_TEAM)
    except RelayError:
        return path.exists()
    return fleet.find(record.name) is not None


def as_session(home: Home, record: AgentRecord) -> SessionInfo:
    """Return an ended agent as `relay ps -a` lists it."""
    over = record.phase in ENDED | {Phase.HELD, Phase.QUEUED}
    return SessionInfo(
        record.name,
        record.team,
        record.agent,
        None,
        None,
        str(record.phase) if over else GONE,
        None,
        record.at,
        record.cwd,
        record.session,
        socket_of(home, record.team, record.name),
        restarts=record.restarts,
        exit_code=record.exit_code,
        reason=record.reason if over else "its processes were killed",
        next_try=record.next_try if over else None,
        wanted=record.wanted,
        parent=record.parent,
    )
