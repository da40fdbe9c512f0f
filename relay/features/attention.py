"""Brings the agent's questions, and what its supervision cannot decide, to the user's attention.

    the inbox       an item until it is over; its sinks are the desktop and others (user_inbox.py)
    the terminal    bell, and a title until the question is over (window_title.py)
    the bus         a message to the receiver in the settings (escalate_to)

What the agent draws is untrusted: relay shows only its visible characters, and quotes it to other agents.
"""

from __future__ import annotations

import asyncio
from typing import Any

from relay import names
from relay.agents.profile import Profile
from relay.clock import Clock
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.hooks.commands import SendMessage
from relay.hooks.events import Prompting
from relay.lifecycle import Describe
from relay.message import OutgoingMessage
from relay.messaging.events import AddItem, EndItem
from relay.state import question
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import DialogDismissed, PromptSubmitted, StateChanged
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.supervision.events import Escalate, HoldOver, PhaseEntered
from relay.supervision.states import PAUSED
from relay.tasks import Tasks
from relay.terminal.events import KeysTyped, Notify, TitleWanted
from relay.terminal.shim_link import ShimLink
from relay.text import one_line

STABLE_FOR = 0.8
"""Seconds that a prompt must stay on the screen: agents draw a dialog while a hook may still answer it."""

DISMISSED = 3.0
"""Seconds that a prompt must stay on the screen after relay has pressed the key that dismisses it."""

DRAWN_WITHIN = 5.0
"""Seconds that a question may take to be drawn after hooks have reported it."""

UNSUPERVISED = 2.0
"""Seconds that an error must last before it stands in the inbox: supervision may know what to do."""

REPEAT = 60.0
"""Seconds within which the same question, when redrawn, is not escalated again."""

MOMENT = 1.0
"""Seconds that a question must last before it is escalated beyond the terminal: hooks may report it before it
is drawn, and a user who sees it may answer at once."""

COOLDOWN = 10.0
"""Seconds between two messages; a message to an agent costs a turn of its model."""

MAX_LINES, MAX_LINE = 12, 200
"""Lines of a question that are passed on, and characters of each."""

BELL = b"\a"

_KINDS = {"plan_approval": "approval of a plan", "question": "a question", "other": "a decision"}

_Asked = tuple[str, tuple[str, ...]]
"""The kind of a question and its rows."""


