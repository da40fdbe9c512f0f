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
from typing import TYPE_CHECKING, TypeVar

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

T = TypeVar("T")

Feature = object
"""Any object with methods that handle events, answer questions or are operations. Its `run`, if it has one,
starts with the session and is cancelled at the session's end."""

Factory = Callable[[Core], Feature | None]
"""Makes a feature, or returns None if the session does not need it."""

PARTS: dict[str, Callable[[Core], object]] = {
    "account": lambda core: core.supervision.account,
    "bus": lambda core: core.bus,
    "continuations": lambda core: core.agent.continuations,
    "directory": lambda core: core.session.directory,
    "env": lambda core: core.started.env,
    "escalate_to": lambda core: core.setup.settings.escalate_to,
    "home": lambda core: core.started.home,
    "hooked": lambda core: bool(core.started.bridge),
    "journal": lambda core: core.journal,
    "known": lambda core: core.setup.knows_agent,
    "knows": lambda core: core.setup.registry.knows,
    "meant": lambda core: core.setup.registry.meant,
    "name": lambda core: core.session.name,
    "policy": lambda core: core.supervision,
    "prefix": lambda core: core.setup.prefix,
    "profile": lambda core: core.setup.profile,
    "progress": lambda core: core.progress,
    "records": lambda core: Records(core.started.home),
    "redactor": lambda core: core.redactor,
    "resumes": lambda core: core.started.resumes,
    "session": lambda core: core.session,
    "settings": lambda core: core.setup.settings,
    "shim": lambda core: core.started.shim,
    "socket": lambda core: core.started.socket,
    "state": lambda core: core.agent.state,
    "statuses": lambda core: core.agent.status,
    "subagents": lambda core: core.setup.settings.subagents == "act",
    "tasks": lambda core: core.tasks,
    "terminal": lambda core: core.agent.terminal,
    "turn": lambda core: core.agent.turn,
    "view": lambda core: core.agent.view,
}
"""The arguments that features get by the names of their parameters; each name has one meaning."""


def make(core: Core, kind: Callable[..., T], /, **own: object) -> T:
    """Return a feature of this `kind`. own: its other arguments, and any in place of a part."""
    code = kind.__init__.__code__  # inspect.signature takes 50 times as long
    parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return kind(**{name: PARTS[name](core) for name in parameters if name in PARTS and name not in own} | own)


def of(kind: Callable[..., Feature]) -> Factory:
    """Return the factory of a feature whose arguments are all in PARTS."""
    return lambda core: make(core, kind)


def _notices(core: Core) -> Notices:
    notes = [core.started.bridge_note]
    if (unavailable := core.agent.reader.unavailable) is not None:
        notes.append(f"{unavailable} relay reads only what the agent prints as lines.")
    if core.started.shim.hello.skip:
        notes.append("part of the agent's output crashed two sessions, so relay skips it.")
    first = (*core.setup.notices, *filter(None, notes))
    told = frozenset(core.started.told)
    mistakes = core.setup.notices
    return make(core, Notices, first=first, mistakes=mistakes, told=told, noticed=core.noticed)


