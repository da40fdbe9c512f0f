"""The topics of the bus.

    relay/v1/<team>/agents/<to>/inbox/<from>      messages and receipts for one agent
    relay/v1/<team>/presence/<name>               retained

A topic carries its publisher's name in its last level, so a broker's access list can enforce it.
Levels hold names in their normalised form; a `.` is written `~` (which no name contains), because nats-server
reads a dot as its own level separator.
"""

from __future__ import annotations

from functools import lru_cache

from relay import names
from relay.dataclass import dataclass

ROOT = "relay/v1"


@dataclass(frozen=True, slots=True)
class InboxTopic:
    """The topic of a message or receipt. team, to and sender are levels (see `level`)."""

    team: str
    to: str
    sender: str


@dataclass(frozen=True, slots=True)
class PresenceTopic:
    """The topic of an announcement or claim. team and name are levels."""

    team: str
    name: str


@lru_cache(1024)
def level(name: str) -> str:
    return names.key(name).replace(".", "~")


def inbox(team: str, to: str, sender: str) -> str:
    return f"{ROOT}/{level(team)}/agents/{level(to)}/inbox/{level(sender)}"


def inbox_filter(team: str, name: str) -> str:
    """Return a filter for everything sent to `name`; nats-server would refuse `inbox/#` under our grants."""
    return f"{ROOT}/{level(team)}/agents/{level(name)}/inbox/+"


def presence(team: str, name: str) -> str:
    return f"{ROOT}/{level(team)}/presence/{level(name)}"


def presence_filter(team: str) -> str:
    return f"{ROOT}/{level(team)}/presence/+"


@lru_cache(1024)
def parse(topic: str) -> InboxTopic | PresenceTopic | None:
    """Return the parts of `topic`; None if it is not ours."""
    match topic.split("/"):
        case ["relay", "v1", team, "agents", to, "inbox", sender] if team and to and sender:
            return InboxTopic(team, to, sender)
        case ["relay", "v1", team, "presence", name] if team and name:
            return PresenceTopic(team, name)
    return None


def grants(team: str, name: str) -> dict[str, list[str]]:
    """Return the topic filters to which the agent `name` of `team` may "publish" and "subscribe"."""
    return {
        "publish": [inbox(team, "+", name), presence(team, name)],
        "subscribe": [inbox_filter(team, name), presence_filter(team)],
    }
