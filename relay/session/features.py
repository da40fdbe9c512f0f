"""The features of a session. To add one, write a module and add a line to FEATURES.

The order matters when several features handle an event or answer a question: reading precedes deciding, rules
precede handlers, and the parts of a reply are in order.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from relay.agents import kinds
from relay.agents.door import Door, NoDoor, Site
from relay.agents.joiners import DrawnJoiners
from relay.agents.prices import Prices
from relay.agents.transcript_reader import TranscriptReader
from relay.control.lineage import Lineage, ancestors
from relay.dataclass import replace
from relay.directives.checkpoint import Checkpoints
from relay.directives.grammar import Grammar
from relay.directives.hearing import EarlierSessions, Hearing
from relay.directives.screen_words import ScreenWords
from relay.errors import RelayError
from relay.features.agent_log import AgentLog
from relay.features.agent_record import AgentRecordWriter
from relay.features.agent_version import AgentVersion
from relay.features.attention import Alarm, Attention, Escalation
from relay.features.bus_connection import BusConnection
from relay.features.config_watch import ConfigWatch
from relay.features.conversation import ConversationTracker
from relay.features.derived_rules import DerivedRules
from relay.features.dialog_answers import DialogAnswers
from relay.features.directive_log import DirectiveLog
from relay.features.failure_watch import FailureWatch
from relay.features.first_prompt import FirstPrompt
from relay.features.gate_runner import GateRunner
from relay.features.guards import Guards
from relay.features.handler_runner import HandlerRunner
from relay.features.holds import AccountWatch, Bounds, Holds, LoopWatch
from relay.features.hook_responder import HookResponder
from relay.features.idle import IdleGrace, IdleWatch
from relay.features.injection_audit import InjectionAudit
from relay.features.injector import Injector
from relay.features.interrupted_turn import InterruptedTurn
from relay.features.limit_dialog import LimitDialog
from relay.features.mailbox import Mailbox
from relay.features.memory import MemoryFeature
from relay.features.native_hooks import NativeHooks
from relay.features.notices import Notices
from relay.features.onboarding import Onboarding
from relay.features.orphans import Orphans
from relay.features.peers import Peers
from relay.features.recorder import Recorder
from relay.features.rule_runner import RuleRunner
from relay.features.sender import MessageSender
from relay.features.state_tracker import StateTracker
from relay.features.status_reports import StatusReports
from relay.features.supervisor import Supervisor
from relay.features.terminals import Terminals
from relay.features.transcript_listener import TranscriptListener
from relay.features.turn_outcome import TurnOutcome
from relay.features.turn_tracker import TurnTracker, first_source
from relay.features.user_inbox import InboxWriter, Pusher
from relay.features.viewers import Viewers
from relay.features.window_title import WindowTitle
from relay.hooks.context import Context, History, MemoryService
from relay.hooks.runner import Runner
from relay.injection import layout
from relay.injection.audit_log import AuditLog
from relay.injection.budget import Budget
from relay.memory.store import MemoryStore
from relay.messaging.runaway import Limits
from relay.policy import Policy
from relay.recording.asciicast import Header
from relay.rules.engine import Engine
from relay.session.core import Core
from relay.session.output_reader import OutputReader
from relay.supervision.accounts import Accounts
from relay.supervision.notebook import Notebook
from relay.supervision.records import AgentRecord, Records
from relay.supervision.succession import Succession

if TYPE_CHECKING:
    from relay.messaging.client import MessagingClient

Feature = object
"""Any object with methods that handle events, answer questions or are operations. Its `run`, if it has one,
starts with the session and is cancelled at the session's end."""

Factory = Callable[[Core], Feature | None]
"""Makes a feature, or returns None if the session does not need it."""


def _notices(core: Core) -> Notices:
    notes = [core.started.bridge_note]
    if (unavailable := core.agent.reader.unavailable) is not None:
        notes.append(f"{unavailable} relay reads only what the agent prints as lines.")
    if core.started.shim.hello.skip:
        notes.append("part of the agent's output crashed two sessions, so relay skips it.")
    first = (*core.setup.notices, *filter(None, notes))
    told = frozenset(core.started.told)
    mistakes = core.setup.notices
    return Notices(
        core.bus, core.journal, core.started.shim, first, mistakes=mistakes, told=told, noticed=core.noticed
    )


