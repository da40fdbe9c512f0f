"""The list of sessions of Qwen Code (list_agents), to which it writes by name (send_message).

Qwen documents the format, and that other programs may add themselves. Measured with 0.24.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.agents.door import Site
from relay.agents.kinds.qwen import home_of
from relay.agents.peers import Peer, PeerList, basics
from relay.agents.transcript_lines import text_of

SCHEMA = 1


class QwenPeers(PeerList):
    address = "ipcPath"
    id = "msgId"

    def __init__(self, site: Site) -> None:
        super().__init__(site, home_of(site.env) / "sessions")

    def unknown(self, own: Mapping[str, Any]) -> str:
        if own.get("schemaVersion") == SCHEMA and ":" in text_of(own.get("procStart")):
            return ""
        version = text_of(own.get("qwenVersion"))
        return f"records of Qwen Code {version} do not have schema {SCHEMA}, which relay knows"

    def record(self, peer: Peer, own: Mapping[str, Any]) -> dict[str, Any]:
        found = basics(peer)
        boot = text_of(own["procStart"]).partition(":")[0]
        return {
            **found,
            "schemaVersion": SCHEMA,
            "procStart": f"{boot}:{found['procStart']}",
            "pidNs": own.get("pidNs"),
            "qwenVersion": None,
            "kind": "external",
            self.address: peer.socket,
        }
