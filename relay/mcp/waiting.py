"""wait_for_message: takes the messages of an agent from its session, and the user's from the ledger."""

from __future__ import annotations

import json
import select
import socket
import time
from contextlib import suppress
from functools import partial

from relay.control.sessions import error_from, reach
from relay.errors import SessionUnresponsive
from relay.mcp.server import READ, UNREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.control.caller import Caller
    from relay.home import Home
    from relay.mcp.server import Settle

_LEDGER_CHECK_EVERY = 0.1
_PATIENCE = 5.0  # seconds for a session that is starting or busy, besides the time to wait
_MOST = 20  # messages for the user at a time
_NOTHING = "No message came within {:g} s."


def wait(home: Home, own: Caller | None, seconds: float, link: socket.socket) -> tuple[str, Settle | None]:
    """Return the waiting messages, or the first to come within `seconds`, and what tells of their arrival.

    link: readable once the call is cancelled.
    """
    if own is None:
        return _of_user(home, seconds, link)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline + _PATIENCE:
        left = max(deadline - time.monotonic(), 0.0)
        channel = reach(own.socket, time.monotonic() + _PATIENCE)
        line = b""
        with suppress(ConnectionError):
            channel.sendall(json.dumps({"op": "receive", "seconds": left}).encode() + b"\n")
            readable = _first((link, channel), left + _PATIENCE)
            if readable is link:
                _settle(channel, UNREAD)
                return "", None
            if readable is None:
                break
            with channel.makefile("rb") as stream:
                line = stream.readline()
        if line.endswith(b"\n"):
            answer = json.loads(line)
            if "error" in answer:
                raise error_from(answer)
            return answer["text"] or _NOTHING.format(seconds), partial(_settle, channel)
        channel.close()  # the session has ended: its successor is asked
    raise SessionUnresponsive(f"{own.name}'s session does not answer. Ask the user to look: `relay ps`.")


def _settle(channel: socket.socket, verdict: bytes) -> None:
    """Tell the session whether the agent has its answer."""
    with suppress(OSError), channel:
        if verdict:
            channel.sendall(json.dumps({"op": "received", "read": verdict == READ}).encode() + b"\n")


def _first(channels: tuple[socket.socket, ...], seconds: float) -> socket.socket | None:
    readable, _, _ = select.select(channels, (), (), seconds)
    return readable[0] if readable else None


def _of_user(home: Home, seconds: float, link: socket.socket) -> tuple[str, Settle | None]:
    from relay.injection import layout
    from relay.injection.injection import Injection
    from relay.messaging.ledger import Ledger

    ledger = Ledger(home.ensure().ledger)
    deadline = time.monotonic() + seconds
    while not (unread := ledger.unread(None)[:_MOST]) and time.monotonic() < deadline:
        if _first((link,), min(_LEDGER_CHECK_EVERY, seconds)):
            return "", None
    texts = []
    for message in (entry.message for entry in unread):
        injection = Injection(message.id, message.body, message.sender, channel=message.channel)
        texts.append(layout.enclose([(injection, layout.clean(injection))], layout.mark_of(injection)))

    def settle(verdict: bytes) -> None:
        for entry in unread if verdict == READ else ():
            ledger.read(entry.message.id)

    return "\n".join(texts) or _NOTHING.format(seconds), settle
