"""Lend your terminal to a running session.

The screen is drawn as it stands, and the agent takes your terminal's size.  Ctrl-] and then d detaches; a
terminal that was attached before is given back to its owner.
"""

from __future__ import annotations

import argparse
import json
import os
import socket

from relay.errors import NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.session.directory import MAX_LINE, error_from, find
from relay.terminal.client import Client, TerminalMode


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the session, as `relay ps` lists it")
    parser.add_argument("-t", "--team", metavar="TEAM", help="look in this team only")


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
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(os.fspath(session.socket))
        mode.lend()
        socket.send_fds(channel, [json.dumps(request).encode() + b"\n"], [0, 1])
        answer = json.loads(channel.recv(MAX_LINE, socket.MSG_PEEK).partition(b"\n")[0] or b"{}")
        if "error" in answer:
            raise error_from(answer)
    except (OSError, ValueError) as error:
        mode.restore()
        raise RelayError(f"the session does not answer ({error}). Is it still in `relay ps`?") from None
    except RelayError:
        mode.restore()
        raise
    return Client(channel, mode).run()
