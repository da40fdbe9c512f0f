"""The current states of a fleet file's agents, from their sessions and records."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relay.control.sessions import UNRESPONSIVE, SessionInfo, claims, live
from relay.dataclass import dataclass
from relay.home import Home
from relay.names import key
from relay.supervision.due import due
from relay.supervision.fleet import Condition, Fleet
from relay.supervision.plan import Standing
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import ENDED, PAUSED, Phase, in_words


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The sessions and the records of a fleet's team, by relay.names.key."""

    fleet: Fleet
    sessions: Mapping[str, SessionInfo]
    records: Mapping[str, AgentRecord]

    @classmethod
    def now(cls, home: Home, fleet: Fleet) -> FleetStatus:
        """Return the current status, asking each session of the team."""
        sessions = {key(session.name): session for session in live(home, fleet.team)}
        records = {key(record.name): record for record in Records(home).all(fleet.team)}
        return cls(fleet, sessions, records)

    def standings(self, *, boot: bool = False, tried: Collection[str] = ()) -> dict[str, Standing]:
        """Return the standing of each agent of the fleet.

        boot: agents that are done, or that `relay down` has ended, count as stopped, too. tried: the agents
        that this `relay up` has started.
        """
        found = {}
        for name, agent in self.fleet.agents.items():
            record, running = self.records.get(key(name)), key(name) in self.sessions
            found[name] = Standing(
                running=running,
                changed=running and record is not None and record.digest != agent.supervision.digest,
                tried=name in tried,
                stopped=record is not None and _is_left(record, boot=boot),
                reached=self.reached(name) | self._began(name, tried),
            )
        return found

    def due(self, now: float) -> list[str]:
        """Return the agents to start automatically now, in the order of the file.

        One that is overdue is returned only once its dependencies are met: they were started before.
        """
        return [
            name
            for name in due(self.fleet, self.records, self.sessions, now)
            if not self.records[key(name)].overdue
            or all(
                condition in self.reached(other)
                for other, condition in self.fleet.agents[name].depends_on.items()
            )
        ]

    def others(self) -> int:
        """Return the number of running agents that are no longer in the fleet file."""
        records = [self.records[name] for name in self.sessions if name in self.records]
        path = str(self.fleet.path)
        return sum(record.fleet == path and self.fleet.find(record.name) is None for record in records)

    def reached(self, name: str) -> frozenset[Condition]:
        session, record = self.sessions.get(key(name)), self.records.get(key(name))
        reached: set[Condition] = set()
        if session is not None:
            if session.state not in {UNRESPONSIVE, *PAUSED}:
                reached.add("started")
            if session.state == "ready":
                reached |= {"ready", "idle"}
            elif self.is_up(name):
                reached.add("ready")
        elif record is not None and record.phase in ENDED:
            if record.phase is Phase.DONE:
                reached.add("done")
            if record.exit_code == 0:
                reached.add("exited_ok")
        return frozenset(reached)

    def _began(self, name: str, tried: Collection[str]) -> frozenset[Condition]:
        """Return that an agent was started by this `relay up`, if it may have ended since, as it should."""
        record = self.records.get(key(name))
        ended_well = record is not None and record.phase is Phase.DONE
        return frozenset({"started"}) if name in tried and ended_well else frozenset()

    def is_up(self, name: str) -> bool:
        """Return True if the agent has been ready in its current run, not just in an earlier one."""
        session, record = self.sessions.get(key(name)), self.records.get(key(name))
        return (
            session is not None
            and record is not None
            and record.session == session.id
            and record.phase is Phase.UP
        )

    def end(self, name: str) -> str:
        """Return how an agent that is not running has ended: "exited with 1"."""
        record = self.records.get(key(name))
        if record is None:
            return "has not been started"
        return record.reason or "has ended"

    def in_vain(self, name: str, condition: Condition, *, late: bool) -> str | None:
        """Return why an agent can no longer meet a condition. late: the time for its start is over."""
        session = self.sessions.get(key(name))
        if session is None:
            if condition in self.reached(name):
                return None
            record = self.records.get(key(name))
            done = record is not None and record.phase is Phase.DONE
            return f"that {self.end(name)}" + (f' ({name} = "done" waits for its end)' if done else "")
        late = late and condition in {"started", "ready"} and session.state != "prompting"
        return f"that is {in_words(session.state)}" if late or session.state in {"held", "failed"} else None


def left_over(home: Home, fleet: Fleet) -> list[AgentRecord]:
    """Return the records of the running agents that an earlier content of the fleet file has started.

    The file no longer has them: they were renamed or removed, or the fleet had another team.
    """
    running = {(key(claim.team), key(claim.name)) for claim in claims(home)}
    return [
        record
        for record in Records(home).all()
        if record.fleet == str(fleet.path)
        and (key(record.team), key(record.name)) in running
        and (key(record.team) != key(fleet.team) or not (record.parent or fleet.find(record.name)))
    ]


def _is_left(record: AgentRecord, *, boot: bool) -> bool:
    """Return True for an agent that starts only if named."""
    if record.wanted == "down":
        return boot or record.by == "stop"
    return boot and record.phase is Phase.DONE  # a reboot does not repeat a task
