"""A connection on which a session sends what its agent's terminal shows (relay.terminal.view_stream)."""

from __future__ import annotations

import socket

from relay.control.sessions import SessionInfo
from relay.peer import connect
from relay.storage.locks import is_held
from relay.terminal.viewer import AgentEnded


def view(session: SessionInfo) -> socket.socket | None:
    """Return the connection, which never blocks; None if no session takes one now. Raise AgentEnded."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.setblocking(False)
        connect(channel, session.socket)
        channel.sendall(b'{"op": "view"}\n')
        return channel
    except OSError:
        channel.close()
        if not is_held(session.socket.with_suffix(".lock")):
            raise AgentEnded(None) from None
        return None
