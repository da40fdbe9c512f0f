"""The list of sessions of Qwen Code (list_agents), to which it writes by name (send_message).

Qwen documents the format, and that other programs may add themselves. Measured with 0.24.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.agents.peers import PeerList
from relay.agents.transcript_lines import text_of


class QwenPeers(PeerList):
    address = "ipcPath"
    id = "msgId"
    format = "schemaVersion", 1

    def usable(self, own: Mapping[str, Any]) -> bool:
        return ":" in text_of(own.get("procStart"))

    def details(self, own: Mapping[str, Any], ticks: str) -> dict[str, Any]:
        boot = text_of(own["procStart"]).partition(":")[0]
        return {
            "procStart": f"{boot}:{ticks}",
            "pidNs": own.get("pidNs"),
            "qwenVersion": None,
            "kind": "external",
        }
