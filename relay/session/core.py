"""The parts that the features of a session share, and get as arguments."""

from __future__ import annotations

from dataclasses import dataclass

from relay.control.terminal_client import TerminalClient
from relay.eventbus import EventBus
from relay.lifecycle import Identity
from relay.memory.store import MemoryStore
from relay.readers.auto import AutoReader
from relay.redaction import Redactor
from relay.session.setup import Setup
from relay.session.started import Started
from relay.state.agent_terminal import AgentTerminal
from relay.state.continuations import Continuations
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.state.view import AgentView
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.status import StatusRecords


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent as it is known: its terminal, and what follows from what it shows and reports."""

    reader: AutoReader
    terminal: AgentTerminal
    status: StatusRecords
    turn: Turn
    view: AgentView
    state: AgentState
    continuations: Continuations


@dataclass(frozen=True, slots=True)
class Core:
    """All that exists before the features do. client: the one that started the session."""

    bus: EventBus
    tasks: Tasks
    started: Started
    setup: Setup
    session: Identity
    journal: Journal
    redactor: Redactor
    client: TerminalClient
    agent: Agent
    memory: MemoryStore
