"""Onboarding: a text of at most LIMIT characters that tells a new agent how to use relay.

The text is config/lesson.md, or the user's own `lesson.md` in their config folder. `{name}`, `{team}`,
`{others}`, `{channels}` and `{at}` (the beginning of a directive) are filled in. It contains no literal
directive: an echo or a quote of the text must not be taken for one.

It goes into the first reply to a hook that can carry it; for an agent without hooks, relay types it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relay import data
from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.agents.hook_reply import ReplyOutcome
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

SPAWNS = (
    "To start an agent, begin a line with {at}relay: directly followed by spawn, a space, the new agent's "
    "name, its program and its task; to stop it, by release, a space and the name."
)
"""Added for an agent that may start others."""

TOOLS = (
    "You can also send and receive messages with the tools of the MCP server relay: send_message, "
    "list_agents, wait_for_message and others."
)
"""Added for an agent that has relay's MCP server."""

_CHANNELS = 3  # channels that are named


class Onboarding:
    """Gives one agent the text `template` once, and again after the agent has cleared its context.

    prefix: the character that starts a directive of this agent.
    hooked: the agent's own hooks were set up, and deliver the text.
    on_screen: directives on its screen are acted on, too. spawns: it may start other agents.
    tools: it has relay's MCP server.
    """

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        session: Identity,
        *,
        template: str,
        prefix: str,
        hooked: bool,
        on_screen: bool,
        spawns: bool,
        tools: bool,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._session = session
        self._template = template
        self._prefix = prefix
        self._hooked = hooked
        self._on_screen = on_screen
        self._more = "\n".join(
            ["", *([TOOLS] if tools else []), *([SPAWNS.replace("{at}", prefix)] if spawns else [])]
        )
        self._due = True

    @handles(SessionBegan)
    def begin(self, event: SessionBegan) -> None:
        if not self._hooked:  # before what the handlers of session_start inject
            self._tasks.queue(SessionStart.name, self._type())

    @handles(TurnDrawn)
    def drawn(self, _: TurnDrawn) -> None:
        if self._on_screen:  # its hooks have been silent for a whole turn, so relay reads its screen
            self._tasks.spawn(self._type(), "onboarding")

    async def _type(self) -> None:
        if (text := await self._take()) is not None:
            self._bus.publish(Inject(notice(text)))

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        begins = event.decides and event.event.name is NativeName.SESSION_START and not event.event.agent_id
        if begins and event.event.source in {"clear", "compact"}:
            self._due = True  # the agent has forgotten the text

    @answers(Contribute)
    async def contribute(self, question: Contribute, _: object) -> Contribution | None:
        text = None if question.extends else await self._take()
        if text is None:
            return None

        def settle(outcome: ReplyOutcome) -> None:
            self._due = self._due or outcome is not ReplyOutcome.PRINTED

        return Contribution(text, settle)

    async def _take(self) -> str | None:
        """Return the text and count it as given; return None if it is not due."""
        if not self._due:
            return None
        self._due = False
        members = await self._bus.gather(ListMembers())
        text = compose(
            self._template,
            name=self._session.name,
            team=self._session.team,
            others=[member.name for member in members if member.online is not False],
            channels=await self._bus.gather(ListChannels()),
            prefix=self._prefix,
        )
        return text + self._more


def read(home: Home) -> tuple[str, str | None]:
    """Return the template, and a notice if the user's own cannot be read and the shipped one is used."""
    own, notice = home.config / FILE, None
    try:
        return own.read_text("utf-8"), None
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        notice = f"{own}: cannot be read ({error}); relay uses the lesson it ships with."
    return Path(data.directory("config") / FILE).read_text("utf-8"), notice


def compose(
    template: str, *, name: str, team: str, others: Sequence[str], channels: Sequence[str] = (), prefix: str
) -> str:
    """Return `template` filled in, with as many `others` as keep it within LIMIT, and a few `channels`."""
    names = [one_line(other, 40) for other in others]
    values = {"name": name, "team": team, "others": "", "channels": _hears(channels), "at": prefix}
    for shown in range(len(names), -1, -1):
        rest = len(names) - shown
        values["others"] = ", ".join([*names[:shown], *([f"{rest} more"] if rest else [])]) or NOBODY
        text = template
        for key, value in values.items():  # not str.format: a user's own text may contain other braces
            text = text.replace("{" + key + "}", value)
        if len(text := text.strip()) <= LIMIT:
            break
    return text


def _hears(channels: Sequence[str]) -> str:
    """Return a space and a sentence about the agent's channels; "" if it is in none."""
    if not channels:
        return ""
    shown = ", ".join(f"#{one_line(each, 20)}" for each in channels[:_CHANNELS])
    rest = f" and {len(channels) - _CHANNELS} more" if len(channels) > _CHANNELS else ""
    return f" You are in {shown}{rest}; you can also send to a channel."
