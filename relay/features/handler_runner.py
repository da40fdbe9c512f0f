"""Runs the handlers of directives and events, the built-in ones and the user's own.

DirectiveRead ─→ a queue for each kind ─→ Runner ─→ results ─→ Inject, Notify
an event      ─→ a queue for each name ─→ Runner ─┘
Consult       ─────────────────────────→ Runner ─→ results, the answer to Consult
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from relay.agents.hook_event import NativeName
from relay.dataclass import replace
from relay.directives.directive import Directive
from relay.directives.events import (
    AgentSaid,
    DirectiveBegun,
    DirectiveFailed,
    DirectiveRead,
    DirectiveRecognized,
    EarlierWords,
    SessionResumed,
)
from relay.directives.hearing import EarlierSessions
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.hooks import events
from relay.hooks.apply import apply, notify
from relay.hooks.commands import HandlerPrinted, HandlerProblem
from relay.hooks.context import MAX_OUTPUT, Context, History
from relay.hooks.events import HandlerEvent
from relay.hooks.result import HookResult, decide
from relay.hooks.runner import Runner
from relay.injection.events import Inject
from relay.injection.injection import notice
from relay.lifecycle import SessionBegan, SessionClosed, SessionReady
from relay.messaging.events import MessageExchanged, current_client
from relay.rules.events import Consult, GuardedEvents, Results
from relay.storage.journal import Journal, preview
from relay.storage.progress import Begun, Progress, digest_of
from relay.tasks import Tasks
from relay.terminal.events import AgentExited, Notify

LEDGER = 10.0
"""Seconds to wait for the ledger to say what an earlier session has sent; otherwise it is unknown."""

ORDERED_WITH = {"broadcast": "relay"}
"""Namespaces whose directives share a queue: both send messages to the same receivers."""

GUARDS: dict[NativeName, type[HandlerEvent]] = {
    NativeName.TOOL_PRE: events.ToolPre,
    NativeName.PROMPT_SUBMIT: events.PromptSubmit,
}
"""The events whose handlers may refuse something."""

PUBLISHED = (events.Prompting, events.MessageReceived, events.MessageSent, events.Idle, events.SessionEnd)
"""Events that features publish; features consult handlers about the others (Consult)."""


class HandlerRunner:
    """Runs handlers with `runner`. context: their view of the session; history: a part of it.

    hooked: the agent's own hooks were set up, and deliver what the handlers of session_start inject.
    earlier: what the agent's earlier sessions have heard.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        runner: Runner,
        context: Context,
        history: History,
        *,
        hooked: bool,
        progress: Progress,
        earlier: EarlierSessions,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._runner = runner
        self._context = context
        self._history = history
        self._hooked = hooked
        self._progress = progress
        self._earlier = earlier
        self._exited = False
        self._ready = asyncio.Event()
        self._unsaid: deque[str] = deque(maxlen=MAX_OUTPUT)

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        self._earlier.begin()
        self._tasks.queue(events.SessionStart.name, self._start())

    async def _start(self) -> None:
        """Run the handlers of session_start, once for an agent, before it gets answers and messages."""
        try:
            if self._progress.first(events.SessionStart.name):
                # Their texts are context for the agent; hooks deliver them with the first prompt.
                results = await self._fire(events.SessionStart())
                wakes = False if self._hooked else None
                apply(self._bus, results, event=events.SessionStart.name, wakes=wakes)
            if self._progress.earlier:
                await self._ask_ledger()
        finally:
            self._ready.set()
            self._bus.publish(SessionReady())

    async def _ask_ledger(self) -> None:
        """Find out which directives are done: the ledger knows which messages were sent."""
        with suppress(RelayError, TimeoutError):
            async with asyncio.timeout(LEDGER):
                client, session = await current_client(self._bus), self._context.session_id
                committed = await client.ask(lambda ledger: ledger.outbox.committed(session))
            for place, begun in self._progress.earlier.items():
                begun.done = begun.done or place in committed
                begun.repeats = begun.queue == "relay"  # nothing was committed, or it is done

    @handles(*PUBLISHED)
    def event(self, event: HandlerEvent) -> None:
        """Queue the handlers of `event` behind earlier events of its kind."""
        if self._runner.registry.for_event(event):
            self._tasks.queue(event.name, self._apply(event))

    @handles(AgentSaid)
    def said(self, event: AgentSaid) -> None:
        self._history.output.extend(event.lines)
        if self._runner.registry.for_event(events.Output):
            # A slow handler gets more lines at once, not a longer queue.
            if not self._unsaid:
                self._tasks.queue(events.Output.name, self._output())
            self._unsaid.extend(event.lines)

    async def _output(self) -> None:
        lines = "\n".join(self._unsaid)
        self._unsaid.clear()
        await self._apply(events.Output(lines))

    @handles(MessageExchanged)
    def exchanged(self, event: MessageExchanged) -> None:
        self._history.messages.append(event.message)

    @answers(Consult)
    async def consult(self, question: Consult, earlier: Sequence[Results]) -> Results | None:
        event = question.handlers
        if event is None:
            return None
        ruled = decide(result for results in earlier for result in results)
        if isinstance(event, events.ToolPre | events.PromptSubmit) and ruled.action in {"deny", "halt"}:
            # The agent might give up waiting for a slow handler, and do what was refused.
            return None
        if isinstance(event, events.ToolPre) and ruled.updated_input is not None:
            event = replace(event, tool_input=ruled.updated_input)
        return tuple(await self._fire(event))

    @answers(GuardedEvents)
    async def guarded(self, _: GuardedEvents, __: object) -> frozenset[NativeName]:
        registry = self._runner.registry
        return frozenset(name for name, event in GUARDS.items() if registry.for_event(event))

    async def _apply(self, event: HandlerEvent) -> None:
        apply(self._bus, await self._fire(event), event=event.name)

    async def _fire(self, event: HandlerEvent) -> list[HookResult]:
        """Call the handlers of `event`, and show the user their messages."""
        if isinstance(event, events.SessionEnd) and not self._first_end(event):
            return []
        results = await self._runner.fire(event, self._context)
        notify(self._bus, results)
        return results

    def _first_end(self, event: events.SessionEnd) -> bool:
        """Return False if an earlier session has begun to call the handlers of `event`."""
        if not self._runner.registry.for_event(event) or self._progress.first(event.name):
            return True
        text = f"the handlers of {event.name} had started when the session ended, and are not called again."
        self._bus.publish(Notify(text))
        return False

    @handles(SessionResumed, EarlierWords)
    def said_earlier(self, event: EarlierWords) -> None:
        """Act on what earlier sessions have heard, and have not acted on. Handlers get none of the text."""
        for each in event.said:
            self._history.output.extend(each.lines)
        self._earlier.read()
        for directive in event.directives:
            if self._earlier.heard(directive):
                self._queue(directive)
            else:
                self._pass_over(directive)

    @handles(DirectiveRead)
    def directive(self, event: DirectiveRead) -> None:
        self._queue(event.directive)

    def _queue(self, directive: Directive) -> None:
        namespace = directive.namespace
        self._tasks.queue(f"@{ORDERED_WITH.get(namespace, namespace)}", self._act_on(directive))

    async def _act_on(self, directive: Directive) -> None:
        await self._ready.wait()
        digest = digest_of(directive.namespace, directive.target, directive.body)
        queue = ORDERED_WITH.get(directive.namespace, directive.namespace)
        known = self._earlier.acted_on(directive, digest)
        if known is not None and (known[1].done or not known[1].repeats):
            self._leave(directive, *known)
            return
        again = None if known is None else known[0]
        if again is not None:
            self._bus.publish(DirectiveRecognized("again"))
        self._progress.begin(directive.place, digest, queue, again=again)
        self._bus.publish(DirectiveBegun())
        failed = await self._act(directive)
        # Not reached if the handlers are cancelled: the next session has to know.
        self._progress.done(directive.place, "failed" if failed else None)

    def _pass_over(self, directive: Directive) -> None:
        """Leave out a directive that the session of that time did not hear; so do later sessions."""
        digest = digest_of(directive.namespace, directive.target, directive.body)
        self._progress.begin(directive.place, digest, directive.namespace)
        self._progress.done(directive.place)
        self._bus.publish(DirectiveRecognized("done"))

    def _leave(self, directive: Directive, place: str, begun: Begun) -> None:
        """Skip a directive that an earlier session has acted on, or may have acted on: nobody can tell."""
        self._bus.publish(DirectiveRecognized("done" if begun.done else "unknown"))
        if not begun.done:
            what = f"@{directive.namespace}:{directive.target}"
            text = (
                f"{what} had started when the session ended; its outcome is unknown, and it is not repeated."
            )
            self._bus.publish(Notify(text))
            self._progress.done(place, "unknown")

    async def _act(self, directive: Directive) -> bool:
        """Call the handlers of `directive`; return True if they failed."""
        self._journal.write(
            "directive",
            namespace=directive.namespace,
            target=directive.target,
            body=preview(directive.body),
            place=str(directive.place),
        )
        outcome = await self._runner.dispatch(directive, self._context)
        notify(self._bus, outcome.results)
        apply(self._bus, outcome.results, source=f"@{directive.namespace}:{directive.target}")
        for error in outcome.errors:
            self._journal.write("directive_failed", namespace=directive.namespace, error=error)
            self._bus.publish(Notify(error) if self._exited else Inject(notice(error)))
        if outcome.errors:
            self._bus.publish(DirectiveFailed())
        return bool(outcome.errors)

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        """Report errors to the user from now on: nothing reaches the agent any more."""
        self._exited = True

    @handles(HandlerProblem)
    def problem(self, event: HandlerProblem) -> None:
        problem, text = event.problem, str(event.problem)
        self._journal.write("handler_problem", handler=problem.handler, kind=problem.kind, problem=text)
        self._bus.publish(Notify(text, keep=False))

    @handles(HandlerPrinted)
    def printed(self, event: HandlerPrinted) -> None:
        self._journal.write("handler_printed", handler=event.handler, text=preview(event.text))

    @answers(SessionClosed)
    async def close(self, _: SessionClosed, __: object) -> None:
        self._runner.close()
