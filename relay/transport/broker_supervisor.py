"""The small parent process of nats-server: starts it, watches it, and stops it when unused.

Run with `python -I -S`, it imports only a few modules of the standard library and relay's own that do the
same; it lives as long as the broker, in its own session, and outlives the process that started it.

    BINARY CONFIG LINGER ALIVE REPORT

BINARY, CONFIG: nats-server and its configuration; the locks and the endpoint file are next to CONFIG.
LINGER: seconds without any user after which the broker is stopped; negative: never, and the process stays
        a child of its caller; otherwise it detaches.
ALIVE:  descriptor of the locked file `alive.lock`.  The broker inherits it, so the lock is held exactly as
        long as a broker (or its supervisor) lives, whatever is killed.
REPORT: descriptor of a pipe; one line is written to it: "ready", or what went wrong.

Users hold `users.lock` shared; the kernel releases it when they are killed.  So waiting for the exclusive
lock costs nothing, and ends when the last user has gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import threading
import time
from typing import NoReturn

from relay.transport import nats_streams
from relay.transport.broker_watch import GO_MEMORY, BrokerWatch, write_private

PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from relay.transport.broker_supervisor import main; sys.exit(main(sys.argv[1:]))"
)
"""The program for Python; its first argument is the directory of the package relay."""

KEEP = "keep"
"""The name of a file next to the configuration: if it exists, the broker was started by hand and stays."""

READY = b"Server is ready"
RELOADED = b"Reloaded server configuration"
NATIVE = rb"client connections on [0-9.]+:(\d+)"
START_SECONDS = 10.0
STOP_SECONDS = 5.0
KILL_SECONDS = 1.0
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Ended(BaseException):
    """The broker died, or a signal asked to end it."""


def main(arguments: list[str]) -> int:
    binary, config, linger, alive, report = arguments
    if float(linger) >= 0 and os.fork():
        os._exit(0)  # the caller need not reap it
    directory = os.path.dirname(config)  # noqa: PTH120  pathlib alone would double this process's start
    os.chdir(directory)
    for number in ENDING:
        signal.signal(number, _end)
    own = os.open("supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    broker, watch = 0, None
    try:
        fcntl.flock(own, fcntl.LOCK_EX)
        with open(config, "rb") as file:
            text = file.read()
        log = os.open("broker.log", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        wanted = json.loads(text)
        users = wanted["authorization"]["users"]
        # Admit nobody else before the streams have bounds.
        write_private(config, json.dumps({**wanted, "authorization": {"users": users[:1]}}).encode())
        broker = _spawn(binary, config, int(alive), int(report))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        native = int(_wait_for(log, READY, 0, NATIVE)[1])
        login = users[0]["user"], users[0]["password"]
        nats_streams.create((wanted["host"], native), login, START_SECONDS)
        write_private(config, text)
        printed = os.fstat(log).st_size
        os.kill(broker, signal.SIGHUP)
        _wait_for(log, RELOADED, printed)
        address = {"host": wanted["mqtt"]["host"], "port": wanted["mqtt"]["port"]}
        digest = hashlib.sha256(text).hexdigest()
        endpoint = {**address, "native": native, "pid": broker, "supervisor": os.getpid(), "config": digest}
        write_private("endpoint.json", json.dumps(endpoint).encode())
        os.write(int(report), b"ready\n")
        os.close(int(report))
        watch = BrokerWatch(broker, (wanted["host"], native), login, log, directory)
        # In a thread that gets no signals: the main thread waits for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        threading.Thread(target=watch.run, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        _wait_unused(float(linger))
    except Ended:
        pass
    except (OSError, ValueError) as error:
        os.write(2, f"[ERR] {error}\n".encode())
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        if broker:
            _terminate(broker, 0.0 if watch is not None and watch.killed else STOP_SECONDS)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("endpoint.json")  # noqa: PTH108
    return 0


def _end(_signal: int, _frame: object) -> NoReturn:
    raise Ended


def _spawn(binary: str, config: str, alive: int, report: int) -> int:
    """Start the broker; return its pid. Signals are blocked on return, so the caller cannot lose it."""
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
        os.execve(binary, [binary, "-c", config], {**os.environ, "GOMEMLIMIT": str(GO_MEMORY)})
    except OSError as error:
        os.write(2, f"cannot run {binary}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait_for(log: int, said: bytes, start: int, pattern: bytes = b"") -> re.Match[bytes]:
    """Wait until the broker's log has `said` after `start`; return the match of `pattern` in the log.

    Raise Ended if it takes too long (or dies).
    """
    deadline = time.monotonic() + START_SECONDS
    while said not in (printed := os.pread(log, 1 << 20, start)):
        if time.monotonic() > deadline:
            os.write(2, b"[ERR] the broker did not become ready\n")
            raise Ended
        time.sleep(0.002)
    if found := re.search(pattern, printed):
        return found
    raise ValueError("nats-server does not say where it listens")


def _wait_unused(linger: float) -> None:
    """Return, holding the election lock, once nobody has used the broker for `linger` seconds."""
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
            # A new user now takes the users' lock at once, and then waits for the election.
            fcntl.flock(users, fcntl.LOCK_UN)
            if not os.access(KEEP, os.F_OK):
                return
        fcntl.flock(election, fcntl.LOCK_UN)


def _terminate(pid: int, patience: float) -> None:
    """Terminate the broker; kill it after `patience` seconds."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if (late := time.monotonic() - deadline) > 0:
                os.kill(pid, signal.SIGKILL)
            if late > KILL_SECONDS:
                return  # a tracer keeps it
            time.sleep(0.005)