def _output_reader(core: Core) -> OutputReader:
    setup, agent = core.setup, core.agent
    return OutputReader(
        core.bus,
        core.started.shim,
        agent.terminal,
        agent.reader,
        Grammar.of_terminal(
            setup.registry.knows,
            setup.profile,
            prefix=setup.prefix,
            acts_on=setup.acts_on,
            meant=setup.registry.meant,
        ),
        words=ScreenWords(
            setup.prefix,
            None if core.started.record is None else core.progress.note,
            joined=core.started.shim.ring.joined.offset if core.started.resumed else -1,
        ),
        source=first_source(known=setup.knows_agent),
        checkpoints=Checkpoints(
            core.started.home.run / "checkpoints" / f"{core.session.id}.json", core.progress
        ),
    )


def _handler_runner(core: Core) -> HandlerRunner:
    started, setup, session, history = core.started, core.setup, core.session, History()
    context = Context(
        agent_id=f"{session.team}/{session.name}",
        agent_name=session.name,
        session_id=session.id,
        working_dir=session.directory,
        env=dict(started.env),
        task=started.options.task or None,
        bus=core.bus,
        memory=MemoryService(_memory(core), None if isinstance(setup.memory, RelayError) else setup.memory),
        history=history,
    )
    runner = Runner(setup.registry, core.bus, timeout=setup.settings.handler_seconds)
    hearing = Hearing.of(
        setup.registry.namespaces(),
        setup.profile,
        acts_on=setup.acts_on,
        subagents=setup.settings.subagents == "act",
        prefix=setup.prefix,
    )
    return HandlerRunner(
        core.bus,
        core.tasks,
        core.journal,
        runner,
        context,
        history,
        hooked=bool(core.started.bridge),
        progress=core.progress,
        earlier=EarlierSessions(core.progress, hearing, started.shim.ring.joined.offset),
    )


def _memory(core: Core) -> MemoryStore | RelayError:
    return core.memory if "memory" in FEATURES else RelayError("memory is switched off in this session.")


def _rule_runner(core: Core) -> RuleRunner:
    directory, bus = core.session.directory, core.bus
    return RuleRunner(
        core.bus,
        core.tasks,
        core.journal,
        core.setup.rules,
        Engine(directory, core.started.env, bus),
        home=core.started.home,
        directory=directory,
        files=[Path(path) for path in core.started.options.rules],
        full=core.setup.settings.hook_output == "full",
        loaded=lambda book: replace(core.active, rules=book.sources).save(core.started.home, core.session.id),
    )


def _record(core: Core) -> TranscriptReader | None:
    """Return a reader of the agent's own transcript, or None if it has none."""
    kind = core.setup.profile.native.transcript
    if not (core.started.bridge and kind):
        return None
    return TranscriptReader(kind, followed=lambda fields: core.progress.note("transcript", **fields))


def _native(core: Core) -> NativeHooks:
    return NativeHooks(
        core.bus,
        core.journal,
        core.agent.turn,
        kind=core.started.bridge,
        note=core.started.bridge_note,
        record=_record(core),
        continuations=core.setup.settings.continuations,
        progress=core.progress,
    )


def _site(core: Core) -> Site:
    started = core.started
    own = Lineage(started.pty.pid, started.pty.leader, os.getpid())
    return Site(
        started.env, started.bridge_dir, started.socket, lambda pid: bool(own.through(ancestors(pid)))
    )


def _door(core: Core) -> Door:
    """Return the agent's door; it is asked for once the agent's hooks report."""
    site = _site(core)
    return kinds.find(core.started.bridge).door(site) or NoDoor(site)


def _peers(core: Core) -> Peers:
    return Peers(
        core.bus,
        core.journal,
        core.session,
        core.started.home,
        kinds.find(core.started.bridge).peers(_site(core)),
        shows=core.setup.settings.peers == "auto",
    )


def _own_record(core: Core) -> Feature | None:
    if core.started.record is None:
        return None
    from relay.features.own_record import OwnRecord

    return OwnRecord(core.bus, core.journal, core.agent.terminal, core.started.record, core.progress)


def _conversation(core: Core) -> ConversationTracker:
    started = core.started
    return ConversationTracker(
        core.bus,
        core.journal,
        core.setup.profile,
        started.command,
        core.session.directory,
        Lineage(started.pty.pid, started.pty.leader, os.getpid()),
        core.progress,
        started.record,
    )


def _onboarding(core: Core) -> Onboarding | None:
    if not core.setup.teaches or core.started.resumed:
        return None  # an earlier session has taught the agent
    on_screen = core.setup.acts_on("relay")
    if not (on_screen or core.started.record is not None or _record(core) is not None):
        return None
    return Onboarding(
        core.bus,
        core.tasks,
        core.session,
        template=core.setup.onboarding,
        prefix=core.setup.prefix,
        hooked=bool(core.started.bridge),
        on_screen=on_screen,
        spawns=core.supervision.spawns,
        tools=core.started.mcp,
    )


