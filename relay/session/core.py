"""The parts of a session that features receive as constructor arguments."""

from __future__ import annotations

from relay.dataclass import dataclass, replace
from relay.errors import RelayError
from relay.eventbus import EventBus
from relay.lifecycle import Identity
from relay.memory.store import MemoryStore
from relay.readers.auto import AutoReader
from relay.redaction import Redactor
from relay.session.active_config import ActiveConfig
from relay.session.setup import Setup
from relay.session.started import Started
from relay.state.agent_terminal import AgentTerminal
from relay.state.continuations import Continuations
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.state.view import AgentView
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.supervision.policy import Supervision
from relay.tasks import Tasks
from relay.terminal.status import StatusRecords


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent: its terminal, and the state derived from its screen and its reports."""

    reader: AutoReader
    terminal: AgentTerminal
    status: StatusRecords
    turn: Turn
    view: AgentView
    state: AgentState
    continuations: Continuations


@dataclass(frozen=True, slots=True)
class Core:
    """The parts created before the features. noticed: the notices of the agent's last session."""

    bus: EventBus
    tasks: Tasks
    started: Started
    setup: Setup
    active: ActiveConfig
    noticed: frozenset[str]
    session: Identity
    journal: Journal
    redactor: Redactor
    progress: Progress
    agent: Agent
    memory: MemoryStore | RelayError

    @property
    def supervision(self) -> Supervision:
        policy = Supervision.from_json(self.started.options.supervision or {})
        # A pipe or a file cannot be read twice.
        return replace(policy, restart="no") if self.started.piped else policy
