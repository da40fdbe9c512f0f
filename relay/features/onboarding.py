"""Onboarding: what an agent that joins is told of relay, in at most LIMIT characters.

The text is config/lesson.md, or the user's own `lesson.md` in their config folder; `{name}`, `{team}`,
`{others}`, `{channels}` and `{at}` (what begins a directive) are filled in.  It shows no directive literally,
so that its echo, or an agent that quotes it, gives none.

It rides on the first reply to a hook that can carry it; an agent without hooks gets it typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relay import data
from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.agents.hook_reply import Fate
from relay.eventbus import EventBus, answers, handles
from relay.home import Home
from relay.hooks.commands import ListChannels, ListMembers
from relay.hooks.events import SessionStart
from relay.injection.events import Contribute, Contribution, Inject
from relay.injection.injection import notice
from relay.lifecycle import Identity, SessionBegan
from relay.state.events import TurnDrawn
from relay.tasks import Tasks
from relay.text import one_line

FILE = "lesson.md"

LIMIT = 800
"""Characters of the shipped text: 200 tokens at 4 characters each."""

NOBODY = "nobody yet"

_CHANNELS = 3  # so many are named


class Onboarding:
    """Gives one agent the text `template`, once, and again when it has forgotten it.

    prefix: what begins a directive of this agent. hooked: its own hooks were set up, and carry the text.
    """

    def __init__(
        self, bus: EventBus, tasks: Tasks, session: Identity, *, template: str, prefix: str, hooked: bool
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._template = template
        self._prefix = prefix
        self._hooked = hooked
        self._due = True

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        if not self._hooked:  # before what the handlers of session_start inject
            self._tasks.queue(SessionStart.name, self._type())

    @handles(TurnDrawn)
    def drawn(self, _: TurnDrawn) -> None:
        self._tasks.spawn(self._type(), "onboarding")  # its hooks have not spoken in a whole turn

    async def _type(self) -> None:
        if (text := await self._take()) is not None:
            self._bus.publish(Inject(notice(text)))

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        begins = event.decides and event.event.name is NativeName.SESSION_START and not event.event.agent_id
        if begins and event.event.source in {"clear", "compact"}:
            self._due = True  # what it was told is forgotten

    @answers(Contribute)
    async def contribute(self, question: Contribute, _: object) -> Contribution | None:
        text = None if question.extends else await self._take()
        if text is None:
            return None

        def settle(fate: Fate) -> None:
            self._due = self._due or fate is not Fate.PRINTED

        return Contribution(text, settle)

    async def _take(self) -> str | None:
        """Return the text, which counts as given; None where it is not due."""
        if not self._due:
            return None
        self._due = False
        members = [member for members in await self._bus.ask(ListMembers()) for member in members]
        return compose(
            self._template,
            name=self._session.name,
            team=self._session.team,
            others=[member.name for member in members if member.online is not False],
            channels=[channel for channels in await self._bus.ask(ListChannels()) for channel in channels],
            prefix=self._prefix,
        )


def read(home: Home) -> tuple[str, str | None]:
    """Return the text to fill in, and a notice if the user's own cannot be read and the shipped one is used."""
    own = home.config / FILE
    try:
        return own.read_text("utf-8"), None
    except FileNotFoundError:
        return _shipped(), None
    except (OSError, UnicodeDecodeError) as error:
        return _shipped(), f"{own}: cannot be read ({error}); the lesson that ships with relay is used."


def compose(
    template: str, *, name: str, team: str, others: Sequence[str], channels: Sequence[str] = (), prefix: str
) -> str:
    """Return `template` filled in; it names as many `others` as keep it within LIMIT, and a few `channels`."""
    names = [one_line(other, 40) for other in others]
    heard = _hears(channels)
    for shown in range(len(names), -1, -1):
        rest = len(names) - shown
        listed = ", ".join([*names[:shown], *([f"{rest} more"] if rest else [])]) or NOBODY
        text = _fill(template, name=name, team=team, others=listed, channels=heard, at=prefix)
        if len(text) <= LIMIT:
            break
    return text


def _hears(channels: Sequence[str]) -> str:
    """Return a sentence on what the agent hears, after a blank; "" if it hears nothing."""
    if not channels:
        return ""
    shown = ", ".join(f"#{one_line(each, 20)}" for each in channels[:_CHANNELS])
    rest = f" and {len(channels) - _CHANNELS} more" if len(channels) > _CHANNELS else ""
    return f" You hear {shown}{rest}; such a name is a receiver, too."


def _fill(template: str, **values: str) -> str:
    """Fill `template` in. Not with str.format: a user's own text may hold other braces."""
    for key, value in values.items():
        template = template.replace("{" + key + "}", value)
    return template.strip()


def _shipped() -> str:
    return Path(data.directory("config") / FILE).read_text("utf-8")
