"""The door that relay's plug-in in an agent keeps (relay/agents/kinds/door.mjs has the protocol)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from relay.agents.door import Door, Offer, OfferState, Site, path_of
from relay.agents.hook_setup import working

_ANSWERS = {
    "accepted": OfferState.ACCEPTED,
    "delivered": OfferState.DELIVERED,
    "busy": OfferState.BUSY,
    "refused": OfferState.REFUSED,
    "withdrawn": OfferState.REFUSED,
}


class PluginDoor(Door):
    """A socket on which the plug-in listens.

    The agent's prompt hook precedes its decision to take a text, so only the plug-in's word counts.
    """

    hook_proves: ClassVar[bool] = False
    hook_stops: ClassVar[bool] = False

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._path = path_of(site.socket)
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def closed(self) -> str:
        return "" if Path(self._path).exists() else "relay's plug-in in it does not listen"

    def idle(self) -> bool | None:
        return not Path(working(self.site.directory)).exists()

    async def offer(self, offer: Offer) -> OfferState:
        """Return the outcome, which follows the acceptance: the agent asks its prompt hook first."""
        if not await self._send({"offer": offer.id, "text": offer.text}):
            return OfferState.REFUSED
        state = await self._answer(offer)
        return await self._answer(offer) if state is OfferState.ACCEPTED else state

    async def settle(self, offer: Offer) -> OfferState:
        """Withdraw `offer`; that is final, even if the plug-in reads the offer only later."""
        return await self._answer(offer) if await self._send({"withdraw": offer.id}) else OfferState.UNKNOWN

    async def delivered(self, offer: Offer) -> None:
        if await self._answer(offer) is not OfferState.DELIVERED:
            await super().delivered(offer)

    async def _send(self, request: dict[str, str]) -> bool:
        """Return False if nothing listens."""
        self._close()
        try:
            self._link = await asyncio.open_unix_connection(self._path)
        except OSError:
            return False
        self._link[1].write(json.dumps(request).encode() + b"\n")
        return True

    async def _answer(self, offer: Offer) -> OfferState:
        """Return the next word about `offer`; UNKNOWN if the connection has ended."""
        state = OfferState.UNKNOWN
        if self._link is not None:
            with suppress(OSError, ValueError, TypeError, KeyError):  # its end, or not our plug-in's
                answer = {"id": ""}
                while answer["id"] != offer.id:
                    answer = json.loads(await self._link[0].readline())
                state = _ANSWERS.get(answer["state"], state)
        if state is not OfferState.ACCEPTED:
            self._close()
        return state

    def _close(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None
