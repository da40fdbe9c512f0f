"""What the agent's own hooks are answered: rules and handlers have their say, and what waits rides along.

    NativeEvent ─→ rules ─→ handlers ─→ Decision ─┐
                                                  ├→ Reply ─→ Answered
    the lesson, the head of the injection queue ──┘

Rules come before handlers: what a rule makes of a tool's input is what handlers see.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from relay.agents.hook_event import NativeEvent, NativeName, prompt_kind
from relay.agents.hook_reply import Answered, Fate, Reply, carries, render
from relay.hooks import events
from relay.hooks.result import Decision, HookResult, decide, injected
from relay.injection.injection import Injection, Outcome, Result, Role
from relay.injection.queue import Injector
from relay.policy import Policy
from relay.rules import aggregate
from relay.rules.aggregate import Fired
from relay.rules.event import RuleEvent, from_native
from relay.session.continuation import GO_ON, Continuation, Ending
from relay.session.turn import Turn
from relay.storage.journal import Journal, preview

ROOM = 9_000
"""Bytes of one reply: Claude Code puts strings of more than 10,000 characters into a file."""


class Host(Protocol):
    """The session, as far as answering needs it."""

    async def ask(self, event: events.Event) -> list[HookResult]:
        """Have the handlers of `event` called; what they tell the person is told already."""
        ...

    async def fire(self, event: RuleEvent | None) -> Fired:
        """Run the rules for `event`; what they tell the person is told already."""
        ...

    def note(self, fired: Fired, outcome: str = "", **fields: Any) -> None:
        """Write down what came of rules."""
        ...

    def observe(self, event: RuleEvent | None) -> None:
        """Run the rules for `event` without anybody waiting for them."""
        ...

    def inject(self, result: HookResult, *, event: str, place: str = "", wakes: bool | None = None) -> None:
        """Queue the text of `result`, if it has one; `wakes` in place of its own word."""
        ...


class Replies:
    """The answers to one agent's hooks. All methods belong to the event loop's thread.

    lesson: what the agent is to be told when it joins, None where it is not to be.
    """

    def __init__(
        self,
        host: Host,
        injector: Injector,
        journal: Journal,
        turn: Turn,
        continuation: Continuation,
        *,
        policy: Policy,
        lesson: Callable[[], str] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._injector = injector
        self._journal = journal
        self._turn = turn
        self._continuation = continuation
        self._policy = policy
        self._lesson = lesson
        self._lesson_due = lesson is not None
        self._clock = clock

    def lesson(self) -> str | None:
        """What the agent is still to be told; it counts as told."""
        if not self._lesson_due or self._lesson is None:
            return None
        self._lesson_due = False
        return self._lesson()

    async def answer(self, event: NativeEvent) -> Answered:
        """What `event`, which has been noted, is answered."""
        # A subagent's prompt and end are its own; its tools are guarded as the agent's are.
        method = _ANSWERS.get(event.name) if not event.agent_id or event.name in _TOOLS else None
        return await method(self, event) if method else Answered("")

    async def guard(self, event: NativeEvent) -> Answered:
        """What an agent is answered that ours has started: rules guard its tools, no more is said."""
        if event.name is not NativeName.TOOL_PRE:
            return Answered("")
        fired = await self._host.fire(from_native(event))
        self._host.note(fired, tool=event.tool_name)
        decision = decide(fired.results)
        return self._reply(event, _reply_of(decision) if decision.refused else Reply())

    def agent_end(self, event: NativeEvent, *, success: bool) -> events.AgentEnd:
        """The end of the turn, for handlers."""
        return events.AgentEnd(
            messages=tuple(self._turn.messages),
            success=success,
            last_assistant_message=event.last_assistant_message or None,
            error=None if success else event.error or "the agent's model failed",
            duration_ms=(self._clock() - self._turn.began) * 1000 if self._turn.began else None,
        )

    # One method for each event.

    async def _session_start(self, event: NativeEvent) -> Answered:
        if event.source in {"clear", "compact"} and self._lesson is not None:
            self._lesson_due = True  # what it was told is forgotten
        fired = await self._host.fire(from_native(event))
        self._host.note(fired)
        self._queue(event, fired, wakes=False)
        return self._with_context(event, messages=False)  # it begins no turn, in which one would be read

    async def _session_end(self, event: NativeEvent) -> Answered:
        self._host.observe(from_native(event))  # the agent gives it little time
        return Answered("")

    async def _notification(self, event: NativeEvent) -> Answered:
        self._host.observe(from_native(event))
        return Answered("")

    async def _prompt_submit(self, event: NativeEvent) -> Answered:
        messages = event.agent not in _FORGETTING
        if not event.prompt:
            return self._with_context(event, messages=messages)
        ours = self._injector.submitted(event.prompt)
        fired = await self._host.fire(None if ours else from_native(event))  # of ours, before it was typed
        results = await self._ask_about(fired, events.PromptSubmit(prompt=event.prompt))
        self._host.note(fired, **prompt_fields(fired))
        decision = decide([*fired.results, *results])
        if decision.refused:
            self._turn.end()
            return self._reply(event, _reply_of(replace(decision, reason=_marked(fired, decision))))
        self._queue(event, fired, results)
        return self._with_context(event, messages=messages)

    async def _tool_pre(self, event: NativeEvent) -> Answered:
        why = self._turn.halted
        if why:
            return self._reply(event, Reply(deny=why))
        fired = await self._host.fire(from_native(event))
        changed = decide(fired.results).updated_input
        results = await self._ask_about(
            fired,
            events.ToolPre(
                event.tool_name,
                event.tool_input if changed is None else changed,
                event.tool_use_id or None,
            ),
        )
        self._host.note(fired, tool=event.tool_name)
        decision = decide([*fired.results, *results])
        why = self._turn.halted  # by what was said meanwhile of another call
        if decision.action == "halt":
            self._turn.halted = why or decision.reason
        self._queue(event, fired, results, wakes=False if self._turn.halted else None)
        if why:
            return self._reply(event, Reply(deny=why))
        given = event.tool_input if decision.updated_input is None else decision.updated_input
        called = replace(event, tool_input=given)
        if decision.refused:
            self._journal.write(
                "denied", tool=event.tool_name, action=decision.action, reason=preview(decision.reason)
            )
            if decision.action == "ask":
                self._turn.reserve(called)
        elif decision.allowed:
            self._allow(called)
        return self._with_context(event, reply=_reply_of(decision))

    async def _permission(self, event: NativeEvent) -> Answered:
        """Spare the person what they, or a rule, have allowed: never a plan, a question, or what a rule has
        asked them about."""
        if prompt_kind(event.tool_name) is not None or self._turn.reserves(event):
            return Answered("")
        if self._turn.halted:
            return self._reply(event, Reply(deny=self._turn.halted))
        if self._turn.allows(event):
            return self._reply(event, Reply(allow=True))
        rule = self._policy.allows(event.tool_name, event.tool_input)
        if rule is None:
            return Answered("")
        self._allow(event, rule)
        return self._reply(event, Reply(allow=True))

    def _allow(self, event: NativeEvent, rule: str | None = None) -> None:
        """Nobody is asked about this call; `rule`: of the person's settings, which said so."""
        self._journal.write("allowed", tool=event.tool_name, input=preview(str(event.tool_input)), rule=rule)
        self._turn.allow(event)

    async def _tool_post(self, event: NativeEvent) -> Answered:
        fired = await self._host.fire(from_native(event))
        results = await self._host.ask(
            events.ToolPost(
                event.tool_name,
                event.tool_input,
                tool_response=event.tool_response,
                error=(event.error or "it failed") if event.name is NativeName.TOOL_FAILED else None,
                duration_ms=event.duration_ms or None,
                tool_use_id=event.tool_use_id or None,
            )
        )
        self._host.note(fired, tool=event.tool_name)
        decision = decide([*fired.results, *results])
        if decision.action == "halt":
            self._turn.halted = decision.reason
        # What a turn is told that was stopped begins no other.
        self._queue(event, fired, results, wakes=False if self._turn.halted else None)
        if decision.action != "halt":
            return self._with_context(event)
        if "halt" not in carries(event.agent, event.name):
            why = HookResult.inject(decision.reason, source="relay")
            self._host.inject(why, event=event.event, wakes=False)
        return self._with_context(event, reply=Reply(halt=decision.reason))

    async def _stop(self, event: NativeEvent) -> Answered:
        going, ending = self._continuation, self._continuation.ending
        fired = await self._host.fire(from_native(event, **ending.facts()))
        results = await self._host.ask(self.agent_end(event, success=True))
        every = [*fired.results, *results]
        decision = decide(every)
        halted = decision.action == "halt" or ending.halted
        wanted = not halted and (bool(injected(every)) or any(each.force_continue for each in every))
        self._host.note(fired, stop_outcome(fired, ending), **stop_fields(fired, ending))
        if wanted and ending.capped:
            going.refuse(injected(every) or [GO_ON])
        elif wanted:
            self._queue(event, fired, results)
            if not injected(every):
                source = next(each.source for each in every if each.force_continue)
                self._host.inject(HookResult.inject(GO_ON, source=source), event=event.event)
        goes_on = not halted and not ending.capped and "go_on" in carries(event.agent, event.name)
        taken = self._injector.take(ROOM, extends=True) if goes_on else []
        if not taken:
            self._turn.end()
            if wanted and not ending.capped:
                self._turn.will_go_on((injected(every) or [GO_ON])[-1])
            return self._reply(event, Reply(halt=decision.reason if decision.action == "halt" else None))
        text = self._injector.render_native(taken)
        answered = self._reply(event, Reply(go_on=text), taken, role="user")
        return replace(answered, settle=going.begin(text, answered.settle))

    async def _stop_failure(self, event: NativeEvent) -> Answered:
        results = await self._host.ask(self.agent_end(event, success=False))
        for result in results:
            self._host.inject(result, event=event.event)
        return Answered("")

    async def _compact(self, event: NativeEvent) -> Answered:
        told = from_native(event, compaction_type=None)
        fired = await self._host.fire(told)
        self._host.note(fired, compaction_type=None, trigger=event.trigger)
        await self._host.ask(events.Compact(trigger=event.trigger))
        return Answered("")

    # What they share.

    async def _ask_about(self, fired: Fired, event: events.Event) -> list[HookResult]:
        """What handlers say to what is about to happen. They are not asked where rules have refused it: while
        a slow one thought, the agent would give up waiting, and do it."""
        return [] if decide(fired.results).action in {"deny", "halt"} else await self._host.ask(event)

    def _queue(
        self,
        event: NativeEvent,
        fired: Fired,
        results: Sequence[HookResult] = (),
        *,
        wakes: bool | None = None,
    ) -> None:
        """Queue what rules, and then handlers, inject."""
        for ran in fired.ran:
            for result in ran.results:
                self._host.inject(result, event=fired.event.name, place=ran.rule.place, wakes=wakes)
        for result in results:
            self._host.inject(result, event=event.event, wakes=wakes)

    def _with_context(
        self, event: NativeEvent, *, messages: bool = True, reply: Reply | None = None
    ) -> Answered:
        """Answer `reply` with the lesson and what waits for the agent, its `messages` too, where the reply
        can carry it."""
        reply = reply or Reply()
        carried = carries(event.agent, event.name)
        refuses = reply.deny is not None or (reply.halt is not None and "halt" in carried)
        if "context" not in carried or event.agent_id or refuses:
            return self._reply(event, reply)  # a subagent's reply would reach the subagent
        lesson = self.lesson()
        taken = self._injector.take(ROOM - (len(lesson.encode()) if lesson else 0), messages=messages)
        parts = [part for part in (lesson, self._injector.render_native(taken) if taken else None) if part]
        if not parts:
            return self._reply(event, reply)
        answered = self._reply(event, replace(reply, context="\n\n".join(parts)), taken)

        def settle(fate: Fate) -> None:
            self._lesson_due = self._lesson_due or (lesson is not None and fate is not Fate.PRINTED)
            answered.settle(fate)

        return replace(answered, settle=settle)

    def _reply(
        self, event: NativeEvent, reply: Reply, taken: Sequence[Injection] = (), *, role: Role = "system"
    ) -> Answered:
        """`reply` as the agent's protocol has it; what was `taken` is delivered once it was printed."""

        def settle(fate: Fate) -> None:
            if fate is Fate.UNSENT:
                self._injector.put_back(taken)
                return
            outcome = Outcome(Result.INJECTED, route="native", role=role)
            if fate is Fate.UNKNOWN:
                why = "the agent's hook passed it on, and nothing shows that the agent read it"
                outcome = replace(outcome, result=Result.UNCERTAIN, detail=why)
            for injection in taken:
                self._injector.delivered(injection, outcome)

        return Answered(render(event, reply), settle)


