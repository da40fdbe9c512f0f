"""A door: an agent's own inbox, which takes a text without its keyboard.

    offer ─┬→ accepted ─┬→ delivered      the model has it: prompt hook, transcript or door show it
           │            └→ settle         no proof: what became of it?
           ├→ unknown ──→ settle          it may have been taken
           └→ busy, refused               it was not taken

AgentKind.door makes the door of one run. A door says what the agent says, and decides nothing:
relay.injection.door_delivery uses it, one text at a time, and keeps what it has offered for the next session.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar

from relay.dataclass import dataclass

OPEN = "it takes texts, so relay types none"
"""The description of a door that relay uses."""

SETTING_LOOK_EVERY = 1.0
"""Seconds between two looks at the user's setting for messages of other agents."""


class OfferState(StrEnum):
    """The fate of an offer, as far as it is known."""

    ACCEPTED = "accepted"  # taken; proof follows
    DELIVERED = "delivered"  # the model has it
    BUSY = "busy"  # not taken; a later offer may be
    REFUSED = "refused"  # not taken, or withdrawn: it will never be delivered
    UNKNOWN = "unknown"  # it may have been taken


@dataclass(frozen=True, slots=True)
class Offer:
    """One text for the agent.

    id:     of this offer, a UUID: another offer of the same text has another id.
    text:   with relay's marks (relay.injection.layout). mark: the one that ends it, `[/relay 3f9a41c7]`.
    sender: for the agent and its user, such as `Alice`.
    """

    id: str
    text: str
    mark: str
    sender: str


@dataclass(slots=True)
class Site:
    """The place of one running agent.

    env:        the agent's environment. directory: of the run's files. socket: where its session listens.
    owns:       says whether a process id is one of the agent's.
    session_id, transcript: the agent's own, as its hooks last reported them; "" before that.
    """

    env: Mapping[str, str]
    directory: str
    socket: str
    owns: Callable[[int], bool]
    session_id: str = ""
    transcript: str = ""


class Door(ABC):
    """The door of one running agent. Its methods raise nothing but cancellation; none takes long.

    limit:       the bytes of UTF-8 of the longest text.
    delay:       the seconds until an idle agent looks into its inbox.
    hook_proves: the agent's prompt hook reports an offered text with its mark when the model gets it.
    foreign:     its model reads that another agent has sent the text, whoever it was.
    hook_stops:  a refusal by that hook drops an offered text, even late, and nothing else.
    setting:     the name of the user's setting for messages of other agents.
    """

    limit: ClassVar[int] = 1 << 20
    delay: ClassVar[float] = 0.0
    foreign: ClassVar[bool] = False
    hook_proves: ClassVar[bool] = True
    hook_stops: ClassVar[bool] = True
    setting: ClassVar[str] = ""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._inbound, self._look_at = "", 0.0

    @abstractmethod
    def closed(self) -> str:
        """Return why there is no door now, for `relay explain`; "" if there is one.

        The user's own settings may close it: texts are typed then.
        """

    def held(self) -> str:
        """Return which setting of the user's holds the messages of other agents; "" if none does.

        It may be a second old: while a message waits, each output of the agent asks for it.
        """
        if time.monotonic() >= self._look_at:
            self._inbound, self._look_at = self.inbound(), time.monotonic() + SETTING_LOOK_EVERY
        holds = self._inbound in {"hold", "refuse"}
        return f"you have set {self.setting} to {self._inbound}" if holds else ""

    def inbound(self) -> str:
        """Return the value of that setting in the agent's files; "" if there is none."""
        return ""

    def idle(self) -> bool | None:
        """Return whether the agent says that it waits for a prompt; None if it does not say.

        False: it works, or shows its user a dialog.
        """
        return None

    def pause(self) -> float:
        """Return the seconds until the agent takes another text: its limit of texts for a time."""
        return 0.0

    @abstractmethod
    async def offer(self, offer: Offer) -> OfferState:
        """Offer a text to the idle agent."""

    async def delivered(self, offer: Offer) -> None:
        """Return once the door itself reports that the model has the text; by default, never."""
        import asyncio  # not before an agent runs: its launch needs `path_of`

        await asyncio.get_running_loop().create_future()

    async def settle(self, offer: Offer) -> OfferState:
        """Withdraw `offer`, which may come from an earlier session, unless the model has it.

        REFUSED is final: it was not delivered, and never will be. By default, UNKNOWN.
        """
        return OfferState.UNKNOWN

    def told(self, line: bytes) -> str:
        """Return what a complete line of the transcript shows the model to have got; "" for another line."""
        return ""


class NoDoor(Door):
    """The door of an agent that has none."""

    def closed(self) -> str:
        return "this kind of agent has no inbox that relay knows"

    async def offer(self, offer: Offer) -> OfferState:
        return OfferState.REFUSED


def path_of(socket: str) -> str:
    """Return where a plug-in in the agent listens: beside the session's `socket`, whose path is short."""
    return socket.removesuffix(".sock") + ".door"
