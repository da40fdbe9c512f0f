"""Tracks what becomes of the messages that one agent sends, and who learns of it.

    injected     whoever waits for it (`ctx.relay.send(..., wait=...)`)
    otherwise    the agent, too; and when it is held, the user

Notices start no loop: while one to the agent waits, what it would be told of further messages to the same
receiver is gathered into the next, and a notice counts as deep as the message it tells of
(relay.messaging.reply_chain).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from relay import names
from relay.eventbus import EventBus
from relay.injection.events import Inject, Withdraw
from relay.injection.injection import Injection, notice
from relay.message import Message, State
from relay.messaging.events import MessagesHeld
from relay.text import count, one_line

NAMED = 3
"""Receivers of held messages that the person is told by name, at one time."""

QUOTED = 200
"""Characters of the reason for which a message did not arrive that the agent is told."""


@dataclass(slots=True)
class _Notice:
    """One that waits to be given to the agent.

    further: of how many more messages it would have told; last: the last of those.
    held: the receivers (keys) for whom messages are held, if it tells of that.
    """

    message: Message
    further: int = 0
    last: Message | None = None
    held: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Watch:
    """Somebody waits for the end of these messages."""

    messages: dict[str, Message]
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class DeliveryTracker:
    """Follows the messages of one agent."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._watches: list[_Watch] = []
        self._notices: dict[str, _Notice] = {}  # by the ids of their injections
        self._held: dict[str, set[str]] = {}  # by receiver: the ids of what is held, as far as is known
        self._kept: set[str] = set()  # the ids of what was ever held, until its end

    async def wait(self, messages: Iterable[Message], seconds: float) -> list[Message]:
        """Return `messages` as they are once all have come to an end or are held, or after `seconds`."""
        watch = _Watch({message.id: message for message in messages})
        self._watches.append(watch)
        try:
            async with asyncio.timeout(seconds):
                while not all(map(_ended, watch.messages.values())):
                    watch.changed.clear()
                    await watch.changed.wait()
        except TimeoutError:
            pass
        finally:
            self._watches.remove(watch)
        return list(watch.messages.values())

    def sent(self, messages: Sequence[Message]) -> None:
        """Note what the agent has sent at one time; what of it is held is told once for each receiver."""
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
            self._bus.publish(
                MessagesHeld(
                    f"{first.sender}'s messages to {shown} are held: {first.detail}. `relay release --all` lets "
                    "what is held go on, `relay drop --held` gives it up; `relay messages --state held` lists it."
                )
            )
            # It needs nothing of the agent, and is no reason to wake it.
            text = f"Your messages to {shown} are held: {first.detail}. The person decides."
            self._tell(first, text, wakes=False, held=frozenset(names.key(each.to) for each in fresh))

    @property
    def holding(self) -> bool:
        """True if something of the agent's is held, as far as is known."""
        return bool(self._held)

    def still_held(self, ids: Set[str]) -> None:
        """Note that only these of the agent's messages are held now: what was told of others is over."""
        for key, held in list(self._held.items()):
            held &= ids
            if not held:
                self._free(key)

    def _free(self, key: str) -> None:
        """Nothing is held for this receiver any more; should something be again, that is told again."""
        self._held.pop(key, None)
        for id, told in list(self._notices.items()):
            if key in told.held and not any(each in self._held for each in told.held):
                self._bus.publish(Withdraw(id))

    def settled(self, message: Message) -> None:
        """Note that the state of a message of the agent has changed."""
        for watch in self._watches:
            if message.id in watch.messages:
                watch.messages[message.id] = message
                watch.changed.set()
        key = names.key(message.to)
        dropped = message.state is State.EXPIRED and message.id in self._kept  # as the agent knows
        if message.state.final:
            self._kept.discard(message.id)
        if held := self._held.get(key):
            held.discard(message.id)
            if not held:
                self._free(key)
        if message.state is State.EXPIRED and message.channel is not None:
            return  # what an absent member of a channel misses is no reason to wake the sender
        if message.state in {State.REJECTED, State.UNCERTAIN, State.EXPIRED}:
            for notice in self._notices.values():
                if names.same(notice.message.to, message.to) and notice.message.state is message.state:
                    notice.further += 1
                    notice.last = message
                    return
            text = f"Your message to {message.to} ({message.id}) is {message.state}.{_reason(message)}"
            self._tell(message, text, wakes=not dropped)

    def depth(self, injection: Injection) -> int | None:
        """Return the depth of the message of which `injection` tells; None if it is no notice of ours."""
        notice = self._notices.get(injection.id)
        return None if notice is None else notice.message.depth

    def given(self, injection: Injection) -> None:
        """Note that `injection` was given to the agent, or never will be."""
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
    """Why it did not arrive, as a quotation: it may be the words of a peer, and is not relay's own."""
    if not message.detail:
        return ""
    quoted = one_line(message.detail, QUOTED).replace('"', "'")
    return f' The reason, as reported for {message.to}: "{quoted}"'


def _ended(message: Message) -> bool:
    """Whether nothing more becomes of it by itself; what is for the person has arrived when it is stored."""
    here = names.same(message.to, names.PERSON) and message.state is State.STORED
    return message.state.final or message.state is State.HELD or here
