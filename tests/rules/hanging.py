"""A rule's command that will not end: `hanging.py FOLDER`.

It ignores SIGTERM, reads nothing, and leaves behind in FOLDER the pids of
    itself, a child, a child in a session of its own, a daemon (forked twice, in a session of its own),
all of which hang as it does and hold its standard output open.
"""

import os
import signal
import sys
from pathlib import Path


def hang(name: str) -> None:
    """Say that this process is there, and stay."""
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
