"""The topics of the bus, and what they say about who publishes.

    relay/v1/<team>/agents/<to>/inbox/<from>      messages and receipts for one agent
    relay/v1/<team>/presence/<name>               retained

A topic carries its publisher's name in its last level, so that a broker's access list can enforce it.
Levels hold names in the form in which they are compared; a `.` is written `~` (which no name contains),
because nats-server reads a dot as a level separator of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay import names

ROOT = "relay/v1"


@dataclass(frozen=True, slots=True)
class InboxTopic:
    """Where a message or receipt came in; team, to and sender are levels (see `level`)."""

    team: str
    to: str
    sender: str


@dataclass(frozen=True, slots=True)
class PresenceTopic:
    team: str
    name: str


@dataclass(frozen=True, slots=True)
class Grants:
    """What an access list allows: topic filters to publish to, and to receive from."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def level(name: str) -> str:
    """The topic level that stands for `name`."""
    return names.key(name).replace(".", "~")


def inbox(team: str, to: str, sender: str) -> str:
    return f"{ROOT}/{level(team)}/agents/{level(to)}/inbox/{level(sender)}"


def inbox_filter(team: str, name: str) -> str:
    """Matches all that is sent to `name`. (`inbox/#` is refused by nats-server under our grants.)"""
    return f"{ROOT}/{level(team)}/agents/{level(name)}/inbox/+"


def presence(team: str, name: str) -> str:
    return f"{ROOT}/{level(team)}/presence/{level(name)}"


def presence_filter(team: str) -> str:
    return f"{ROOT}/{level(team)}/presence/+"


def parse(topic: str) -> InboxTopic | PresenceTopic | None:
    """What `topic` is, or None if it is none of ours."""
    match topic.split("/"):
        case ["relay", "v1", team, "agents", to, "inbox", sender] if team and to and sender:
            return InboxTopic(team, to, sender)
        case ["relay", "v1", team, "presence", name] if team and name:
            return PresenceTopic(team, name)
    return None


def grants(team: str, name: str) -> Grants:
    """All that the agent `name` of `team` may do on a broker."""
    return Grants(
        publish=(inbox(team, "+", name), presence(team, name)),
        subscribe=(inbox_filter(team, name), presence_filter(team)),
    )