def _escalates(core: Core) -> bool:
    # A shell's questions come from the commands of the user at its terminal.
    return core.setup.profile.inject != "never" and core.setup.settings.on_prompt == "escalate"


def _escalation(core: Core) -> Escalation | None:
    setup = core.setup
    if not _escalates(core):
        return None
    return Escalation(
        core.bus,
        core.tasks,
        core.journal,
        core.started.shim,
        name=core.session.name,
        to=setup.settings.escalate_to,
        rings=setup.knows_agent,
    )


def _window_title(core: Core) -> WindowTitle | None:
    if not core.setup.knows_agent or core.setup.settings.title == "never":
        return None  # a plain program's terminal gets nothing but the program's output
    return WindowTitle(core.bus, core.started.shim, core.agent.terminal, name=core.session.name)


def _bus_connection(core: Core) -> BusConnection:
    setup, session = core.setup, core.session
    started = core.started
    broker = started.options.broker or setup.settings.broker or None
    named = bool(started.options.name)

    async def open(in_hand: frozenset[str]) -> MessagingClient:
        # They load in 40 ms; the session need not wait for them to be ready.
        from relay.messaging.client import MessagingClient
        from relay.messaging.name_owners import Owner

        owner = Owner.of_folder(session.directory) if named else Owner.of_run(started.run)
        return await MessagingClient.open(
            started.home,
            session.team,
            session.name,
            publish=core.bus.publish,
            broker_url=broker,
            limits=Limits.of(setup.settings),
            in_hand=in_hand,
            owner=owner,
            begins=not (started.resumed or started.restarts),
        )

    return BusConnection(core.bus, core.journal, open, name=session.name, channels=setup.channels)


def _agent_record(core: Core) -> AgentRecordWriter:
    started, session, options = core.started, core.session, core.started.options
    policy = core.supervision
    first = AgentRecord(
        session.name,
        session.team,
        core.setup.profile.name,
        policy.fresh or tuple(options.command),
        options.public(),
        str(session.directory),
        policy.fleet,
        policy.digest,
        by="spawn" if policy.parent else "up" if policy.fleet else "wrap",
        restarts=started.restarts,
        supervised=policy.restart != "no",
        session=session.id,
        parent=policy.parent,
    )
    return AgentRecordWriter(core.bus, Records(started.home), first, resumes=started.resumes)


def _supervisor(core: Core) -> Supervisor:
    policy, session = core.supervision, core.session
    return Supervisor(
        core.bus,
        core.started.shim,
        core.journal,
        core.session,
        core.progress,
        Records(core.started.home),
        policy,
        Succession(
            core.setup.profile,
            core.started.options.command,
            policy.resume,
            policy.fresh,
            converses=core.setup.profile.converses and not core.started.piped,
            env=core.started.env,
            directory=session.directory,
        ),
    )


def _usage(core: Core) -> Feature | None:
    started, session, named = core.started, core.session, core.started.record
    kind = named.kind if named is not None else core.setup.profile.native.transcript if started.bridge else ""
    if not kind:
        return None
    from relay.agents.usage_log import UsageLog
    from relay.agents.usage_reader import UsageReader
    from relay.features import usage

    if kinds.find(kind).usage(set()) is None:
        return None
    reader = UsageReader(
        kind,
        core.setup.prices or Prices.shipped(),
        began=time.time() - 1,  # the agent started a moment before its session
        named=named,
        followed=lambda fields: core.progress.note(usage.NOTE, **fields),
    )
    log = UsageLog(
        started.home.usage,
        session.id,
        session.name,
        session.team,
        agent=core.setup.profile.name,
        account=core.supervision.account,
        bus=core.bus,
    )
    return usage.UsageTracker(core.bus, core.agent.turn, reader, log, core.progress)


def _supervised(make: Factory) -> Factory:
    """Return a factory that makes the feature only in supervised sessions."""
    return lambda core: make(core) if core.supervision.attends else None


def _notebook(core: Core, section: str) -> Notebook:
    started, session = core.started, core.session
    run = "" if core.supervision.fleet else started.run
    notes = Notebook(started.home, session.team, session.name, section, run=run)
    core.bus.add(notes)
    return notes


