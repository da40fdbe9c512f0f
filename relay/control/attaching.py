"""Attaching a terminal to an agent: its shim gets the descriptors, and reads and writes them from then on."""

from __future__ import annotations

import json
import socket
from typing import Any

from relay.control.sessions import MAX_LINE, SessionInfo, error_from
from relay.errors import RelayError
from relay.peer import connect

_TIMEOUT = 5.0  # seconds the shim has to take over a terminal


def attach(
    session: SessionInfo,
    channel: socket.socket,
    terminal: tuple[int, int],
    attributes: list[Any],
    *,
    takeover: bool,
) -> None:
    """Attach a terminal, which is in raw mode; `channel` then speaks the protocol of relay.terminal.client.

    terminal: its descriptors for input and output. attributes: those of termios(3) from before raw mode.
    takeover: from the terminal that is attached. Raise the error that the shim answers, or RelayError.
    """
    *flags, control = attributes
    saved = [*flags, [c[0] if isinstance(c, bytes) else c for c in control]]
    request = {"op": "attach", "interactive": True, "saved": saved, "takeover": takeover}
    channel.settimeout(_TIMEOUT)
    try:
        connect(channel, session.shim)
        socket.send_fds(channel, [json.dumps(request).encode() + b"\n"], [*terminal])
        answer = json.loads(channel.recv(MAX_LINE, socket.MSG_PEEK).partition(b"\n")[0])
    except (OSError, ValueError) as error:
        what = f"its terminal does not answer ({error}). Check that `relay ps` still lists it."
        raise RelayError(what) from None
    if "error" in answer:
        raise error_from(answer)
    channel.settimeout(None)
