"""Runs rules at what the session sees by itself, where the agent's own hooks do not tell of it.

    SessionBegan, or the first turn that is drawn ─→ SessionStart
    Compose: relay is about to type a prompt      ─→ UserPromptSubmit
    the agent has ended                           ─→ SessionEnd

Stop, too, is derived from a screen: relay.features.turn_tracker decides about turns.
"""

from __future__ import annotations

from typing import Any

from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.errors import MessageRefused
from relay.eventbus import EventBus, answers, handles
from relay.hooks.apply import apply, injections
from relay.hooks.result import HookResult, refused_prompt
from relay.injection.events import Compose
from relay.injection.injection import Injection
from relay.lifecycle import Identity, LastWords, SessionBegan
from relay.rules.event import derived
from relay.rules.events import Consult, HasRules, Observe
from relay.state.events import TurnDrawn
from relay.tasks import Tasks
from relay.terminal.events import Notify

DERIVED = frozenset({"SessionStart", "SessionEnd", "UserPromptSubmit", "Stop"})
"""The events of rules that a session derives (docs/RULES.md says how well)."""

_BOUNDS = frozenset({NativeName.SESSION_START, NativeName.SESSION_END})


class DerivedRules:
    """Consults rules about one session. hooked: the agent's own hooks were set up, and tell of its start."""

    def __init__(self, bus: EventBus, tasks: Tasks, session: Identity, *, hooked: bool) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._hooked = hooked
        self._started = False
        self._ended = False  # the agent's hooks have told of its end, and of no new beginning since

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if not self._hooked:
            self._tasks.queue("rules of SessionStart", self._start())

    @handles(TurnDrawn)
    def drawn(self, _: TurnDrawn) -> None:
        if not self._started:  # hooks were set up, and have not spoken in a whole turn
            self._tasks.queue("rules of SessionStart", self._start())

    async def _start(self) -> None:
        self._started = True
        apply(self._bus, await self._consult("SessionStart", source="startup"))

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        if event.decides and event.event.name in _BOUNDS:
            self._ended = event.event.name is NativeName.SESSION_END

    @answers(LastWords)
    async def end(self, _: LastWords, __: object) -> None:
        if not self._ended:
            self._bus.publish(Observe(derived(self._session, "SessionEnd", reason="other")))

    @answers(Compose)
    async def compose(self, question: Compose, _: object) -> tuple[Injection, ...] | None:
        """Consult rules of UserPromptSubmit; the agent's own hooks tell of what the user types."""
        known = await self._bus.ask(HasRules("UserPromptSubmit"))
        if not any(known):
            return None
        prompt = "\n\n".join(each.text for each in question.injections)
        try:
            results = await self._consult("UserPromptSubmit", prompt=prompt)
        except Exception:
            # Whoever types logs it, and types the prompt all the same: nothing waits for ever.
            unchecked = "rules of UserPromptSubmit could not be asked, and what was typed is unchecked."
            self._bus.publish(Notify(unchecked))
            raise
        if (refused := refused_prompt(results)) is not None:
            raise MessageRefused(refused)
        return tuple(injections(results))

    async def _consult(self, name: str, **data: Any) -> list[HookResult]:
        answers = await self._bus.ask(Consult(rules=derived(self._session, name, **data)))
        return [result for results in answers for result in results]
