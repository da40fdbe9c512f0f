"""What relay knows about agents that are not running: one file per agent in the home's state.

    state/agents/TEAM/NAME.json

The agent's session writes the file, and so do the commands that start and stop agents; each change rewrites
the whole file under a lock. The environment is left out, because it may contain secrets.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from relay.dataclass import asdict, dataclass, field, fields, replace
from relay.errors import HomeError
from relay.home import Home
from relay.names import key
from relay.storage.files import rewrite
from relay.supervision.restart import RestartHistory
from relay.supervision.states import Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Wanted = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """The last known state of one agent.

    agent:       the name of its profile.
    command:     its argv. options: the other options of its session (relay.session.options), as JSON.
    fleet:       the fleet file that defines it; "": none. digest: that of its table there.
    wanted, by:  whether it should run, and the command that last said so: wrap, up, down, stop.
    phase:       its state. reason: why it is in that state. at: since when, in seconds since the epoch.
    exit_code:   its last one; None: it has not ended yet.
    restarts:    how many agents ran before this one under the same shim.
    next_try:    when it will be restarted, in seconds since the epoch; None: it will not be.
    note:        what happens next, in words; "": nothing.
    scheduled:   when its schedule starts to count: at its last start, even if it failed, or when `relay up`
                 first saw it.
    overdue:     it is queued, and starts as soon as the agents that it depends on let it.
    history:     the basis of the next restart decision.
    supervised:  it is restarted automatically.
    task_given:  it has received its first prompt.
    session:     the id of its session.
    conversation: the agent's own, from which it can be resumed; None: none is known.
    parent:      the agent that started it; "": the user did. reported: the parent was told how it ended.
    """

    name: str
    team: str
    agent: str = ""
    command: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None
    cwd: str = ""
    fleet: str = ""
    digest: str = ""
    wanted: Wanted = "up"
    by: str = "wrap"
    phase: Phase = Phase.OFF
    reason: str = ""
    at: float = 0.0
    exit_code: int | None = None
    restarts: int = 0
    next_try: float | None = None
    note: str = ""
    history: RestartHistory = field(default_factory=RestartHistory)
    supervised: bool = False
    task_given: bool = False
    scheduled: float = 0.0
    overdue: bool = False
    session: str = ""
    conversation: Mapping[str, Any] | None = None
    parent: str = ""
    reported: bool = False

    def enter(self, phase: Phase, now: float, reason: str = "", **more: Any) -> AgentRecord:
        """Return the record in the state `phase`. now: seconds since the epoch."""
        return replace(self, phase=phase, reason=reason, at=now, **more)


class Records:
    """The records of a home's agents. Every method but `path` may block; none raises for a damaged file."""

    def __init__(self, home: Home) -> None:
        self._folder = home.state / "agents"

    def path(self, team: str, name: str) -> Path:
        return self._folder / key(team) / f"{key(name)}.json"

    def get(self, team: str, name: str) -> AgentRecord | None:
        return _read(self.path(team, name))

    def all(self, team: str | None = None) -> list[AgentRecord]:
        """Return the records of a team, or of all teams, by team and name."""
        found = sorted(self._folder.glob(f"{'*' if team is None else glob.escape(key(team))}/*.json"))
        return [record for path in found if (record := _read(path)) is not None]

    def change(self, team: str, name: str, change: Callable[[AgentRecord], AgentRecord]) -> AgentRecord:
        """Apply `change` to an agent's record, or to a new one. Return the changed record.

        Raise HomeError if it cannot be written. No other process changes the record meanwhile.
        """
        path = self.path(team, name)
        made: list[AgentRecord] = []

        def text() -> str:
            # ASCII: a command or a path may contain surrogates, for bytes that are not UTF-8.
            made.append(change(_read(path) or AgentRecord(name, team)))
            return json.dumps(asdict(made[0]), indent=1) + "\n"

        rewrite(path, text)
        return made[0]

    def forget(self, team: str, name: str) -> None:
        """Raise HomeError if the record cannot be removed."""
        try:
            self.path(team, name).unlink(missing_ok=True)
        except OSError as error:
            raise HomeError(f"cannot remove {self.path(team, name)}: {error.strerror}.") from None


_FIELDS = {each.name for each in fields(AgentRecord)}


def _read(path: Path) -> AgentRecord | None:
    try:
        values = json.loads(path.read_bytes())
        values = {name: value for name, value in values.items() if name in _FIELDS}
        values["command"] = tuple(map(str, values.get("command", ())))
        values["phase"] = Phase(values.get("phase", "off"))
        history = values.get("history", {})
        values["history"] = RestartHistory(
            tuple(map(float, history.get("restarts", ()))), int(history.get("waits", 0))
        )
        return AgentRecord(**values)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