def prompt_fields(fired: Fired) -> dict[str, Any]:
    """What "hook_fired" says of UserPromptSubmit beside the rest."""
    result = aggregate.user_prompt_submit(fired)
    return {
        "blocking_error": result.blocking_error,
        "stop_reason": result.stop_reason,
        "added_context_count": len(result.additional_contexts),
    }


def stop_fields(fired: Fired, ending: Ending) -> dict[str, Any]:
    """What "hook_fired" says of Stop beside the rest."""
    result = aggregate.stop(fired)
    return {
        "turn_end_reason": ending.turn_end_reason,
        "at_max_iter": ending.at_max_iter,
        "added_context_count": len(result.additional_contexts),
        "suppress_output": result.suppress_output,
    }


def stop_outcome(fired: Fired, ending: Ending) -> str:
    """What came of Stop: whether the rules have the agent go on, and whether that is the last time (R31)."""
    outcome = aggregate.outcome(fired)
    if outcome != "continue":
        return outcome
    if ending.capped:
        return "reentry_capped"
    return "continue_at_max_iter" if ending.at_max_iter else "continue"


def _marked(fired: Fired, decision: Decision) -> str:
    """Why a prompt is refused, marked so that nobody takes it for the agent's answer (R39)."""
    marker = aggregate.user_prompt_submit(fired).marker
    if marker is not None:
        return marker
    return f"[{'Hook stopped' if decision.action == 'halt' else 'Blocked by hook'}] {decision.reason}"


