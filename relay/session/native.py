"""The agent's own hooks, from the session's side: each event is noted, told to handlers, and answered.

relay hook ─→ NativeHooks.hook ─┬→ Turn              what the agent does, for the judge of readiness
                                ├→ TranscriptReader  what it said, exactly
                                └→ Replies           what rules and handlers say to it, and what waits
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Answered
from relay.agents.transcript_formats import Said
from relay.agents.transcript_reader import TranscriptReader
from relay.hooks import events
from relay.injection.queue import Injector
from relay.policy import Policy
from relay.session import replies
from relay.session.continuation import Continuation
from relay.session.replies import Replies
from relay.session.turn import Turn
from relay.state.evidence import Evidence
from relay.storage.journal import Journal

POLL = 0.1
"""Seconds between two looks for new text while the agent works."""

AFTERWARDS = 3.0
"""Seconds after a turn in which its transcript may still grow: it lags behind the hooks."""


class Host(replies.Host, Protocol):
    """The session, as far as its native hooks need it."""

    def on_bridge_alive(self) -> None:
        """The first event has come: the hooks work."""
        ...

    def on_bridge_event(self) -> None:
        """What the hooks say of the agent's state may have changed."""
        ...

    def on_turn(self) -> None:
        """A turn begins."""
        ...

    def is_ready(self) -> bool:
        """Whether the agent stands at its prompt, by all that is known."""
        ...

    def on_said(self, said: Sequence[Said]) -> None:
        """The agent said this."""
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
    ended:  the agent has told of the end of its session, and of no other since.
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
        self.ended = False
        self.turn = Turn(clock, host.on_turn)
        self._host = host
        self._journal = journal
        self._words = TranscriptReader(transcript) if bridge.kind and transcript else None
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
        self._replies = Replies(
            host, injector, journal, self.turn, self._continuation, policy=policy, lesson=lesson, clock=clock
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
        return self._replies.lesson()

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
        event = self._replies.agent_end(
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
            return await self._replies.guard(event) if decide else Answered("")
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
        if event.name in _BOUNDS:
            self.ended = event.name is NativeName.SESSION_END
        answered = await self._replies.answer(event)
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

    def _hear(self, said: Sequence[Said]) -> None:
        if said:
            for one in said:
                if not one.subagent:
                    self.turn.say(one.text)
            self._host.on_said(said)


_INHERITED = frozenset({"qwen", "gemini"})
"""Kinds of agents whose hooks an agent has, too, that is started in their shell (docs/NATIVE.md)."""

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})

_BOUNDS = frozenset({NativeName.SESSION_START, NativeName.SESSION_END})

_BESIDE = _BOUNDS | {NativeName.NOTIFICATION}
"""What an agent tells that has read nothing of what it was to go on with."""
