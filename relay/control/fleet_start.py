"""Starts one agent of a fleet: its worktree, its conversation, then its session."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from relay.agents.markers import without_markers
from relay.control.resuming import continued
from relay.dataclass import dataclass, replace
from relay.errors import HomeError, LedgerError, WorktreeError
from relay.home import Home
from relay.names import key
from relay.storage.locks import open_lock, try_lock, wait_lock
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.records import AgentRecord, Records
from relay.supervision.restart import describe
from relay.supervision.start import StartOutcome, start
from relay.supervision.states import Phase
from relay.supervision.worktree import AgentWorktree

NOT_STARTED = "could not be started: "
"""The beginning of the reason why an agent without a session has failed."""


@dataclass(frozen=True, slots=True)
class FleetStart:
    """The outcome of a start.

    resumed: the agent continues its conversation. lost: it has had one that cannot be resumed.
    """

    outcome: StartOutcome
    resumed: bool
    lost: bool


@contextmanager
def starting(
    home: Home, team: str, waiting: Callable[[], None] = lambda: None, *, seconds: float | None = None
) -> Iterator[None]:
    """Keep other processes from starting agents of `team` during a block, so that its counts stay valid.

    waiting: called before waiting for another process, at most `seconds` (None: without limit).

    Raise HomeError if the wait takes longer.
    """
    lock = open_lock(home.run / f"starts-{key(team)}.lock")
    try:
        if not try_lock(lock):
            waiting()
            if not wait_lock(lock, seconds):
                raise HomeError(
                    f"another command has been starting agents of {team} for {seconds:g} s. Try again later."
                )
        yield
    finally:
        os.close(lock)


def another_starts(team: str) -> str:
    """Return a sentence that says what `starting` waits for."""
    return f"Waiting for another command that is starting agents of {team}."


def start_agent(
    home: Home, fleet: Fleet, agent: FleetAgent, *, fresh: bool, progress: Callable[[str], None]
) -> FleetStart:
    """Start an agent, and return once it can receive messages, or has ended.

    fresh:    start a new conversation, even if there is an unfinished one.
    progress: called with each line about the preparation of its worktree.

    Raise WorktreeError if that preparation fails; the agent is then held.
    """
    records, now = Records(home), time.time()
    try:
        directory = _directory(home, fleet, agent, progress)
    except WorktreeError as error:
        why = f"its worktree could not be prepared: {error}"
        held = {"supervised": True, "scheduled": now, "overdue": False}
        records.change(
            fleet.team, agent.name, lambda record: record.enter(Phase.HELD, time.time(), why, **held)
        )
        _add_failure(home, fleet.team, agent.name, why)
        raise WorktreeError(why) from None
    last = None if fresh else _unfinished(home, fleet, agent)
    command = None if last is None else continued(home, last, agent.command, directory)
    supervision = replace(agent.supervision, fresh=agent.command if command else ())
    options = [word for path in agent.rules for word in ("--rules", str(path))]
    if agent.task:
        options += ["--task", agent.task]
    command_line = command or agent.command
    outcome = start(agent.name, fleet.team, command_line, directory, supervision, agent.env, options)
    if not outcome.ok and records.get(fleet.team, agent.name) is not None:
        record = records.change(fleet.team, agent.name, lambda record: _failed(record, outcome, now))
        if record.reason.startswith(NOT_STARTED):
            _add_failure(home, fleet.team, agent.name, record.reason)
    lost = last is not None and last.conversation is not None and command is None
    return FleetStart(outcome, resumed=command is not None, lost=lost)


def _failed(record: AgentRecord, outcome: StartOutcome, began: float) -> AgentRecord:
    """Return the record of an agent whose start failed, so that it is tried again at its next time only."""
    record = replace(record, scheduled=began, overdue=False)
    if record.phase is not Phase.QUEUED:  # its session has said what happened
        return record
    why = (outcome.text or describe(outcome.code)).rstrip(".")
    return record.enter(Phase.FAILED, time.time(), NOT_STARTED + why)


def _add_failure(home: Home, team: str, name: str, why: str) -> None:
    """Put a failed start, of which no session can tell, into the user's inbox."""
    from relay.messaging.ledger import Ledger  # 30 ms, and rarely needed

    with suppress(LedgerError), Ledger(home.ensure().ledger) as ledger:
        ledger.user_inbox.add(team, name, "failed", why)


def _directory(home: Home, fleet: Fleet, agent: FleetAgent, progress: Callable[[str], None]) -> Path:
    """Return the agent's directory. Raise WorktreeError if its worktree cannot be prepared."""
    if agent.worktree is None:
        return agent.cwd
    worktree = AgentWorktree(
        agent.worktree,
        agent.name,
        team=fleet.team,
        home=home,
        directory=agent.cwd,
        env={**without_markers(os.environ), **agent.env},
        progress=progress,
    )
    return worktree.prepare().path


def _unfinished(home: Home, fleet: Fleet, agent: FleetAgent) -> AgentRecord | None:
    """Return the agent's record if it has not finished, and may resume its conversation."""
    record = Records(home).get(fleet.team, agent.name)
    return (
        record if record and record.phase is not Phase.DONE and agent.supervision.resume != "never" else None
    )
