"""The fleet agents that start automatically: on a schedule, or once there is room."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relay.dataclass import replace
from relay.names import key
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.records import AgentRecord
from relay.supervision.states import ENDED, Phase


def due(fleet: Fleet, records: Mapping[str, AgentRecord], running: Collection[str], now: float) -> list[str]:
    """Return the names of the agents to start now, in the order of the file.

    records, running: by relay.names.key, of the fleet's team only. now: seconds since the epoch.
    """
    here = sum(key(name) in running for name in fleet.agents)
    here += sum(
        name in running and record.fleet == str(fleet.path) and fleet.find(record.name) is None
        for name, record in records.items()
    )
    room = not fleet.max_running or here < fleet.max_running
    found = []
    for name, agent in fleet.agents.items():
        record = records.get(key(name))
        if not room or record is None or record.wanted != "up" or key(name) in running:
            continue
        queued = record.phase is Phase.QUEUED and (agent.schedule is None or record.overdue)
        if queued or (agent.schedule is not None and agent.schedule.due(record.scheduled, now)):
            found.append(name)
    return found


def enqueue(record: AgentRecord, agent: FleetAgent, now: float, *, scheduled: bool) -> AgentRecord:
    """Return the record of a wanted agent that waits for its schedule or, if not `scheduled`, for room.

    now: seconds since the epoch.
    """
    known = {Phase.QUEUED, *ENDED} if scheduled else {Phase.QUEUED}
    if record.phase in known and record.wanted == "up" and record.scheduled:
        return record
    why = "it is waiting for its schedule" if scheduled else "max_running agents are running"
    return _queued(record, agent, now, why, overdue=False)


def postpone(record: AgentRecord, agent: FleetAgent, now: float, why: str) -> AgentRecord:
    """Return the record of an agent that is to start now, but waits for those that it depends on."""
    return (
        record if record.overdue and record.wanted == "up" else _queued(record, agent, now, why, overdue=True)
    )


def _queued(record: AgentRecord, agent: FleetAgent, now: float, why: str, *, overdue: bool) -> AgentRecord:
    about = {"cwd": str(agent.cwd), "command": agent.command, "fleet": agent.supervision.fleet}
    queued = record.enter(Phase.QUEUED, now, why, overdue=overdue, **about)
    return replace(queued, wanted="up", by="up", supervised=True, scheduled=record.scheduled or now)
