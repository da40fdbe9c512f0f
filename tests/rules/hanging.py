"""A rule's command that never ends: `hanging.py FOLDER`.

It ignores SIGTERM, reads nothing, and leaves in FOLDER the pids of

    itself, a child, a child in its own session, a daemon (forked twice, in its own session),

all of which hang like it and hold its standard output open.
"""

import os
import signal
import sys
from pathlib import Path


def hang(name: str) -> None:
    """Record that this process exists, and hang."""
    folder = Path(sys.argv[1])
    started = folder / f"{name}.new"
    started.write_text(str(os.getpid()))
    started.rename(folder / name)
    while True:
        signal.pause()


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        hang("child")
    if os.fork() == 0:
        os.setsid()
        hang("session")
    if (between := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            hang("daemon")
        os._exit(0)
    os.waitpid(between, 0)
    hang("itself")


main()
