"""The gate before all deliveries: decides which text is next, if it is due, and if it may be typed."""

from __future__ import annotations

from collections.abc import Callable

from relay.dataclass import dataclass
from relay.injection.injection import Injection
from relay.injection.queue import HELD, InjectionQueue
from relay.injection.reply_delivery import ReplyDelivery
from relay.message import Priority
from relay.state.readiness import Readiness, TerminalSnapshot, Verdict, judge, working
from relay.state.view import AgentView

SETTING_CHECK_EVERY = 2.0
"""Seconds between two looks at such a setting."""


@dataclass(eq=False, slots=True)
class TypingGate:
    """Weighs the agent's state and the waiting texts.

    idle:   seconds of quiet after which a ready agent gets texts of low priority.
    hooked: the agent's own hooks take waiting texts while it works.
    """

    view: AgentView
    queue: InjectionQueue
    delivery: ReplyDelivery
    idle: float
    clock: Callable[[], float]
    hooked: bool = False

    def next(self) -> Injection | None:
        """Return the next text; don't wake an agent with hooks for what can wait for its next turn."""
        return next((each for each in self.queue.due() if each.wakes or not self.hooked), None)

    def obstacle(self, *, typing: bool) -> Verdict | None:
        """Return what prevents giving any text, whatever the agent does.

        typing: a text is already being given. The verdict's `wait` is None if an event ends the obstacle.
        """
        if self.view.held is not None:
            return self.view.held
        if self.delivery:
            return working("a text is being delivered through its own hooks")
        return None if typing else self._order()

    def _order(self) -> Verdict | None:
        """Return why the first waiting text is not due yet."""
        first = self.next()
        if first is None and any(each.by_agent for each in self.queue) and (setting := self.queue.held()):
            return working(f"{setting}: {HELD}", SETTING_CHECK_EVERY)
        if first is None:
            why = "what is waiting does not justify a turn, and comes with its next one"
            return working(why) if self.queue else None
        if refusal := self.queue.refused(first):
            return working(refusal.reason, max(refusal.until - self.clock(), 0))
        if first.priority is Priority.LOW and (left := self.idle - self.view.quiet()) > 0:
            why = f"what is waiting has low priority, and comes once it has been idle for {self.idle:g} s"
            return working(why, left)
        return None

    def judge(self, sight: TerminalSnapshot) -> Verdict:
        return judge(sight, self.view.profile)

    def allows(self, sight: TerminalSnapshot) -> bool:
        """Return True if a text may be typed now."""
        return self.judge(sight).state is Readiness.READY
