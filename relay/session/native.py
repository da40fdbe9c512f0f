"""The agent's own hooks, from the session's side: each event is noted, told to handlers, and answered.

    relay hook ─→ NativeHooks.hook ─┬→ Turn        what the agent does, for the judge of readiness
                                    ├→ Words       what it said, exactly
                                    ├→ handlers    tool_pre, tool_post, prompt_submit, agent_end, compact
                                    └→ Answered    their verdict, and the messages that wait, as the reply

What is to reach the agent goes through the injection queue here, too: a reply takes from its head what fits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from relay.detection.evidence import Evidence
from relay.hooks import events
from relay.hooks.result import Decision, HookResult, decide, injected
from relay.injection.injection import Injection, Kind, Outcome, Result, Role
from relay.injection.queue import Injector
from relay.journal import Journal, preview
from relay.native.event import NativeEvent, NativeName, prompt_kind
from relay.native.reply import Answered, Fate, Reply, carries, render
from relay.native.texts import Said, Words
from relay.policy import Policy
from relay.session.continuation import Continuation
from relay.session.turn import Turn

ROOM = 9_000
"""Bytes of one reply: Claude Code puts strings of more than 10,000 characters into a file."""

POLL = 0.1
"""Seconds between two looks for new text while the agent works."""

AFTERWARDS = 3.0
"""Seconds after a turn in which its transcript may still grow: it lags behind the hooks."""

GO_ON = "Go on."
"""What an agent goes on with where a handler of agent_end wants that and gives no text."""


class Host(Protocol):
    """The session, as far as its native hooks need it."""

    def on_bridge_alive(self) -> None:
        """The first event has come: the hooks work."""
        ...

    def on_bridge_event(self) -> None:
        """What the hooks say of the agent's state may have changed."""
        ...

    def is_ready(self) -> bool:
        """Whether the agent stands at its prompt, by all that is known."""
        ...

    def on_said(self, said: Sequence[Said]) -> None:
        """The agent said this."""
        ...

    async def ask(self, event: events.Event) -> list[HookResult]:
        """Have the handlers of `event` called; what they tell the person is told already."""
        ...

    def give(self, text: str, source: str, kind: Kind, *, wakes: bool = True) -> Injection:
        """Queue a text for the agent."""
        ...

    def tell_person(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Bridge:
    """How the agent's hooks were set up. `kind`: the dialect, "" for no bridge; `note`: what is wrong."""

    kind: str = ""
    note: str = ""


class NativeHooks:
    """One agent's hooks. All methods belong to the event loop's thread.

    alive:  an event has come in this run; until then the screen alone tells what the agent does.
    exact:  what the agent says is taken from its transcript, not from the screen.
    lesson: what the agent is to be told when it joins, None once it was, or when it is not to be.
    """

    def __init__(
        self,
        host: Host,
        injector: Injector,
        journal: Journal,
        bridge: Bridge,
        *,
        transcript: str = "",
        continuations: int,
        policy: Policy,
        lesson: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bridge = bridge
        self.alive = False
        self.turn = Turn(clock)
        self._host = host
        self._injector = injector
        self._journal = journal
        self._words = Words(transcript) if bridge.kind and transcript else None
        self._policy = policy
        self._lesson = lesson
        self._lesson_due = lesson is not None
        self._clock = clock
        self._listen = asyncio.Event()
        self._listen_until = 0.0
        self._continuation = Continuation(
            self.turn,
            continuations,
            journal,
            is_ready=host.is_ready,
            on_over=host.on_bridge_event,
            tell_person=host.tell_person,
        )
        self._problem: str | None = None
        self._heard_at = 0.0  # when the last event came
        self._agent_session = ""  # what the agent calls its session

    @property
    def exact(self) -> bool:
        return self.alive and self._words is not None

    @property
    def description(self) -> str:
        """For a person: whether they have spoken, what they tell, what is wrong; "" where there are none."""
        problem = self._words.problem if self._words is not None else None
        if not self.bridge.kind:
            return self.bridge.note
        if not self.alive:
            silent = "silent so far" if not self._heard_at else "silent in its last turn"
            said = f"set up, and {silent}: the screen tells what it does"
        elif self.exact:
            said = "they tell what it does and what it says"
        else:
            said = "they tell what it does; what it says is read from its screen"
        if self.turn.continuations:
            times, most = self.turn.continuations, self._continuation.most
            said += f"; relay has had it go on {times} times of {most} at most"
        return "; ".join(part for part in (said, self.bridge.note, problem) if part)

    def lesson(self) -> str | None:
        """What the agent is still to be told; it counts as told."""
        if not self._lesson_due or self._lesson is None:
            return None
        self._lesson_due = False
        return self._lesson()

    def evidence(self) -> Evidence | None:
        """What the hooks say of the agent's state."""
        return self.turn.evidence() if self.alive else None

    async def run(self) -> None:
        """Read what the agent says while it works."""
        while self._words is not None:
            await self._listen.wait()
            self._hear(self._words.poll())
            if not self.turn.active and self._words.settled and self._clock() >= self._listen_until:
                self._listen.clear()
                continue
            await asyncio.sleep(POLL)

    def lapsed(self, error: str) -> events.AgentEnd | None:
        """The screen shows that the turn is over, of which no hook told: the person has interrupted it, or,
        with an `error`, the model failed, and then this is the event of its end."""
        if not self.turn.active:
            return None
        event = self._agent_end(
            NativeEvent(NativeName.STOP_FAILURE, self.bridge.kind, error=error), success=False
        )
        if not error:
            self.turn.end()
            return None
        self.turn.fail(error)
        return event

    def missed(self, began: float) -> bool:
        """A turn that `began` then has ended on the screen. Where no hook told of it, they are not alive."""
        if not self.alive or self._heard_at >= began:
            return False
        self.alive = False
        self._journal.write("bridge", kind=self.bridge.kind, alive=False)
        return True

    def close(self) -> None:
        """The agent has ended: what it said last is heard now."""
        self._continuation.proved(False)
        if self._words is not None and self.alive:
            self._hear(self._words.close())

    async def hook(self, event: NativeEvent, *, decide: bool) -> Answered:
        """Note `event`; with `decide`, answer it. An observer is never answered."""
        if self._is_of_another(event):
            self._journal.write("hook", hook=event.name, nested=True)
            return Answered("")
        self._heard_at = self._clock()
        # Until now the screen was heard: what stands in the transcript already was said there.
        late = not self.alive and event.name not in _BEGINS
        if not self.alive:
            self.alive = True
            self._host.on_bridge_alive()
        self._journal.write(
            "hook",
            hook=event.name,
            tool=event.tool_name or None,
            decide=decide,
            subagent=event.agent_id or None,
        )
        self.turn.take(event)
        if not decide:
            self._host.on_bridge_event()
            return Answered("")
        if event.name not in _BESIDE and not event.agent_id:
            self._continuation.proved(True)
        self._listen_until = self._clock() + AFTERWARDS
        self._listen.set()
        if self._words is not None:
            said = self._words.event(event)
            if not late:
                self._hear(said)
            if (problem := self._words.problem) not in {None, self._problem}:
                self._problem = problem
                self._host.tell_person(f"the agent's transcript: {problem}")
        self._host.on_bridge_event()
        # A subagent's prompt and end are its own; its tools are guarded as the agent's are.
        answer = _ANSWERS.get(event.name) if not event.agent_id or event.name in _TOOLS else None
        answered = await answer(self, event) if answer else Answered("")
        asyncio.get_running_loop().call_soon(self._host.on_bridge_event)  # once the answer is on its way
        return answered

    def _is_of_another(self, event: NativeEvent) -> bool:
        """Whether an agent tells this that ours has started: one with a session of its own while ours is in
        the midst of a turn, which has not gone over to it by its person's word (/clear, /resume)."""
        if event.agent not in _INHERITED or event.agent_id or not event.session_id:
            return False
        changes = event.name is NativeName.SESSION_START and event.source not in {"", "startup"}
        if self._agent_session not in {"", event.session_id} and self.turn.active and not changes:
            return True
        self._agent_session = event.session_id
        return False

    # One method for each event that is answered.

    async def _session_start(self, event: NativeEvent) -> Answered:
        if event.source in {"clear", "compact"} and self._lesson is not None:
            self._lesson_due = True  # what it was told is forgotten
        return self._with_context(event, waiting=False)  # it begins no turn, in which a message would be read

    async def _prompt_submit(self, event: NativeEvent) -> Answered:
        messages = event.agent not in _FORGETTING
        if not event.prompt:
            return self._with_context(event, messages=messages)
        self._injector.submitted(event.prompt)
        results = await self._host.ask(events.PromptSubmit(prompt=event.prompt))
        decision = decide(results)
        if decision.refused:
            self.turn.end()
            return self._reply(event, _reply_of(decision))
        self._queue(results)
        return self._with_context(event, messages=messages)

    async def _tool_pre(self, event: NativeEvent) -> Answered:
        results = await self._host.ask(
            events.ToolPre(event.tool_name, event.tool_input, event.tool_use_id or None)
        )
        self._queue(results)
        decision = decide(results)
        if decision.refused:
            self._journal.write(
                "denied", tool=event.tool_name, action=decision.action, reason=preview(decision.reason)
            )
            return self._reply(event, _reply_of(decision))
        if decision.allowed:
            self._journal.write("allowed", tool=event.tool_name, input=preview(str(event.tool_input)))
        return self._with_context(event, reply=_reply_of(decision))

    async def _permission(self, event: NativeEvent) -> Answered:
        """Spare the person what they have allowed in advance. A plan or a question is never such a thing."""
        if prompt_kind(event.tool_name) is not None:
            return Answered("")
        rule = self._policy.allows(event.tool_name, event.tool_input)
        if rule is None:
            return Answered("")
        self._journal.write("allowed", tool=event.tool_name, input=preview(str(event.tool_input)), rule=rule)
        self.turn.allowed(event)
        return self._reply(event, Reply(allow=True))

    async def _tool_post(self, event: NativeEvent) -> Answered:
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
        self._queue(results)
        return self._with_context(event)

    async def _stop(self, event: NativeEvent) -> Answered:
        results = await self._host.ask(self._agent_end(event, success=True))
        texts = injected(results)
        if not texts and any(result.force_continue for result in results):
            texts = [GO_ON]
        capped = self._continuation.capped
        if capped:
            self._continuation.refuse(texts)
        else:
            for result, text in zip(_sources(results, texts), texts, strict=True):
                self._host.give(text, result, "hook")
        goes_on = not capped and "go_on" in carries(event.agent, event.name)
        taken = self._injector.take(ROOM, extends=True) if goes_on else []
        if not taken:
            self.turn.end()
            if texts and not capped:
                self.turn.will_go_on(texts[-1])
            return Answered("")
        text = self._injector.render_native(taken)
        answered = self._reply(event, Reply(go_on=text), taken, role="user")
        return replace(answered, settle=self._continuation.begin(text, answered.settle))

    async def _stop_failure(self, event: NativeEvent) -> Answered:
        self._queue(await self._host.ask(self._agent_end(event, success=False)))
        return Answered("")

    async def _compact(self, event: NativeEvent) -> Answered:
        await self._host.ask(events.Compact(trigger=event.trigger))
        return Answered("")

    # What they share.

    def _agent_end(self, event: NativeEvent, *, success: bool) -> events.AgentEnd:
        return events.AgentEnd(
            messages=tuple(self.turn.messages),
            success=success,
            last_assistant_message=event.last_assistant_message or None,
            error=None if success else event.error or "the agent's model failed",
            duration_ms=(self._clock() - self.turn.began) * 1000 if self.turn.began else None,
        )

    def _queue(self, results: Sequence[HookResult]) -> None:
        for result in results:
            if result.context_injection is not None:
                self._host.give(result.context_injection, result.source, "hook", wakes=result.wake)

    def _with_context(
        self, event: NativeEvent, *, waiting: bool = True, messages: bool = True, reply: Reply | None = None
    ) -> Answered:
        """Answer `reply` with the lesson and what is `waiting` for the agent, its `messages` too, where the
        reply can carry it."""
        reply = reply or Reply()
        if "context" not in carries(event.agent, event.name) or event.agent_id:
            return self._reply(event, reply)  # a subagent's reply would reach the subagent
        lesson = self.lesson()
        room = ROOM - (len(lesson.encode()) if lesson else 0)
        taken = self._injector.take(room, messages=messages) if waiting else []
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

    def _hear(self, said: Sequence[Said]) -> None:
        if said:
            for one in said:
                if not one.subagent:
                    self.turn.say(one.text)
            self._host.on_said(said)


def _reply_of(decision: Decision) -> Reply:
    """What the agent is told of `decision`."""
    match decision.action:
        case "halt":
            return Reply(halt=decision.reason)
        case "deny":
            return Reply(deny=decision.reason)
        case "ask":
            return Reply(ask=decision.reason)
        case _:
            return Reply(allow=decision.allowed, input=decision.updated_input)


def _sources(results: Sequence[HookResult], texts: Sequence[str]) -> list[str]:
    """Which handler each of `texts` is from."""
    found = [result.source for result in results if result.context_injection is not None]
    return found or [next(result.source for result in results if result.force_continue) for _ in texts]


_INHERITED = frozenset({"qwen", "gemini"})
"""Kinds of agents whose hooks an agent has, too, that is started in their shell (docs/NATIVE.md)."""

_FORGETTING = frozenset({"claude"})
"""Kinds of agents that forget a prompt, and what rode on the reply to its hook, when their person takes it
back: Esc before the answer begins (Claude Code 2.1.197)."""

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})

_BESIDE = frozenset({NativeName.NOTIFICATION, NativeName.SESSION_START, NativeName.SESSION_END})
"""What an agent tells that has read nothing of what it was to go on with."""

_TOOLS = frozenset({NativeName.TOOL_PRE, NativeName.PERMISSION, NativeName.TOOL_POST, NativeName.TOOL_FAILED})

_ANSWERS: dict[NativeName, Callable[[NativeHooks, NativeEvent], Awaitable[Answered]]] = {
    NativeName.SESSION_START: NativeHooks._session_start,
    NativeName.PROMPT_SUBMIT: NativeHooks._prompt_submit,
    NativeName.TOOL_PRE: NativeHooks._tool_pre,
    NativeName.PERMISSION: NativeHooks._permission,
    NativeName.TOOL_POST: NativeHooks._tool_post,
    NativeName.TOOL_FAILED: NativeHooks._tool_post,
    NativeName.STOP: NativeHooks._stop,
    NativeName.STOP_FAILURE: NativeHooks._stop_failure,
    NativeName.COMPACT: NativeHooks._compact,
}
