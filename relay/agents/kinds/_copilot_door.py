"""The door of Copilot CLI: relay's extension in it."""

from __future__ import annotations

from typing import ClassVar

from relay.agents.door import Offer, OfferState
from relay.agents.kinds._plugin_door import PluginDoor
from relay.agents.transcript_lines import dict_of, object_in, text_of


class CopilotDoor(PluginDoor):
    """Copilot starts the extension again with each of its sessions; the new one knows of no earlier offer."""

    hook_stops: ClassVar[bool] = True  # an enqueued prompt has a turn, and so a hook, of its own

    async def settle(self, offer: Offer) -> OfferState:
        state = await super().settle(offer)
        return OfferState.UNKNOWN if state is OfferState.REFUSED else state

    def told(self, line: bytes) -> str:
        entry = object_in(line) if b"[/relay " in line else {}
        user = entry.get("type") == "user.message"
        return text_of(dict_of(entry.get("data")).get("content")) if user else ""
