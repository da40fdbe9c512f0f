"""A fleet: the agents of one fleet file, checked and complete. relay.supervision.fleet_file reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from relay import names
from relay.dataclass import asdict, dataclass, field, replace
from relay.supervision.policy import Supervision
from relay.supervision.schedule import Schedule
from relay.supervision.worktree import WorktreeSpec

Condition = Literal["started", "ready", "idle", "done", "exited_ok"]
"""The condition that an agent must meet before one that depends on it is started."""


@dataclass(frozen=True, slots=True)
class FleetAgent:
    """One agent of a fleet.

    command:    argv, not yet looked up in PATH.
    task:       the first prompt of a new conversation; "": none.
    cwd:        absolute; it existed when the file was read; a worktree is created from its repository.
    env:        added to the environment; the files of env_file are in it.
    channels:   without their `#`.
    rules:      absolute paths of hooks.json files, as `relay wrap --rules` takes them.
    depends_on: the names of agents of the fleet, spelled as there.
    """

    name: str
    command: tuple[str, ...]
    cwd: Path
    task: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # has keys and tokens
    channels: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    autostart: bool = True
    depends_on: Mapping[str, Condition] = field(default_factory=dict)
    supervision: Supervision = field(default_factory=Supervision)
    schedule: Schedule | None = None
    worktree: WorktreeSpec | None = None

    def of(self, path: Path) -> FleetAgent:
        """Return the agent with its file and a digest of its definition recorded in its supervision.

        A different digest shows that a running agent no longer matches the file.
        """
        supervision = replace(self.supervision, fleet=str(path), digest="")
        text = json.dumps(asdict(replace(self, supervision=supervision)), default=str, sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return replace(self, supervision=replace(supervision, digest=digest))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The agents of the fleet file at `path`, in its order.

    max_running:    agents that may run at once; 0: any number.
    start_interval: seconds between two starts.
    spawn:          its agents may start others.
    digest:         the SHA-256 of the file's content, as in relay.hooks.trust.
    """

    path: Path
    team: str
    max_running: int
    start_interval: float
    agents: Mapping[str, FleetAgent]
    digest: str
    spawn: bool = False

    def find(self, name: str) -> FleetAgent | None:
        """Return the agent called `name`, ignoring case."""
        return next((agent for agent in self.agents.values() if names.same(agent.name, name)), None)
