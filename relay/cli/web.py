"""Show your agents in a browser: what they do and ask, their terminals, messages, your inbox.

Prints an address that opens the page once, within a minute; Enter prints another one. The server answers
only this machine, and no agent's process. Ctrl-C ends it, and closes what is open in browsers; agents keep
running.

For a phone or another machine, forward the port with ssh, and open the address there (docs/WEB.md):

  ssh -L 7349:127.0.0.1:7349 HOST
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from urllib.parse import urlsplit

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
    from relay.control.commands import Commands

    commands = Commands(dispatch)  # before anything that starts a thread
    try:
        from relay.web.server import serve

        browser = None if args.no_browser or args.pair else _browser()
        return serve(home.ensure(), commands, args.port, lambda url: _show(url, qr=args.pair), browser)
    finally:
        commands.close()


def _browser() -> str | None:
    """Return the program that opens an address in the user's browser, None if there is none, or no display.

    Others see its command line, so only a process that is known to be the user's may use the address.
    """
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return shutil.which("xdg-open") if display and sys.platform == "linux" else None


def _show(url: str, *, qr: bool) -> None:
    print(url, flush=True)
    if qr:
        import segno

        segno.make(url, error="m").terminal(out=sys.stdout, border=2, compact=True)
        sys.stdout.flush()
        port = urlsplit(url).port
        print(
            f"relay: forward the port to the phone first: ssh -L {port}:127.0.0.1:{port} HOST",
            file=sys.stderr,
        )
