"""The rows of `relay doctor --broker`: claims about a broker, and advice if they do not hold."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from relay.dataclass import dataclass


class Finding(StrEnum):
    HOLDS = "holds"
    BROKEN = "does NOT hold"
    UNPROVED = "cannot be proved"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A claim about the broker, and the finding. detail: the evidence, or what to do."""

    key: str
    status: Finding
    detail: str

    @property
    def claim(self) -> str:
        return CLAIMS[self.key]


def unproved(keys: Iterable[str], found: Iterable[ProbeResult], why: str) -> list[ProbeResult]:
    """Return a row for each of `keys` that is not among `found`."""
    known = {row.key for row in found}
    return [ProbeResult(key, Finding.UNPROVED, why) for key in keys if key not in known]


CLAIMS = {
    "reach": "it can be reached",
    "login": "it answers and accepts a login",
    "subscribe": "it lets an agent subscribe to its topics",
    "passes": "a message passes",
    "cluster": "all addresses lead to the same bus",
    "own": "agents can do what they must",
    "anonymous": "nobody gets in without credentials",
    "tls": "traffic is encrypted, and the broker's identity is verified",
    "publish": "nobody publishes as another",
    "inbox": "nobody reads another's inbox",
    "wildcard": "nobody reads everybody's mail by wildcards",
    "presence": "nobody announces another's presence",
    "will": "nobody leaves a will as another",
    "session": "nobody takes or wipes another's mailbox",
    "team": "nobody sees another team or writes to it",
    "internals": "nobody reads the broker's own topics",
    "native": "the credentials do not work on a port for NATS clients",
}
"""The claims by their keys, in the order of the rows."""

ADVICE = {
    "own": "Grant what `relay broker acl` writes for that user.",
    "publish": "Let a user write to relay/v1/TEAM/agents/+/inbox/NAME under its own NAME only.",
    "inbox": "Let a user read relay/v1/TEAM/agents/NAME/inbox/+ of its own NAME only.",
    "wildcard": "Let a user read relay/v1/TEAM/agents/NAME/inbox/+ of its own NAME only.",
    "presence": "Let a user write to relay/v1/TEAM/presence/NAME under its own NAME only.",
    "will": "The broker must check wills like other published messages.",
    "session": "The broker must keep the sessions of different users apart.",
    "team": "Let a user read and write below relay/v1/TEAM of its own team only.",
    "internals": "Let nobody read $SYS/# and other topics that begin with $.",
}
