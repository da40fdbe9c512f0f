"""The limits of the runaway guard for who sends without a session."""

from __future__ import annotations

from pathlib import Path

from relay.home import Home
from relay.hooks.trust import Trust
from relay.messaging.runaway import Limits
from relay.settings import load


def limits_here(home: Home) -> Limits:
    """Return the limits for a sender in the working directory; a session reports what is wrong with a file."""
    settings, _ = load(home, Path.cwd(), Trust(home).covers_file)
    return Limits.of(settings)
