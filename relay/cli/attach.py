"""Lend your terminal to a running session.

What has scrolled off comes first, the last 2,000 lines; then the screen is drawn as it stands, and the agent
takes your terminal's size.  Ctrl-] and then d detaches.  One terminal is attached at a time: --takeover takes
it from another one, whose owner is told.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket

from relay.cli.arguments import add_session
from relay.control.sessions import MAX_LINE, error_from, find_shim
from relay.errors import NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.terminal.client import HANDLED, Client, TerminalMode

_PATIENCE = 5.0  # seconds in which the shim must take our terminal


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--takeover", action="store_true", help="take it from the terminal that is attached")


def run(args: argparse.Namespace) -> int:
    if inside := os.environ.get("RELAY_SESSION"):
        raise NotAllowed(
            f"this terminal is inside a relay session ({os.environ.get('RELAY_NAME', inside)}); "
            "attach from a terminal outside of it."
        )
    mode = TerminalMode(0, 1)
    if not mode.interactive or mode.saved is None:
        raise UsageError("attach needs a terminal as its input and output.")
    shim = find_shim(Home.from_env(), args.name, args.team)
    *flags, control = mode.saved
    saved = [*flags, [c[0] if isinstance(c, bytes) else c for c in control]]
    request = {"op": "attach", "interactive": True, "saved": saved, "takeover": args.takeover}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_PATIENCE)
        # Until the client handles them: a signal would leave a raw terminal behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            try:
                channel.connect(os.fspath(shim))
                mode.lend()
                socket.send_fds(channel, [json.dumps(request).encode() + b"\n"], [0, 1])
                answer = json.loads(channel.recv(MAX_LINE, socket.MSG_PEEK).partition(b"\n")[0])
            except (OSError, ValueError) as error:
                what = f"its terminal does not answer ({error}). Is it still in `relay ps`?"
                raise RelayError(what) from None
            if "error" in answer:
                raise error_from(answer)
            channel.settimeout(None)
            return Client(channel, mode).run()
        finally:
            mode.restore()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
