"""The rows of `relay doctor --broker`: claims about a broker, and advice if they do not hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Finding(StrEnum):
    HOLDS = "holds"
    BROKEN = "does NOT hold"
    UNPROVED = "cannot be proved"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A claim about the broker, and what was found. detail: the evidence, or what to do."""

    key: str
    status: Finding
    detail: str

    @property
    def claim(self) -> str:
        return CLAIMS[self.key]


CLAIMS = {
    "reach": "it can be reached",
    "login": "it answers to a login, and accepts it",
    "subscribe": "it grants what an agent has to hear",
    "passes": "a message passes",
    "cluster": "all addresses lead to one bus",
    "own": "agents can do what they must",
    "anonymous": "nobody gets in without credentials",
    "tls": "what travels is encrypted, and the broker is who it says it is",
    "publish": "nobody publishes as another",
    "inbox": "nobody reads another's inbox",
    "wildcard": "nobody reads everybody's mail by wildcards",
    "presence": "nobody announces another's presence",
    "will": "nobody leaves a will as another",
    "session": "nobody takes or wipes another's mailbox",
    "team": "nobody sees another team or writes to it",
    "internals": "nobody reads the broker's own topics",
    "native": "the credentials open no port for NATS clients",
}
"""The claims by their keys, in the order of the rows."""

ADVICE = {
    "own": "Grant what `relay broker acl` writes for that user.",
    "publish": "Let a user write to relay/v1/TEAM/agents/+/inbox/NAME under its own NAME only.",
    "inbox": "Let a user read relay/v1/TEAM/agents/NAME/inbox/+ of its own NAME only.",
    "wildcard": "Let a user read relay/v1/TEAM/agents/NAME/inbox/+ of its own NAME only.",
    "presence": "Let a user write to relay/v1/TEAM/presence/NAME under its own NAME only.",
    "will": "The broker has to check wills as it checks what is published.",
    "session": "The broker has to keep the sessions of users apart.",
    "team": "Let a user read and write below relay/v1/TEAM of its own team only.",
    "internals": "Let nobody read $SYS/# and other topics that begin with $.",
}
