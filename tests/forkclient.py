"""`relay` in scripts without a terminal: `python -I -S forkclient.py SERVER ARGUMENTS`.

It has the fork server start `relay ARGUMENTS` with its descriptors, directory, environment and ignored
signals, and ends as that ends. It imports little: a start of Python is all that it costs.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = "\0relay-tests-{}"
"""The address of the server with that process id, in Linux's abstract namespace."""

MOST_FILES = 1 << 10
"""More than the number of any descriptor that is open."""


BY_PYTHON = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", 0)}
"""What Python itself ignores."""


def end_as(connection: int) -> None:
    """End with the status that arrives on the socket `connection`. Never return."""
    os.closerange(0, connection)
    os.closerange(connection + 1, MOST_FILES)
    code = int(os.read(connection, 100) or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _open_standard() -> list[int]:
    """Return which standard descriptors were closed. They are open now, so that nothing takes their place."""
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.append(os.open(os.devnull, os.O_RDWR))
    return closed


def main(server: str, arguments: list[str]) -> None:
    closed = _open_standard()
    mask = os.umask(0o077)
    os.umask(mask)
    request = {
        "argv": [sys.executable, "-m", "relay", *arguments],
        "env": [f"{name}={value}" for name, value in os.environ.items()],
        "cwd": os.getcwd(),  # noqa: PTH109 - pathlib takes as long as all the rest
        "session": False,
        "terminal": False,
        "umask": mask,
        "closed": closed,
        "ignored": [
            number
            for number in range(1, signal.NSIG)
            if signal.getsignal(number) is signal.SIG_IGN and number not in BY_PYTHON
        ],
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(ADDRESS.format(server))
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    end_as(connection.fileno())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
