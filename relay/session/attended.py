"""Features that only supervised sessions have and import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay.features.account_watch import AccountWatch
from relay.features.action_runner import ActionRunner
from relay.features.alarm import Alarm
from relay.features.bounds import Bounds
from relay.features.first_prompt import FirstPrompt
from relay.features.fleet_keeper import FleetKeeper
from relay.features.gate_runner import GateRunner
from relay.features.holds import Holds
from relay.features.idle_grace import IdleGrace
from relay.features.interrupted_turn import InterruptedTurn
from relay.features.limit_dialog import LimitDialog
from relay.features.loop_watch import LoopWatch
from relay.features.turn_outcome import TurnOutcome
from relay.session.core import Core
from relay.supervision.accounts import Accounts
from relay.supervision.notebook import Notebook
from relay.supervision.records import Records


def _actions(core: Core) -> ActionRunner:
    notebook = _notebook(core, "actions")
    return ActionRunner(core.bus, core.journal, core.agent.terminal, core.session, core.supervision, notebook)


def _bounds(core: Core) -> Bounds:
    policy = core.supervision
    if policy.restart == "no" and not policy.fleet:
        policy = replace(policy, max_unattended_turns=0)
    return Bounds(
        core.bus,
        core.agent.terminal,
        policy,
        _notebook(core, "bounds"),
        name=core.session.name,
        life=core.session.id,
        known=core.setup.knows_agent or bool(core.started.bridge),
    )


def _first_prompt(core: Core) -> FirstPrompt | None:
    if not (text := core.supervision.prompt):
        return None
    records, resumes = Records(core.started.home), core.started.resumes
    parent = core.supervision.parent
    return FirstPrompt(core.bus, core.tasks, core.session, records, text, source=parent, resumes=resumes)


def _idle_grace(core: Core) -> IdleGrace | None:
    policy, agent = core.supervision, core.agent
    if policy.on_idle is None and not policy.prompt:
        return None
    return IdleGrace(core.bus, core.tasks, agent.terminal, agent.state, policy.idle_grace)


def _notebook(core: Core, section: str) -> Notebook:
    started, session = core.started, core.session
    run = "" if core.supervision.fleet else started.run
    return Notebook(started.home, session.team, session.name, section, run=run)


def _spawner(core: Core) -> object | None:
    if not core.supervision.spawns:
        return None
    from relay.features.spawner import Spawner  # few sessions need it

    home, fleet = core.started.home, Path(core.supervision.fleet)
    return Spawner(core.bus, core.tasks, core.journal, core.session, home, fleet)


ATTENDED: dict[str, Callable[[Core], object | None]] = {
    "holds": lambda core: Holds(
        core.bus, core.agent.terminal, _notebook(core, "hold"), name=core.session.name
    ),
    "account": lambda core: AccountWatch(
        core.bus,
        core.tasks,
        core.agent.terminal,
        Accounts(core.started.home),
        account=core.supervision.account,
        name=core.session.name,
    ),
    "bounds": _bounds,
    "first prompt": _first_prompt,
    "interrupted turn": lambda core: InterruptedTurn(
        core.bus,
        core.tasks,
        core.agent.terminal,
        core.session,
        Records(core.started.home),
        _notebook(core, "turn"),
        resumes=core.started.resumes,
        task=bool(core.supervision.prompt),
    ),
    "fleets": lambda core: (
        FleetKeeper(core.bus, core.journal, core.started.home) if core.supervision.fleet else None
    ),
    "spawner": _spawner,
    "turn outcome": lambda core: TurnOutcome(core.bus, core.agent.terminal, known=core.setup.knows_agent),
    "loops": lambda core: LoopWatch(
        core.bus, core.agent.terminal, name=core.session.name, draws=core.setup.knows_agent
    ),
    "actions": _actions,
    "limit dialog": lambda core: LimitDialog(
        core.bus, core.journal, core.setup.profile, core.agent.terminal, core.agent.state
    ),
    "gates": lambda core: GateRunner(
        core.bus,
        core.tasks,
        core.journal,
        core.agent.terminal,
        core.agent.state,
        directory=core.session.directory,
        env=core.started.env,
    ),
    "idle grace": _idle_grace,
    "alarm": lambda core: Alarm(
        core.bus,
        core.tasks,
        core.journal,
        core.agent.terminal,
        _notebook(core, "escalation"),
        name=core.session.name,
        to=core.setup.settings.escalate_to,
    ),
}
"""The factories of these features by name, in the order of relay.session.features.FEATURES."""