def _bounds(core: Core) -> Bounds:
    policy = core.supervision
    if policy.restart == "no" and not policy.fleet:
        policy = replace(policy, max_unattended_turns=0)
    return Bounds(
        core.bus,
        policy,
        _notebook(core, "bounds"),
        name=core.session.name,
        life=core.session.id,
        known=core.setup.knows_agent or bool(core.started.bridge),
    )


def _first_prompt(core: Core) -> FirstPrompt | None:
    if not (text := core.supervision.prompt):
        return None
    started, parent = core.started, core.supervision.parent
    return FirstPrompt(
        core.bus,
        core.tasks,
        core.session,
        Records(started.home),
        text,
        source=parent,
        may_be_given=started.resumes or started.resumed,
    )


def _fleets(core: Core) -> Feature | None:
    if not core.supervision.fleet:
        return None
    from relay.features.fleet_keeper import FleetKeeper  # it imports all that reads a fleet file

    return FleetKeeper(core.bus, core.journal, core.started.home)


def _spawner(core: Core) -> Feature | None:
    if not core.supervision.spawns:
        return None
    from relay.features.spawner import Spawner

    home, fleet = core.started.home, Path(core.supervision.fleet)
    return Spawner(core.bus, core.tasks, core.journal, core.session, home, fleet)


def _actions(core: Core) -> Feature:
    from relay.features.action_runner import ActionRunner

    notebook = _notebook(core, "actions")
    return ActionRunner(core.bus, core.journal, core.session, core.supervision, notebook)


def _idle(core: Core) -> IdleWatch:
    settings = core.setup.settings
    return IdleWatch(core.bus, core.agent.terminal, settings.idle_seconds, most=settings.continuations)


def _idle_grace(core: Core) -> IdleGrace | None:
    policy = core.supervision
    if policy.on_idle is None and not policy.prompt:
        return None
    return IdleGrace(core.bus, core.tasks, core.agent.state, policy.idle_grace)


def _audit(core: Core) -> InjectionAudit:
    settings = core.setup.settings
    log = AuditLog(
        core.started.home.audit,
        core.session.id,
        core.session.name,
        core.session.team,
        bus=core.bus,
        full=settings.hook_output == "full",
        redactor=core.redactor,
    )
    return InjectionAudit(core.bus, core.journal, log, Budget(settings.injection_budget))


def _recorder(core: Core) -> Recorder | None:
    settings, started, session = core.setup.settings, core.started, core.session
    if settings.record == "never":
        return None
    columns, rows = started.size
    header = Header(
        columns,
        rows,
        command=shlex.join(started.options.command),
        env=started.env,
        team=session.team,
        name=session.name,
        session=session.id,
    )
    folder = started.home.recordings
    follows = started.resumed
    return Recorder(core.bus, core.agent.terminal, folder, settings, header, core.redactor, follows=follows)


