"""The list of sessions of Claude Code (ListAgents), to which it writes by name (SendMessage, `@Bob`).

Its format is not documented; each record names its protocol. Measured with 2.1.332. A record needs no key:
its socket is then written to without a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.agents.door import Site
from relay.agents.kinds.claude import folder_of, without_envelope
from relay.agents.peers import Peer, PeerList, basics
from relay.agents.transcript_lines import text_of

PROTOCOL = 1


class ClaudePeers(PeerList):
    address = "messagingSocketPath"
    id = "msg_id"

    def __init__(self, site: Site) -> None:
        super().__init__(site, folder_of(site.env) / "sessions")

    def unknown(self, own: Mapping[str, Any]) -> str:
        if own.get("peerProtocol") == PROTOCOL and text_of(own.get("pidDomain")):
            return ""
        version = text_of(own.get("version"))
        return f"sessions of Claude Code {version} do not speak protocol {PROTOCOL}, which relay knows"

    def record(self, peer: Peer, own: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **basics(peer),
            "peerProtocol": PROTOCOL,
            "kind": "interactive",
            "entrypoint": "relay",
            "pidDomain": own["pidDomain"],
            self.address: peer.socket,
        }

    def body(self, content: str) -> str:
        return without_envelope(content)
