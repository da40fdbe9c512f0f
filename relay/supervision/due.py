"""The agents of a fleet that start without being asked: by the clock, or as there is room again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relay.names import key
from relay.supervision.fleet import Fleet
from relay.supervision.records import AgentRecord
from relay.supervision.states import Phase


def due(fleet: Fleet, records: Mapping[str, AgentRecord], running: Collection[str], now: float) -> list[str]:
    """Return their names, in the order of the file.

    records, running: by relay.names.key; those of the fleet's team. now: seconds since the epoch.
    """
    here = sum(key(name) in running for name in fleet.agents)
    room = not fleet.max_running or here < fleet.max_running
    found = []
    for name, agent in fleet.agents.items():
        record = records.get(key(name))
        if not room or record is None or record.wanted != "up" or key(name) in running:
            continue
        queued = record.phase is Phase.QUEUED and agent.schedule is None
        if queued or (agent.schedule is not None and agent.schedule.due(record.scheduled, now)):
            found.append(name)
    return found
