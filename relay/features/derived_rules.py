"""Runs rules for events that the session derives itself, where the agent's own hooks do not report them.

    SessionBegan, or the first turn on the screen ─→ SessionStart
    Compose: relay is about to type a prompt      ─→ UserPromptSubmit
    the agent has ended                           ─→ SessionEnd

relay.features.turn_tracker derives Stop, from the screen.
"""

from __future__ import annotations

from typing import Any

from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.errors import MessageRefused
from relay.eventbus import Event, EventBus, answers, handles
from relay.hooks.apply import apply, injections
from relay.hooks.result import HookResult, refused_prompt
from relay.injection.events import Compose
from relay.injection.injection import Injection
from relay.lifecycle import Identity, LastWords, SessionBegan
from relay.rules.event import derived
from relay.rules.events import Consult, HasRules, Observe
from relay.state.events import TurnDrawn
from relay.storage.progress import Progress
from relay.tasks import Tasks
from relay.terminal.events import Notify

DERIVED = frozenset({"SessionStart", "SessionEnd", "UserPromptSubmit", "Stop"})
"""The rule events that a session can derive (docs/RULES.md says how reliably)."""

_BOUNDS = frozenset({NativeName.SESSION_START, NativeName.SESSION_END})


class DerivedRules:
    """Runs the derived rules of one session. hooked: the agent's own hooks were set up."""

    def __init__(
        self, bus: EventBus, tasks: Tasks, session: Identity, progress: Progress, *, hooked: bool
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._progress = progress
        self._hooked = hooked
        self._started = False
        self._ended = False  # the agent's hooks have reported its end, and no new start since

    @handles(SessionBegan, TurnDrawn)
    def begin(self, event: Event) -> None:
        # Hooks report the start themselves, unless they are silent for a whole turn.
        if not self._started and (not self._hooked or isinstance(event, TurnDrawn)):
            self._tasks.queue("rules of SessionStart", self._start())

    async def _start(self) -> None:
        self._started = True
        if self._progress.first("rules of SessionStart"):
            apply(self._bus, await self._consult("SessionStart", source="startup"))

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        if event.decides and event.event.name in _BOUNDS:
            self._ended = event.event.name is NativeName.SESSION_END

    @answers(LastWords)
    async def end(self, _: LastWords, __: object) -> None:
        if not self._ended and self._progress.first("rules of SessionEnd"):
            self._bus.publish(Observe(derived(self._session, "SessionEnd", reason="other")))

    @answers(Compose)
    async def compose(self, question: Compose, _: object) -> tuple[Injection, ...] | None:
        """Run the rules of UserPromptSubmit for relay's prompts; the agent's hooks report the user's."""
        known = await self._bus.ask(HasRules("UserPromptSubmit"))
        if not any(known):
            return None
        prompt = "\n\n".join(each.text for each in question.injections)
        try:
            results = await self._consult("UserPromptSubmit", prompt=prompt)
        except Exception:  # the injector logs it; this tells the user
            # The injector types the prompt anyway: nothing waits forever.
            unchecked = "the UserPromptSubmit rules could not run, so the prompt was not checked."
            self._bus.publish(Notify(unchecked))
            raise
        if (refused := refused_prompt(results)) is not None:
            raise MessageRefused(refused)
        return tuple(injections(results))

    async def _consult(self, name: str, **data: Any) -> list[HookResult]:
        return await self._bus.gather(Consult(rules=derived(self._session, name, **data)))