def _reply_of(decision: Decision) -> Reply:
    """What the agent is told of `decision`."""
    match decision.action:
        case "halt":
            return Reply(halt=decision.reason)
        case "deny":
            return Reply(deny=decision.reason)
        case "ask":
            return Reply(ask=decision.reason, input=decision.updated_input)
        case _:
            return Reply(allow=decision.allowed, input=decision.updated_input)


_FORGETTING = frozenset({"claude"})
"""Kinds of agents that forget a prompt, and what rode on the reply to its hook, when their person takes it
back: Esc before the answer begins (Claude Code 2.1.197)."""

_TOOLS = frozenset({NativeName.TOOL_PRE, NativeName.PERMISSION, NativeName.TOOL_POST, NativeName.TOOL_FAILED})

_ANSWERS: dict[NativeName, Callable[[Replies, NativeEvent], Awaitable[Answered]]] = {
    NativeName.SESSION_START: Replies._session_start,
    NativeName.SESSION_END: Replies._session_end,
    NativeName.NOTIFICATION: Replies._notification,
    NativeName.PROMPT_SUBMIT: Replies._prompt_submit,
    NativeName.TOOL_PRE: Replies._tool_pre,
    NativeName.PERMISSION: Replies._permission,
    NativeName.TOOL_POST: Replies._tool_post,
    NativeName.TOOL_FAILED: Replies._tool_post,
    NativeName.STOP: Replies._stop,
    NativeName.STOP_FAILURE: Replies._stop_failure,
    NativeName.COMPACT: Replies._compact,
}
