"""Watches the embedded broker: kills it for replacement if it does not answer or grows too large.

Every few seconds it logs in, subscribes, and receives what it publishes (nats_streams.greet).  It runs in the
broker's supervisor and imports only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from typing import NamedTuple

from relay.transport import nats_streams

REPLACED = "replaced.json"
"""The name of a file next to the configuration that says when and why a broker was last replaced."""

INTERVAL = 3.0
"""Seconds between two checks."""

MEMORY_INTERVAL = 0.25
"""Seconds between two checks of the memory: many clients that do not read add 1 GB in a second."""

ANSWER_SECONDS = 5.0
TIMES = 3
"""Checks in a row without an answer after which the broker is replaced: within 30 s."""

GO_MEMORY = 256 << 20
"""Bytes of memory above which nats-server collects garbage at once (GOMEMLIMIT)."""

MAX_MEMORY = 1 << 30
"""Maximum bytes of memory; 600 sessions that receive 25 MB each take half of that."""

MAX_LOG = 8 << 20
"""Bytes of broker.log above which it is truncated: clients' errors are logged there."""


class Replacement(NamedTuple):
    """The last replacement of a broker. at: seconds since the epoch; times: the replacements so far."""

    at: float
    why: str
    times: int


class BrokerWatch:
    """The watch of one broker, in a thread of its supervisor.

    pid:     its process, a child of this one.
    address: host and port for NATS clients.
    login:   user and password of the watch.
    log:     a descriptor of its log, open for writing.
    directory: where REPLACED is.
    killed:  True once it was killed, or is about to be.
    """

    def __init__(
        self, pid: int, address: tuple[str, int], login: tuple[str, str], log: int, directory: str
    ) -> None:
        self._pid = pid
        self._address = address
        self._login = login
        self._log = log
        self._directory = directory
        self._failures = 0
        self._once = threading.Lock()
        self.killed = False

    def run(self) -> None:
        """Watch the broker until it must be replaced; then log why, kill it, and end this process, too."""
        threading.Thread(target=self._watch_memory, daemon=True).start()
        while not (why := self.look()):
            time.sleep(INTERVAL)
        self._replace(why)

    def _watch_memory(self) -> None:
        """Watch the broker's memory, even while it does not answer."""
        while not (why := self._outgrown()):
            time.sleep(MEMORY_INTERVAL)
        self._replace(why)

    def _replace(self, why: str) -> None:
        with self._once:  # to the end: the second thread returns when the first is done
            if self.killed:
                return
            self.killed = True
            text = f"[relay] replacing the broker: {why}\n"
            with contextlib.suppress(OSError):  # a full disk must not prevent the kill
                os.write(self._log, text.encode())
                note_replacement(self._directory, why)
            os.kill(self._pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGTERM)  # the kernel does not report a traced broker's death to us

    def look(self) -> str:
        """Check the broker once; return why it must be replaced, or ""."""
        with contextlib.suppress(OSError):
            if os.fstat(self._log).st_size > MAX_LOG:
                os.ftruncate(self._log, 0)
        if why := self._outgrown():
            return why
        try:
            nats_streams.greet(self._address, self._login, ANSWER_SECONDS)
        except (OSError, ValueError) as error:
            self._failures += 1
            if self._failures == TIMES:
                return f"it does not answer ({str(error) or type(error).__name__})"
        else:
            self._failures = 0
        return ""

    def _outgrown(self) -> str:
        size = _memory(self._pid)
        return f"it took {size >> 20} MB of memory" if size > MAX_MEMORY else ""


def note_replacement(directory: str, why: str) -> None:
    """Record that the broker of `directory` is replaced. Raise OSError."""
    last = last_replacement(directory)
    now = Replacement(time.time(), why, last.times + 1 if last else 1)
    path = os.path.join(directory, REPLACED)  # noqa: PTH118  pathlib would double the supervisor's start
    write_private(path, json.dumps(now._asdict()).encode())


def write_private(path: str, content: bytes) -> None:
    """Write `path`, 0600, completely or not at all. (`relay.storage.files` takes too long to load here.)"""
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def last_replacement(directory: str) -> Replacement | None:
    """Return what `note_replacement` last wrote in `directory`."""
    try:
        with open(os.path.join(directory, REPLACED)) as file:  # noqa: PTH118
            found = json.load(file)
        return Replacement(float(found["at"]), str(found["why"]), int(found["times"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _memory(pid: int) -> int:
    """Return the resident bytes of `pid`, 0 if /proc does not say."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
