"""The small process above nats-server: starts it, reports when it is ready, ends it when it is not needed.

Run by path with `python -I -S`, so that it imports nothing but a few modules of the standard library; it
lives as long as the broker, in a session of its own, and outlives whoever started it.

    supervisor.py BINARY CONFIG LINGER ALIVE REPORT

BINARY, CONFIG: nats-server and its configuration; the locks and the endpoint file lie beside CONFIG.
LINGER: seconds without any user after which the broker is stopped; negative: never, and the process stays
        a child of its caller; else it becomes nobody's.
ALIVE:  descriptor of the locked file `alive.lock`.  The broker inherits it, so the lock is held exactly as
        long as a broker (or its supervisor) lives, whatever is killed.
REPORT: descriptor of a pipe; one line is written to it: "ready", or what went wrong.

Users hold `users.lock` shared; the kernel releases it for those that are killed.  Waiting for it
exclusively therefore costs nothing and ends when the last user has gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from typing import NoReturn

KEEP = "keep"
"""The name of a file beside the configuration: if it exists, the broker was started by hand and stays."""

READY = b"Server is ready"
START_SECONDS = 10.0
STOP_SECONDS = 5.0
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Ended(BaseException):
    """The broker died, or a signal asks to end it."""


def main(arguments: list[str]) -> int:
    binary, config, linger, alive, report = arguments
    if float(linger) >= 0 and os.fork():
        os._exit(0)  # whoever started it need not reap it
    directory = os.path.dirname(config)  # noqa: PTH120  pathlib alone would double this process's start
    os.chdir(directory)
    for number in ENDING:
        signal.signal(number, _end)
    own = os.open("supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    broker = 0
    try:
        fcntl.flock(own, fcntl.LOCK_EX)
        with open(config, "rb") as file:
            text = file.read()
        log = os.open("broker.log", os.O_RDONLY | os.O_CLOEXEC)
        start = os.lseek(log, 0, os.SEEK_END)
        broker = _spawn(binary, config, int(alive), int(report))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        _wait_ready(log, start)
        mqtt = json.loads(text)["mqtt"]
        address = {"host": mqtt["host"], "port": mqtt["port"]}
        digest = hashlib.sha256(text).hexdigest()
        write_endpoint({**address, "pid": broker, "supervisor": os.getpid(), "config": digest})
        os.write(int(report), b"ready\n")
        os.close(int(report))
        _wait_unused(float(linger))
    except Ended:
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        if broker:
            _terminate(broker)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("endpoint.json")  # noqa: PTH108
    return 0


def write_endpoint(endpoint: dict[str, object]) -> None:
    """Write `endpoint.json` of the working directory, 0600, whole or not at all."""
    descriptor = os.open("endpoint.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        json.dump(endpoint, file)
    os.replace("endpoint.new", "endpoint.json")  # noqa: PTH105


def _end(_signal: int, _frame: object) -> NoReturn:
    raise Ended


def _spawn(binary: str, config: str, alive: int, report: int) -> int:
    """Return the broker's pid. Signals are blocked on return, so that the caller cannot lose it to one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.set_inheritable(alive, True)
        os.set_inheritable(report, False)
        os.execv(binary, [binary, "-c", config])
    except OSError as error:
        os.write(2, f"cannot run {binary}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait_ready(log: int, start: int) -> None:
    """Return once the broker's log says that it listens; raise Ended when it takes too long (or dies)."""
    deadline = time.monotonic() + START_SECONDS
    while READY not in os.pread(log, 1 << 20, start):
        if time.monotonic() > deadline:
            os.write(2, b"the broker did not become ready\n")
            raise Ended
        time.sleep(0.002)
    os.close(log)


def _wait_unused(linger: float) -> None:
    """Return, holding the election lock, when nobody has used the broker for `linger` seconds."""
    if linger < 0:
        while True:
            signal.pause()
    users = os.open("users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    election = os.open("election.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(linger)
        fcntl.flock(election, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever comes now takes the users' lock at once and then waits for the election.
            fcntl.flock(users, fcntl.LOCK_UN)
            if not os.access(KEEP, os.F_OK):
                return
        fcntl.flock(election, fcntl.LOCK_UN)


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
