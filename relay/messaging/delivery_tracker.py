"""Tracks the messages that one agent sends, and reports their outcomes.

    injected     to the caller that waits for it (`ctx.relay.send(..., wait=...)`)
    otherwise    to the agent, too; and to the user if it is held

Notices cannot start a loop: while one waits to be given to the agent, the next one collects the outcomes of
further messages to the same receiver, and a notice has the depth of its message
(relay.messaging.reply_chain).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from relay import names
from relay.dataclass import dataclass
from relay.eventbus import EventBus
from relay.injection.events import Inject, Withdraw
from relay.injection.injection import Injection, notice
from relay.message import Message, State
from relay.messaging.events import MessagesHeld
from relay.text import count, one_line

NAMED = 3
"""Maximum receivers of held messages that one notice names."""

QUOTED = 200
"""Maximum characters that a notice quotes of the reason why a message did not arrive."""


@dataclass(slots=True)
class _Notice:
    """A notice waiting to be given to the agent.

    further: the number of messages that the next notice will report; last: the last of those.
    held:    the receivers (keys) of held messages, if the notice is about held messages.
    """

    message: Message
    further: int = 0
    last: Message | None = None
    held: frozenset[str] = frozenset()


class DeliveryTracker:
    """Follows the messages of one agent."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._watches: list[tuple[dict[str, Message], asyncio.Event]] = []  # messages; set on change
        self._notices: dict[str, _Notice] = {}  # by injection id
        self._held: dict[str, set[str]] = {}  # by receiver: the ids of messages known to be held
        self._kept: set[str] = set()  # the ids of messages ever held, until they are final

    async def wait(self, messages: Iterable[Message], seconds: float) -> list[Message]:
        """Return `messages` once all have reached a final state or are held, or after `seconds`."""
        watched, changed = {message.id: message for message in messages}, asyncio.Event()
        self._watches.append((watched, changed))
        try:
            async with asyncio.timeout(seconds):
                while not all(map(_ended, watched.values())):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._watches = [watch for watch in self._watches if watch[0] is not watched]
        return list(watched.values())

    def sent(self, messages: Sequence[Message]) -> None:
        """Record the messages of one send; report held ones, once for each receiver."""
        fresh = []
        for message in messages:
            key = names.key(message.to)
            if message.state is not State.HELD:
                self._free(key)
                continue
            if key not in self._held:
                fresh.append(message)
            self._held.setdefault(key, set()).add(message.id)
            self._kept.add(message.id)
        if fresh:
            first = fresh[0]
            shown = ", ".join(message.to for message in fresh[:NAMED])
            if len(fresh) > NAMED:
                shown += f" and {count(len(fresh) - NAMED, 'other')}"
            reason = (
                f"{first.sender}'s messages to {shown} are held: {first.detail}. `relay release --all` sends "
                "them, `relay drop --held` drops them; `relay messages --state held` lists them."
            )
            self._bus.publish(MessagesHeld(reason))
            # The agent need not act, so do not wake it.
            text = f"Your messages to {shown} are held: {first.detail}. The user decides."
            self._tell(first, text, wakes=False, held=frozenset(names.key(each.to) for each in fresh))

    def _free(self, key: str) -> None:
        """Record that no message to this receiver is held any more, so later ones are reported again."""
        self._held.pop(key, None)
        for id, told in list(self._notices.items()):
            if key in told.held and not any(each in self._held for each in told.held):
                self._bus.publish(Withdraw(id))

    def settled(self, message: Message) -> None:
        """Record a changed state of one of the agent's messages."""
        for watched, changed in self._watches:
            if message.id in watched:
                watched[message.id] = message
                changed.set()
        key = names.key(message.to)
        dropped = message.state is State.EXPIRED and message.id in self._kept  # the agent expects it
        if message.state.final:
            self._kept.discard(message.id)
        if held := self._held.get(key):
            held.discard(message.id)
            if not held:
                self._free(key)
        if message.state is State.EXPIRED and message.channel is not None:
            return  # do not wake the sender because an absent channel member misses a message
        if message.state in {State.REJECTED, State.UNCERTAIN, State.EXPIRED}:
            for notice in self._notices.values():
                if names.same(notice.message.to, message.to) and notice.message.state is message.state:
                    notice.further += 1
                    notice.last = message
                    return
            text = f"Your message to {message.to} ({message.id}) is {message.state}.{_reason(message)}"
            self._tell(message, text, wakes=not dropped)

    def depth(self, injection: Injection) -> int | None:
        """Return the depth of the message that `injection` is about; None if it is not a notice from here."""
        notice = self._notices.get(injection.id)
        return None if notice is None else notice.message.depth

    def given(self, injection: Injection) -> None:
        """Record that `injection` was given to the agent, or never will be; report what it left out."""
        notice = self._notices.pop(injection.id, None)
        if notice is None or notice.last is None:
            return
        last, many = notice.last, notice.further
        if many == 1:
            text = f"One more of your messages to {last.to} ({last.id}) is {last.state}."
        else:
            text = f"{many} more of your messages to {last.to} (the last is {last.id}) are {last.state}."
        self._tell(last, text + _reason(last), wakes=False)

    def _tell(self, message: Message, text: str, *, wakes: bool, held: frozenset[str] = frozenset()) -> None:
        injection = notice(text, wakes=wakes)
        self._notices[injection.id] = _Notice(message, held=held)
        self._bus.publish(Inject(injection))


def _reason(message: Message) -> str:
    """Return why `message` did not arrive, in quotation marks: the words may be a peer's."""
    if not message.detail:
        return ""
    quoted = one_line(message.detail, QUOTED).replace('"', "'")
    return f' Reason reported for {message.to}: "{quoted}"'


def _ended(message: Message) -> bool:
    """Return True if the state will not change by itself; for the user, "stored" is final."""
    here = names.same(message.to, names.PERSON) and message.state is State.STORED
    return message.state.final or message.state is State.HELD or here
