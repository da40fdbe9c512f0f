"""The runaway guard: agents that answer each other endlessly, broadcast storms, a directive in a loop.

A message that looks like part of a runaway is committed and held, not sent: the user releases it (`relay
release`) or drops it.  There are three limits: how many messages one agent sends another in a minute, how
many led to this one since the user's last input, and how many broadcasts an agent makes in a minute.  While
a message of a pair is held, later ones are held too, to keep the order.
"""

from __future__ import annotations

from relay.dataclass import dataclass
from relay.settings import Settings

WINDOW = 60.0
"""Seconds over which messages and broadcasts are counted."""

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for one agent, beyond which messages are held for the user; 0: no limit.

    rate:       messages from one agent to another in WINDOW.
    depth:      messages that led to one another since the user's last input.
    broadcasts: broadcasts of one agent in WINDOW.
    queue:      waiting messages of one sender, and those of other homes for one receiver; more are refused.
    ttl:        seconds after which a message that has not arrived expires.
    """

    rate: int = 200
    depth: int = 50
    broadcasts: int = 30
    queue: int = 20_000
    ttl: float = WEEK

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        runaway = (settings.runaway_rate, settings.runaway_depth, settings.runaway_broadcasts)
        return cls(*runaway, queue=settings.queue_limit, ttl=settings.expire_seconds)


def suspicion(limits: Limits, held: bool, lately: int, broadcasts: int, depth: int) -> str | None:
    """Return why a message must be held, for the user; None if it may be sent.

    held:       messages of this sender to this receiver are held.
    lately:     its messages to this receiver in WINDOW, since the user last released any.
    broadcasts: likewise its broadcasts; 0 for a message to one receiver.
    depth:      how many messages led to it since the user's last input.
    """
    if held:
        return "earlier messages of this pair are held"
    if limits.depth and depth > limits.depth:
        return f"{depth} messages led to it since the user's last input"
    if limits.rate and lately >= limits.rate:
        return f"{limits.rate} messages of this pair within {WINDOW:.0f} s"
    if limits.broadcasts and broadcasts >= limits.broadcasts:
        return f"{limits.broadcasts} broadcasts of this sender within {WINDOW:.0f} s"
    return None