def _output_reader(core: Core) -> OutputReader:
    setup, agent = core.setup, core.agent
    return make(
        core,
        OutputReader,
        reader=agent.reader,
        grammar=Grammar.of_terminal(
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
    earlier = EarlierSessions(core.progress, hearing, started.shim.ring.joined.offset)
    return make(core, HandlerRunner, runner=runner, context=context, history=history, earlier=earlier)


def _memory(core: Core) -> MemoryStore | RelayError:
    return core.memory if "memory" in FEATURES else RelayError("memory is switched off in this session.")


def _rule_runner(core: Core) -> RuleRunner:
    return make(
        core,
        RuleRunner,
        rules=core.setup.rules,
        engine=Engine(core.session.directory, core.started.env, core.bus),
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
    return make(
        core,
        NativeHooks,
        kind=core.started.bridge,
        note=core.started.bridge_note,
        record=_record(core),
        most=core.setup.settings.continuations,
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
    listing = kinds.find(core.started.bridge).peers(_site(core))
    return make(core, Peers, listing=listing, shows=core.setup.settings.peers == "auto")


def _own_record(core: Core) -> Feature | None:
    if core.started.record is None:
        return None
    from relay.features.own_record import OwnRecord

    return make(core, OwnRecord, named=core.started.record)


def _conversation(core: Core) -> ConversationTracker:
    started = core.started
    lineage = Lineage(started.pty.pid, started.pty.leader, os.getpid())
    return make(core, ConversationTracker, command=started.command, lineage=lineage, record=started.record)


def _onboarding(core: Core) -> Onboarding | None:
    if not core.setup.teaches or core.started.resumed:
        return None  # an earlier session has taught the agent
    on_screen = core.setup.acts_on("relay")
    if not (on_screen or core.started.record is not None or _record(core) is not None):
        return None
    return make(
        core,
        Onboarding,
        template=core.setup.onboarding,
        on_screen=on_screen,
        spawns=core.supervision.spawns,
        tools=core.started.mcp,
    )


def _escalates(core: Core) -> bool:
    # A shell's questions come from the commands of the user at its terminal.
    return core.setup.profile.inject != "never" and core.setup.settings.on_prompt == "escalate"


def _escalation(core: Core) -> Escalation | None:
    return make(core, Escalation) if _escalates(core) else None


def _window_title(core: Core) -> WindowTitle | None:
    if not core.setup.knows_agent or core.setup.settings.title == "never":
        return None  # a plain program's terminal gets nothing but the program's output
    return make(core, WindowTitle)


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

    return make(core, BusConnection, open=open, channels=setup.channels)


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
    return make(core, AgentRecordWriter, first=first)


def _supervisor(core: Core) -> Supervisor:
    succession = make(
        core,
        Succession,
        command=core.started.options.command,
        resume=core.supervision.resume,
        fresh=core.supervision.fresh,
        converses=core.setup.profile.converses and not core.started.piped,
    )
    return make(core, Supervisor, succession=succession)


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
    return make(core, usage.UsageTracker, reader=reader, log=log)


def _supervised(make: Factory) -> Factory:
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
    known = core.setup.knows_agent or bool(core.started.bridge)
    notes = _notebook(core, "bounds")
    return make(core, Bounds, policy=policy, notes=notes, life=core.session.id, known=known)


def _first_prompt(core: Core) -> FirstPrompt | None:
    if not (text := core.supervision.prompt):
        return None
    given = core.started.resumes or core.started.resumed
    return make(core, FirstPrompt, text=text, source=core.supervision.parent, may_be_given=given)


def _fleets(core: Core) -> Feature | None:
    if not core.supervision.fleet:
        return None
    from relay.features.fleet_keeper import FleetKeeper  # it imports all that reads a fleet file

    return make(core, FleetKeeper)


def _spawner(core: Core) -> Feature | None:
    if not core.supervision.spawns:
        return None
    from relay.features.spawner import Spawner

    return make(core, Spawner, fleet=Path(core.supervision.fleet))


def _actions(core: Core) -> Feature:
    from relay.features.action_runner import ActionRunner

    return make(core, ActionRunner, notes=_notebook(core, "actions"))


def _idle(core: Core) -> IdleWatch:
    settings = core.setup.settings
    return make(core, IdleWatch, seconds=settings.idle_seconds, most=settings.continuations)


def _idle_grace(core: Core) -> IdleGrace | None:
    policy = core.supervision
    if policy.on_idle is None and not policy.prompt:
        return None
    return make(core, IdleGrace, seconds=policy.idle_grace)


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
    return make(core, InjectionAudit, log=log, budget=Budget(settings.injection_budget))


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
    return make(core, Recorder, folder=started.home.recordings, header=header, follows=started.resumed)


def _terminals(core: Core) -> Terminals:
    settings, started = core.setup.settings, core.started
    may_outlive = core.setup.profile.converses and not started.piped
    return make(
        core,
        Terminals,
        pid=started.pty.pid,
        detached=started.options.detached,
        detach_key=settings.detach_key,
        outlives=may_outlive and settings.on_hangup == "detach",
    )


def _joiners(core: Core) -> DrawnJoiners | None:
    return DrawnJoiners() if kinds.find(core.setup.profile.native.transcript).omits_joiners else None


def _injector(core: Core) -> Injector:
    directive = layout.directive_pattern(core.setup.prefix, core.setup.profile.decoration)
    idle = core.setup.settings.idle_seconds
    return make(core, Injector, directive=directive, door=_door(core), idle=idle)


def _interrupted_turn(core: Core) -> InterruptedTurn:
    return make(core, InterruptedTurn, notes=_notebook(core, "turn"), task=bool(core.supervision.prompt))


def _agent_log(core: Core) -> AgentLog:
    folder = None if core.setup.settings.record == "never" else core.started.home.recordings
    return make(core, AgentLog, folder=folder)


FEATURES: dict[str, Factory] = {
    "notices": _notices,
    "terminals": _terminals,
    "output": _output_reader,
    "viewers": of(Viewers),
    "state": of(StateTracker),
    "status reports": of(StatusReports),
    "user inbox": of(InboxWriter),
    "pusher": lambda core: make(core, Pusher, user_sinks=core.setup.sinks),
    "attention": lambda core: make(core, Attention, quiet=not _escalates(core)),
    "escalation": _escalation,
    "window title": _window_title,
    "native hooks": _native,
    "own record": _own_record,
    "conversation": _conversation,
    "turns": lambda core: make(
        core, TurnTracker, recorded=_record(core) is not None, named=core.started.record is not None
    ),
    "failures": of(FailureWatch),
    "transcript": lambda core: make(core, TranscriptListener, joiners=_joiners(core)),
    "agent version": lambda core: make(core, AgentVersion, argv=core.started.options.command),
    "rules": _rule_runner,
    "derived rules": of(DerivedRules),
    "directive log": of(DirectiveLog),
    "onboarding": _onboarding,
    "handlers": _handler_runner,
    "guards": of(Guards),
    "hook responder": lambda core: make(core, HookResponder, allowed=Policy(core.setup.settings.allow)),
    # Those that may refuse a delivery (MayBegin) come before those that record that it begins.
    "holds": lambda core: make(core, Holds, notes=_notebook(core, "hold")),
    "account": _supervised(lambda core: make(core, AccountWatch, accounts=Accounts(core.started.home))),
    "bounds": _supervised(_bounds),
    "sender": of(MessageSender),
    "mailbox": lambda core: make(core, Mailbox, verdict=lambda: core.agent.view.verdict),
    "peers": _peers,
    "bus": _bus_connection,
    "injector": _injector,
    "audit": _audit,
    "usage": _usage,
    "answers": of(DialogAnswers),
    "memory": lambda core: make(core, MemoryFeature, store=core.memory),
    "supervisor": _supervisor,
    "first prompt": _first_prompt,
    "interrupted turn": _supervised(_interrupted_turn),
    "fleets": _fleets,
    "spawner": _spawner,
    "turn outcome": _supervised(of(TurnOutcome)),
    "loops": _supervised(of(LoopWatch)),
    "actions": _supervised(_actions),
    "limit dialog": _supervised(of(LimitDialog)),
    "gates": _supervised(of(GateRunner)),
    "idle grace": _idle_grace,
    "alarm": _supervised(of(Alarm)),
    "agent record": _agent_record,
    "idle": _idle,
    "config watch": lambda core: make(core, ConfigWatch, configs=core.setup.configs),
    "recorder": _recorder,
    "agent log": _agent_log,
    "orphans": of(Orphans),
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
