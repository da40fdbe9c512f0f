"""Notifications on the user's desktop, through desktop-notifier (D-Bus, or macOS' Notification Center).

A separate process, which runs this file as a program, shows them. This keeps the library and its waiting out
of the session, which gives up on a desktop that does not answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

TIMEOUT = 10.0
"""Seconds the desktop has to accept a notification; D-Bus may have to start its service first."""

APP = "relay"


async def notify(title: str, text: str) -> str:
    """Show a notification. Return "" or, for the user, why it failed.

    Desktops of Linux read the text as markup (Desktop Notifications Specification 1.2, "Markup"), so it is
    escaped: an agent's words must not become a link or an image.
    """
    if os.environ.get("CI"):
        return "CI machines have no desktop"
    if sys.platform == "linux" and not _has_bus():
        return "there is no desktop here: no D-Bus session bus"
    from relay.side_process import run  # not at the top: -I may hide relay's package from this file

    return await run([sys.executable, "-I", __file__], json.dumps([title, text]), TIMEOUT)


def _has_bus() -> bool:
    """Return True if there is a D-Bus session bus, named by the environment or where systemd puts it."""
    usual = Path(os.environ.get("XDG_RUNTIME_DIR", "/nowhere")) / "bus"
    return "DBUS_SESSION_BUS_ADDRESS" in os.environ or usual.exists()


def main() -> int:
    """Show the title and text read as JSON from standard input. On failure, print what the library logs."""
    import logging

    class Problems(logging.Handler):
        last = ""

        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            self.last = f"{record.getMessage()} ({error})" if error else record.getMessage()

    from desktop_notifier import DesktopNotifier

    problems = Problems(logging.WARNING)
    logger = logging.getLogger("desktop_notifier")
    logger.addHandler(problems)
    logger.propagate = False
    title, text = json.load(sys.stdin)
    if sys.platform == "linux":
        import html

        text = html.escape(text, quote=False)
    asyncio.run(DesktopNotifier(app_name=APP).send(title=title, message=text))
    if problems.last:
        print(problems.last, file=sys.stderr)
    return 1 if problems.last else 0


if __name__ == "__main__":
    sys.exit(main())