FEATURES: dict[str, Factory] = {
    "notices": _notices,
    "terminals": lambda core: Terminals(
        core.bus,
        core.tasks,
        core.started.shim,
        core.agent.terminal,
        name=core.session.name,
        pid=core.started.pty.pid,
        detached=core.started.options.detached,
        prefix=core.setup.settings.detach_key,
        outlives=core.setup.profile.converses
        and core.setup.settings.on_hangup == "detach"
        and not core.started.piped,
    ),
    "output": _output_reader,
    "viewers": lambda core: Viewers(core.bus, core.agent.terminal, core.session, core.started.shim),
    "state": lambda core: StateTracker(core.bus, core.agent.state),
    "status reports": lambda core: StatusReports(
        core.bus, core.agent.status, core.started.shim, reports=core.setup.knows_agent
    ),
    "user inbox": lambda core: InboxWriter(core.bus, core.redactor, core.session),
    "pusher": lambda core: Pusher(core.bus, core.journal, core.redactor, core.session, core.setup.sinks),
    "attention": lambda core: Attention(
        core.bus, core.journal, core.agent.terminal, core.agent.state, quiet=not _escalates(core)
    ),
    "escalation": _escalation,
    "window title": _window_title,
    "native hooks": _native,
    "own record": _own_record,
    "conversation": _conversation,
    "turns": lambda core: TurnTracker(
        core.bus,
        core.tasks,
        core.agent.turn,
        core.agent.continuations,
        core.session,
        known=core.setup.knows_agent,
        hooked=bool(core.started.bridge),
        recorded=_record(core) is not None,
        named=core.started.record is not None,
    ),
    "failures": lambda core: FailureWatch(
        core.bus,
        core.journal,
        core.setup.profile,
        core.agent.terminal,
        core.agent.state,
        core.progress,
    ),
    "transcript": lambda core: TranscriptListener(
        core.bus,
        core.journal,
        knows=core.setup.registry.knows,
        meant=core.setup.registry.meant,
        prefix=core.setup.prefix,
        subagents=core.setup.settings.subagents == "act",
        joiners=DrawnJoiners() if kinds.find(core.setup.profile.native.transcript).omits_joiners else None,
    ),
    "agent version": lambda core: AgentVersion(
        core.bus,
        core.setup.profile,
        core.started.options.command,
        core.session.directory,
        core.started.env,
        core.progress,
    ),
    "rules": _rule_runner,
    "derived rules": lambda core: DerivedRules(
        core.bus, core.tasks, core.session, core.progress, hooked=bool(core.started.bridge)
    ),
    "directive log": lambda core: DirectiveLog(
        core.bus, core.journal, core.session, core.agent.terminal, core.progress
    ),
    "onboarding": _onboarding,
    "handlers": _handler_runner,
    "guards": lambda core: Guards(core.bus, core.tasks, name=core.session.name, socket=core.started.socket),
    "hook responder": lambda core: HookResponder(
        core.bus,
        core.journal,
        core.agent.turn,
        core.agent.continuations,
        Policy(core.setup.settings.allow),
    ),
    # Those that may refuse a delivery (MayBegin) come before those that record that it begins.
    "holds": lambda core: Holds(core.bus, _notebook(core, "hold"), name=core.session.name),
    "account": _supervised(
        lambda core: AccountWatch(
            core.bus,
            core.tasks,
            Accounts(core.started.home),
            account=core.supervision.account,
            name=core.session.name,
        )
    ),
    "bounds": _supervised(_bounds),
    "sender": lambda core: MessageSender(core.bus, core.journal, core.session),
    "mailbox": lambda core: Mailbox(core.bus, core.tasks, core.journal, lambda: core.agent.view.verdict),
    "peers": _peers,
    "bus": _bus_connection,
    "injector": lambda core: Injector(
        core.bus,
        core.agent.terminal,
        core.agent.view,
        directive=layout.directive_pattern(core.setup.prefix, core.setup.profile.decoration),
        progress=core.progress,
        door=_door(core),
        idle=core.setup.settings.idle_seconds,
    ),
    "audit": _audit,
    "usage": _usage,
    "answers": lambda core: DialogAnswers(core.journal, core.redactor, core.agent.terminal, core.agent.state),
    "memory": lambda core: MemoryFeature(core.bus, core.tasks, core.memory),
    "supervisor": _supervisor,
    "first prompt": _first_prompt,
    "interrupted turn": _supervised(
        lambda core: InterruptedTurn(
            core.bus,
            core.tasks,
            core.session,
            Records(core.started.home),
            _notebook(core, "turn"),
            resumes=core.started.resumes,
            task=bool(core.supervision.prompt),
        )
    ),
    "fleets": _fleets,
    "spawner": _spawner,
    "turn outcome": _supervised(lambda core: TurnOutcome(core.bus, known=core.setup.knows_agent)),
    "loops": _supervised(
        lambda core: LoopWatch(
            core.bus, core.agent.terminal, name=core.session.name, draws=core.setup.knows_agent
        )
    ),
    "actions": _supervised(_actions),
    "limit dialog": _supervised(
        lambda core: LimitDialog(
            core.bus, core.journal, core.setup.profile, core.agent.terminal, core.agent.state
        )
    ),
    "gates": _supervised(
        lambda core: GateRunner(
            core.bus,
            core.tasks,
            core.journal,
            core.agent.state,
            directory=core.session.directory,
            env=core.started.env,
        )
    ),
    "idle grace": _idle_grace,
    "alarm": _supervised(
        lambda core: Alarm(
            core.bus,
            core.tasks,
            core.journal,
            _notebook(core, "escalation"),
            name=core.session.name,
            to=core.setup.settings.escalate_to,
        )
    ),
    "agent record": _agent_record,
    "idle": _idle,
    "config watch": lambda core: ConfigWatch(core.bus, core.setup.configs),
    "recorder": _recorder,
    "agent log": lambda core: AgentLog(
        core.bus,
        core.session,
        None if core.setup.settings.record == "never" else core.started.home.recordings,
        core.redactor,
    ),
    "orphans": lambda core: Orphans(),
}
"""The factories of the features by name."""

RESTORED = (
    "output",
    "state",
    "status reports",
    "native hooks",
    "own record",
    "turns",
    "transcript",
    "agent version",
    "injector",
    "usage",
)
"""The features that a later session of an agent restores from the ring, the agent's record, and notes."""
