"""Brings the agent's questions to the user's attention, wherever they are.

    the terminal    bell, and a title until the question is over (window_title.py)
    the desktop     a notification
    the bus         a message to the receiver in the settings (escalate_to)

What the agent draws is untrusted: relay shows only its visible characters, and quotes it to other agents.
"""

from __future__ import annotations

import asyncio

from relay import names
from relay.clock import Clock
from relay.errors import RelayError
from relay.eventbus import EventBus, handles
from relay.hooks.commands import SendMessage
from relay.hooks.events import Prompting
from relay.message import OutgoingMessage
from relay.state.events import PromptOver
from relay.storage.journal import Journal
from relay.tasks import Tasks
from relay.terminal.events import Notify, NotifyDesktop, TitleWanted
from relay.terminal.shim_link import ShimLink
from relay.text import one_line

REPEAT = 60.0
"""Seconds within which the same question, when redrawn, is not escalated again."""

MOMENT = 1.0
"""Seconds that a question must last before it is escalated beyond the terminal: hooks may report it before it
is drawn, and a user who sees it may answer at once."""

COOLDOWN = 10.0
"""Seconds between two notifications, and two messages; a message to an agent costs a turn of its model."""

MAX_LINES, MAX_LINE = 12, 200
"""Lines of a question that are passed on, and characters of each."""

BELL = b"\a"

_Asked = tuple[str, tuple[str, ...]]
"""The kind of a question and its rows."""


class Escalation:
    """Escalates the prompts of the agent `name`. to: the receiver of messages about them; "" for none."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        bell: Bell,
        *,
        name: str,
        to: str,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._bell = bell
        self._name = name
        self._to = to
        self._clock = clock or Clock()
        self._asked: _Asked | None = None  # the current question
        self._shown: tuple[_Asked, float] | None = None  # the last one shown in the terminal, and when
        self._told: tuple[_Asked, float] | None = None  # the last one passed on beyond it, and when
        self._timer: asyncio.TimerHandle | None = None

    @handles(Prompting)
    def prompting(self, event: Prompting) -> None:
        lines = event.text.split("\n")
        shown = [one_line(line, MAX_LINE) for line in lines if line.strip()][-MAX_LINES:]
        self._asked = (event.kind, tuple(shown))
        now = self._clock.now()
        fresh = not self._is_recent(self._shown, now)
        self._bus.publish(TitleWanted(f"{self._name} asks: {_KINDS.get(event.kind, event.kind)}"))
        if fresh:
            self._bell.ring(now)
            self._shown = (self._asked, now)
            self._journal.write("escalated", kind=event.kind, lines=shown, to=self._to or None)
        if self._timer is None and not self._is_recent(self._told, now):
            free = 0.0 if self._told is None else self._told[1] + COOLDOWN
            self._timer = self._clock.later(max(MOMENT, free - now), self._pass_on)

    @handles(PromptOver)
    def over(self, _: PromptOver) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asked is not None:
            self._asked = None
            self._bus.publish(TitleWanted(""))

    def _pass_on(self) -> None:
        self._timer = None
        if self._asked is None:
            return
        self._told = (self._asked, self._clock.now())
        kind, lines = self._asked
        what = _KINDS.get(kind, kind)
        self._bus.publish(NotifyDesktop(f"{self._name} asks: {what}", "\n".join(lines)))
        if self._to and not names.same(self._to, self._name):
            quoted = "".join(f"\n> {line}" for line in lines)
            text = f"{self._name} waits for a decision ({what}) from the user:{quoted}"
            self._tasks.spawn(self._send(text), "escalation")

    async def _send(self, text: str) -> None:
        try:
            await self._bus.ask(SendMessage(OutgoingMessage(self._to, text)))
        except RelayError as error:
            self._bus.publish(
                Notify(f"{self._to} was not notified that {self._name} has a question: {error}")
            )

    def _is_recent(self, told: tuple[_Asked, float] | None, now: float) -> bool:
        """Return True if the current question was `told` less than REPEAT ago."""
        return told is not None and told[0] == self._asked and now < told[1] + REPEAT


class Bell:
    """The bell of the user's terminal. enabled: False for a plain program, which owns its terminal."""

    def __init__(self, shim: ShimLink, *, enabled: bool) -> None:
        self._shim = shim
        self._enabled = enabled
        self._rang = float("-inf")

    def ring(self, now: float) -> None:
        """Ring, unless it has just rung."""
        if self._enabled and now >= self._rang + MOMENT:
            self._rang = now
            self._shim.aside(BELL)


_KINDS = {"plan_approval": "approval of a plan", "question": "a question", "other": "a decision"}
