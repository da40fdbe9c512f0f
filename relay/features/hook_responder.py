"""Answers the agent's own hooks with the decisions of rules and handlers, and with waiting texts.

NativeEvent ─→ Consult: rules, then handlers ─→ Decision ─┐
                                                          ├→ Reply ─→ Answered
Contribute: onboarding, the head of the injection queue ──┘
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.agents import kinds
from relay.agents.events import HookAsked, HookReported
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Answered, Reply, ReplyOutcome, Settle
from relay.agents.kind import AgentKind
from relay.dataclass import replace
from relay.eventbus import EventBus, answers, handles
from relay.hooks import events
from relay.hooks.apply import apply
from relay.hooks.events import HandlerEvent
from relay.hooks.result import Decision, HookResult, decide, refused_prompt
from relay.injection.events import Contribute, Contribution, Recognition, Recognize
from relay.lifecycle import LastWords
from relay.policy import Policy
from relay.rules.event import RuleEvent, from_native
from relay.rules.events import Consult, Observe
from relay.rules.turn_end import Ending, agent_end, decide_stop
from relay.state.continuations import Continuations
from relay.state.turn import TOOL_EVENTS, Turn
from relay.storage.journal import Journal, preview

ROOM = 9_000
"""Bytes of one reply: Claude Code puts strings of more than 10,000 characters into a file."""

_REPEATED = "relay has already given this text to the agent."

_BESIDE = frozenset({NativeName.SESSION_START, NativeName.SESSION_END, NativeName.NOTIFICATION})
"""Events that do not prove that the agent has read the text of a continuation."""


class HookResponder:
    """Answers the hooks of one agent. allowed: the tool calls that the user allows in advance."""

    def __init__(
        self, bus: EventBus, journal: Journal, turn: Turn, continuations: Continuations, allowed: Policy
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._turn = turn
        self._continuations = continuations
        self._allowed = allowed

    @answers(HookAsked)
    async def answer(self, question: HookAsked, _: object) -> Answered:
        event = question.event
        if question.nested:
            return await self._guard(event)
        if event.agent_id and event.name not in TOOL_EVENTS:
            return Answered("")  # of a subagent's events, only tool calls matter
        match event.name:
            case NativeName.SESSION_START:
                return await self._session_start(event)
            case NativeName.PROMPT_SUBMIT:
                return await self._prompt_submit(event)
            case NativeName.TOOL_PRE:
                return await self._tool_pre(event)
            case NativeName.PERMISSION:
                return self._permission(event)
            case NativeName.TOOL_POST | NativeName.TOOL_FAILED:
                return await self._tool_post(event)
            case NativeName.STOP:
                return await self._stop(event)
            case NativeName.STOP_FAILURE:
                failed = agent_end(self._turn, last=event.last_assistant_message, error=event.error)
                apply(self._bus, await self._consult(None, failed), event=event.event)
            case NativeName.COMPACT:
                rules = from_native(event, compaction_type=None)
                results = await self._consult(rules, events.Compact(trigger=event.trigger))
                apply(self._bus, results, event=event.event)
            case NativeName.SESSION_END | NativeName.NOTIFICATION:
                if (observed := from_native(event)) is not None:
                    self._bus.publish(Observe(observed))  # the agent does not wait long for these
        return Answered("")

    async def _guard(self, event: NativeEvent) -> Answered:
        """Answer an agent that this one has started: rules guard its tool calls, and it gets nothing else."""
        if event.name is not NativeName.TOOL_PRE:
            return Answered("")
        decision = decide(await self._consult(from_native(event)))
        return Answered(_kind(event).render(event, _reply_of(decision) if decision.refused else Reply()))

    async def _session_start(self, event: NativeEvent) -> Answered:
        results = await self._consult(from_native(event))
        apply(self._bus, results, event=event.event, wakes=False)
        return await self._with_context(event, messages=False)  # no turn begins that would read them

    async def _prompt_submit(self, event: NativeEvent) -> Answered:
        messages = not _kind(event).forgets_prompts
        if not event.prompt:
            return await self._with_context(event, messages=messages)
        known = next(iter(await self._bus.ask(Recognize(event.prompt))), Recognition())
        if known.repeated:
            self._turn.end()
            return Answered(_kind(event).render(event, Reply(deny=_REPEATED)))
        # Rules have seen relay's own before it was given.
        rules = None if known.ours else from_native(event)
        results = await self._consult(rules, events.PromptSubmit(prompt=event.prompt))
        decision = decide(results)
        if decision.refused:
            self._turn.end()
            reason = refused_prompt(results) or decision.reason
            return Answered(_kind(event).render(event, _reply_of(replace(decision, reason=reason))))
        apply(self._bus, results, event=event.event)
        return await self._with_context(event, messages=messages, first=known.sender)

    async def _tool_pre(self, event: NativeEvent) -> Answered:
        if (stopped := self._stopped(event)) is not None:
            return stopped
        call = events.ToolPre(event.tool_name, event.tool_input, event.tool_use_id or None)
        results = await self._consult(from_native(event), call)
        decision = decide(results)
        stopped = self._stopped(event)  # another call may have stopped the turn meanwhile
        if decision.action == "halt" and stopped is None:
            self._turn.halt(decision.reason)
        apply(self._bus, results, event=event.event, wakes=False if self._turn.halted else None)
        if stopped is not None:
            return stopped
        given = event.tool_input if decision.updated_input is None else decision.updated_input
        called = replace(event, tool_input=given)
        if decision.refused:
            why = preview(decision.reason)
            self._journal.write("denied", tool=event.tool_name, action=decision.action, reason=why)
            if decision.action == "ask":
                self._turn.tools.reserve(called)
        elif decision.allowed:
            self._allow(called)
        return await self._with_context(event, reply=_reply_of(decision))

    def _stopped(self, event: NativeEvent) -> Answered | None:
        """Return the denial of a call if the turn was stopped, else None."""
        why = self._turn.halted
        return Answered(_kind(event).render(event, Reply(deny=why))) if why else None

    def _permission(self, event: NativeEvent) -> Answered:
        """Allow the call if the user or a rule has allowed it in advance.

        Plans, questions, and calls that a rule has reserved for the user are left to the user.
        """
        if _kind(event).dialogs.get(event.tool_name) is not None or self._turn.tools.reserves(event):
            return Answered("")
        if (stopped := self._stopped(event)) is not None:
            return stopped
        if not self._turn.tools.allows(event):
            rule = self._allowed.allows(event.tool_name, event.tool_input)
            if rule is None:
                return Answered("")
            self._allow(event, rule)
        return Answered(_kind(event).render(event, Reply(allow=True)))

    def _allow(self, event: NativeEvent, rule: str | None = None) -> None:
        """Let the call through without asking the user. rule: the setting that allows it, if it was one."""
        self._journal.write("allowed", tool=event.tool_name, input=preview(str(event.tool_input)), rule=rule)
        self._turn.allow(event)

    async def _tool_post(self, event: NativeEvent) -> Answered:
        failed = event.name is NativeName.TOOL_FAILED
        results = await self._consult(
            from_native(event),
            events.ToolPost(
                event.tool_name,
                event.tool_input,
                tool_response=event.tool_response,
                error=(event.error or "it failed") if failed else None,
                duration_ms=event.duration_ms or None,
                tool_use_id=event.tool_use_id or None,
            ),
        )
        decision = decide(results)
        halted = decision.action == "halt"
        if halted:
            self._turn.halt(decision.reason)
        # A text for a stopped turn must not begin another turn.
        apply(self._bus, results, event=event.event, wakes=False if self._turn.halted else None)
        if halted and "halt" not in _kind(event).carries(event.name):
            why = HookResult.inject(decision.reason, source="relay")
            apply(self._bus, [why], event=event.event, wakes=False)
        return await self._with_context(event, reply=Reply(halt=decision.reason) if halted else None)

    async def _stop(self, event: NativeEvent) -> Answered:
        ending = Ending.of(self._turn, self._continuations.most)
        reported = "last_assistant_message" in event.raw
        last = event.last_assistant_message if reported else self._turn.last_said
        rules = from_native(event, last_assistant_message=last, **ending.facts())
        results = await self._consult(rules, agent_end(self._turn, last=last), ending)
        decision = decide_stop(results, ending)
        if decision.outcome == "refuse":
            self._continuations.refuse(decision.texts[0], ending.refusal)
        elif decision.outcome == "continue":
            apply(self._bus, decision.given(results), event=event.event)
        carried = _kind(event).carries(event.name)
        may = decision.outcome != "halt" and not ending.capped and "continuation" in carried
        found = await self._bus.ask(Contribute(ROOM, extends=True)) if may else []
        if not found:
            self._turn.end()
            if decision.outcome == "continue":
                self._continuations.by_prompt(decision.texts[-1])
            return Answered(_kind(event).render(event, Reply(halt=decision.reason)))
        text = "\n\n".join(each.text for each in found)
        settle = self._continuations.by_reply(text, _together(found))
        return _answered(event, Reply(continuation=text, notice=_notice(found)), settle)

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        if event.decides and event.event.name not in _BESIDE and not event.event.agent_id:
            self._continuations.proved(True)

    @answers(LastWords)
    async def end(self, _: LastWords, __: object) -> None:
        self._continuations.proved(False)

    async def _consult(
        self, rules: RuleEvent | None, handlers: HandlerEvent | None = None, ending: Ending | None = None
    ) -> list[HookResult]:
        return await self._bus.gather(Consult(rules, handlers, ending))

    async def _with_context(
        self, event: NativeEvent, *, messages: bool = True, reply: Reply | None = None, first: str = ""
    ) -> Answered:
        """Answer with `reply` and, if it can carry them, `first` and the waiting texts, with `messages`."""
        reply = reply or Reply()
        carried = _kind(event).carries(event.name)
        refuses = reply.deny is not None or (reply.halt is not None and "halt" in carried)
        if "context" not in carried or event.agent_id or refuses:
            # Context for a subagent would not reach the agent.
            return Answered(_kind(event).render(event, reply))
        messages = messages and not _kind(event).ranks_context_above_user
        found = await self._bus.ask(Contribute(ROOM, messages=messages))
        context = "\n\n".join(filter(None, [first, *(each.text for each in found)]))
        return _answered(event, replace(reply, context=context, notice=_notice(found)), _together(found))


def _answered(event: NativeEvent, reply: Reply, settle: Settle) -> Answered:
    """Return the answer; if it cannot be rendered, the texts it carries wait again."""
    try:
        return Answered(_kind(event).render(event, reply), settle)
    except BaseException:
        settle(ReplyOutcome.UNSENT)
        raise


def _notice(contributions: Sequence[Contribution]) -> str:
    """Return the line that the user sees when the agent gets these texts; "" for none."""
    return " ".join(each.notice for each in contributions if each.notice)


def _together(contributions: Sequence[Contribution]) -> Any:
    """Return a function that settles all `contributions` with the same outcome."""

    def settle(outcome: ReplyOutcome) -> None:
        for contribution in contributions:
            contribution.settle(outcome)

    return settle


def _reply_of(decision: Decision) -> Reply:
    match decision.action:
        case "halt":
            return Reply(halt=decision.reason)
        case "deny":
            return Reply(deny=decision.reason)
        case "ask":
            return Reply(ask=decision.reason, input=decision.updated_input)
        case _:
            return Reply(allow=decision.allowed, input=decision.updated_input)


def _kind(event: NativeEvent) -> AgentKind:
    return kinds.find(event.agent)
