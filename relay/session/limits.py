"""The limits of the runaway guard, as relay.toml has them."""

from __future__ import annotations

from pathlib import Path

from relay.home import Home
from relay.hooks.trust import Trust
from relay.messaging.runaway import Limits
from relay.settings import Settings, load


def limits_of(settings: Settings) -> Limits:
    return Limits(
        rate=settings.runaway_rate,
        depth=settings.runaway_depth,
        broadcasts=settings.runaway_broadcasts,
        queue=settings.queue_limit,
        ttl=settings.expire_seconds,
    )


def limits_here(home: Home) -> Limits:
    """Those for whoever sends from the working directory; what is wrong with a file, a session tells."""
    settings, _ = load(home, Path.cwd(), Trust(home).covers_file)
    return limits_of(settings)
