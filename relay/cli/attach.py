"""Lend your terminal to a running session.

The screen is drawn as it stands, and the agent takes your terminal's size.  Ctrl-] and then d detaches; a
terminal that was attached before is given back to its owner.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket

from relay.cli.arguments import add_session
from relay.control.sessions import MAX_LINE, error_from, find
from relay.errors import NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.terminal.client import HANDLED, Client, TerminalMode

_PATIENCE = 5.0  # seconds in which a session must take our terminal; it gives another's back first


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)


def run(args: argparse.Namespace) -> int:
    if inside := os.environ.get("RELAY_SESSION"):
        raise NotAllowed(
            f"this terminal is inside a relay session ({os.environ.get('RELAY_NAME', inside)}); "
            "attach from a terminal outside of it."
        )
    mode = TerminalMode(0, 1)
    if not mode.interactive or mode.saved is None:
        raise UsageError("attach needs a terminal as its input and output.")
    session = find(Home.from_env(), args.name, args.team)
    *flags, control = mode.saved
    saved = [*flags, [c[0] if isinstance(c, bytes) else c for c in control]]
    request = {"op": "attach", "interactive": True, "saved": saved}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_PATIENCE)
        # Until the client handles them: a signal would leave a raw terminal behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            try:
                channel.connect(os.fspath(session.socket))
                mode.lend()
                socket.send_fds(channel, [json.dumps(request).encode() + b"\n"], [0, 1])
                answer = json.loads(channel.recv(MAX_LINE, socket.MSG_PEEK).partition(b"\n")[0])
            except (OSError, ValueError) as error:
                what = f"the session does not answer ({error}). Is it still in `relay ps`?"
                raise RelayError(what) from None
            if "error" in answer:
                raise error_from(answer)
            channel.settimeout(None)
            return Client(channel, mode).run()
        finally:
            mode.restore()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
