"""Show your agents in a browser: what they do and ask, their terminals, messages, your inbox.

Prints an address that opens the page once, within a minute; Enter prints another one. The server answers only
this machine, and no agent's process. Ctrl-C ends it, and closes what is open in browsers; agents keep running.

For a phone or another machine, forward the port with ssh, and open the address there (docs/WEB.md):

  ssh -L 7349:127.0.0.1:7349 HOST
"""

from __future__ import annotations

import argparse
import sys

from relay.control.guard import user_only
from relay.home import Home


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, metavar="N", help="the port (default: 7349, or a free one)")
    parser.add_argument("--no-browser", action="store_true", help="do not open the address in your browser")
    parser.add_argument("--pair", action="store_true", help="also print each address as a QR code")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) < 1 << 16:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535, or 0 for any")
    return int(text)


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, "web", "an agent may not start relay web. The user can, outside the session.")
    from relay.cli.main import dispatch
    from relay.web.commands import Commands

    commands = Commands(dispatch)  # before anything that starts a thread
    try:
        from relay.web.server import serve

        opens = not (args.no_browser or args.pair)
        return serve(home.ensure(), commands, args.port, lambda url: _show(url, qr=args.pair, opens=opens))
    finally:
        commands.close()


def _show(url: str, *, qr: bool, opens: bool) -> None:
    print(url, flush=True)
    if qr:
        import segno

        segno.make(url, error="m").terminal(out=sys.stdout, border=2, compact=True)
        sys.stdout.flush()
