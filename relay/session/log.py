"""The log of all sessions of a home: what they print, and the tracebacks of relay's own bugs."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.home import Home

LARGE_LOG = 8_000_000
"""Bytes of session.log above which a session starts a new one; the old one is kept as session.log.1."""


def open_log(home: Home) -> int:
    """Return a descriptor of the sessions' log; start a new log if it is large. Raise OSError."""
    path = os.path.join(home.state_dir, "session.log")
    try:
        if os.stat(path).st_size > LARGE_LOG:
            os.replace(path, path + ".1")
    except FileNotFoundError:
        pass  # the first log
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