class Attention:
    """Publishes `prompting` when the agent asks something.

    The question stands in the inbox until it is over, and so does an error that has stopped the agent, unless
    its supervision waits for the end of a limit or holds it. quiet: only there.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        terminal: AgentTerminal,
        state: AgentState,
        profile: Profile,
        *,
        quiet: bool = False,
    ) -> None:
        self._bus = bus
        self._profile = profile
        self._quiet = quiet
        self._journal = journal
        self._terminal = terminal
        self._state = state
        self._prompt: Verdict | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0  # when a question is no longer expected to be drawn
        self._published = False
        self._failure: str | None = None
        self._paused = False

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        verdict = event.verdict
        self._journal.write(
            "state",
            state=event.after,
            prompt=event.kind or None,
            rule=None if verdict is None else verdict.rule or None,
            reason=None if verdict is None else verdict.reason,
        )
        prompting = verdict is not None and verdict.state is Readiness.PROMPTING
        self._prompt = verdict if prompting else None
        self._cancel()
        if prompting:
            self._until = self._bus.loop.time() + DRAWN_WITHIN
            self._confirm_in(STABLE_FOR)
        elif self._published:
            self._published = False
            self._bus.publish(EndItem("question"))
        self._failure = None
        if verdict is not None and verdict.state is Readiness.FAILED:
            self._failure = verdict.reason
            self._timer = self._bus.loop.call_later(UNSUPERVISED, self._list_failure)
        elif event.before == Readiness.FAILED:
            self._bus.publish(EndItem("failed"))

    @handles(PhaseEntered)
    def entered(self, event: PhaseEntered) -> None:
        self._paused = event.phase in PAUSED
        if self._failure is not None:
            self._list_failure()

    def _list_failure(self) -> None:
        if self._paused:
            self._bus.publish(EndItem("failed"))
        elif self._failure is not None:
            self._bus.publish(AddItem("failed", self._failure, quiet=self._quiet))

    @handles(DialogDismissed)
    def dismissed(self, _: DialogDismissed) -> None:
        if self._timer is not None:
            self._cancel()
            self._confirm_in(DISMISSED)

    def _confirm_in(self, seconds: float) -> None:
        self._timer = self._bus.loop.call_later(seconds, self._confirm)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _confirm(self) -> None:
        self._timer = None
        before = self._prompt
        self._state.look()
        if before is None or self._prompt is not before:
            return  # it has gone, or another prompt with its own timer has replaced it
        kind = "other" if before.kind is None else str(before.kind)
        lines = question.drawn(self._terminal, self._profile, before.lines)
        if not lines and self._bus.loop.time() < self._until:
            self._confirm_in(STABLE_FOR)
            return
        self._published = True
        lines = lines or (before.reason,)
        self._bus.publish(Prompting(kind=kind, text="\n".join(lines)))
        asked = question.on(self._terminal, self._profile)
        if asked.options and not asked.selected:  # what stands above a one-line question may be anything
            lines = asked.lines[-1:]
        self._bus.publish(AddItem("question", "\n".join(lines), quiet=self._quiet))


class _Escalating:
    """The ways out of the terminal for the agent `name`. escalate_to: who gets messages; "": nobody."""

    def __init__(self, bus: EventBus, tasks: Tasks, journal: Journal, *, name: str, escalate_to: str) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._name = name
        self._to = escalate_to

    def _pass_on(self, message: str, what: str) -> None:
        """Send `message` to the receiver. what: why, for the notice if that fails."""
        if self._to and not names.same(self._to, self._name):
            self._tasks.spawn(self._send(message, what), "escalation")

    async def _send(self, message: str, what: str) -> None:
        try:
            await self._bus.ask(SendMessage(OutgoingMessage(self._to, message)))
        except RelayError as error:
            self._bus.publish(Notify(f"{self._to} was not notified that {self._name} {what}: {error}"))


class Escalation(_Escalating):
    """Escalates the agent's prompts. known: False for a plain program, which owns its terminal's bell."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        shim: ShimLink,
        *,
        name: str,
        escalate_to: str,
        known: bool,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(bus, tasks, journal, name=name, escalate_to=escalate_to)
        self._shim = shim
        self._known = known
        self._clock = clock or Clock()
        self._rang = float("-inf")
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
            if self._known and now >= self._rang + MOMENT:
                self._rang = now
                self._shim.aside(BELL)
            self._shown = (self._asked, now)
            self._journal.write("escalated", kind=event.kind, lines=shown, to=self._to or None)
        if self._timer is None and not self._is_recent(self._told, now):
            free = 0.0 if self._told is None else self._told[1] + COOLDOWN
            self._timer = self._clock.later(max(MOMENT, free - now), self._tell)

    @handles(EndItem)
    def over(self, event: EndItem) -> None:
        if event.kind != "question":
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asked is not None:
            self._asked = None
            self._bus.publish(TitleWanted(""))

    def _tell(self) -> None:
        self._timer = None
        if self._asked is None:
            return
        self._told = (self._asked, self._clock.now())
        kind, lines = self._asked
        what = _KINDS.get(kind, kind)
        quoted = "".join(f"\n> {line}" for line in lines)
        message = f"{self._name} waits for a decision ({what}) from the user:{quoted}"
        self._pass_on(message, "has a question")

    def _is_recent(self, told: tuple[_Asked, float] | None, now: float) -> bool:
        """Return True if the current question was `told` less than REPEAT ago."""
        return told is not None and told[0] == self._asked and now < told[1] + REPEAT


class Alarm(_Escalating):
    """Escalates what its supervision cannot decide, until the agent gets a prompt or the user types."""

    _listed = True  # an earlier session may have escalated something
    _unanswered = ""

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any] | None:
        return {"escalation": self._unanswered} if self._unanswered else None

    @handles(PromptSubmitted, KeysTyped, HoldOver)
    def attended(self, _: object) -> None:
        self._unanswered = ""
        if self._listed:
            self._listed = False
            self._bus.publish(EndItem("escalation"))

    @handles(Escalate)
    def escalate(self, event: Escalate) -> None:
        self._listed = True
        self._unanswered = event.what.removeprefix(f"{self._name} ").rstrip(".")
        text = f"{event.what} {event.how}".rstrip()
        self._journal.write("escalated", kind="supervision", text=text, to=self._to or None)
        self._bus.publish(Notify(text, "warning", listed=True))
        self._bus.publish(AddItem(event.kind, text))
        self._pass_on(f"{text}\nThis needs the user.", "needs you")
