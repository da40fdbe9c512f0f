"""The list of sessions of Claude Code (ListAgents), to which it writes by name (SendMessage, `@Bob`).

Its format is not documented; each record names its protocol. Measured with 2.1.332. A record needs no key:
its socket is then written to without a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.agents.kinds.claude import without_envelope
from relay.agents.peers import PeerList
from relay.agents.transcript_lines import text_of


class ClaudePeers(PeerList):
    address = "messagingSocketPath"
    id = "msg_id"
    format = "peerProtocol", 1

    def usable(self, own: Mapping[str, Any]) -> bool:
        return bool(text_of(own.get("pidDomain")))

    def details(self, own: Mapping[str, Any], ticks: str) -> dict[str, Any]:
        return {"kind": "interactive", "entrypoint": "relay", "pidDomain": own["pidDomain"]}

    def body(self, content: str) -> str:
        return without_envelope(content)
