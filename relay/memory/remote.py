"""A backend in a helper process (relay.memory.helper), which all sessions of a home share.

    MemoryStore ─→ RemoteBackend ─ JSON lines over a Unix socket ─→ helper ─→ mem0, Qdrant, your own

The first call that finds no helper starts one.  The next call replaces a helper that died; acknowledged calls
have taken effect, and the others are repeated, which does no harm (`MemoryBackend.add`).

For a caller whose environment has other keys, the helper opens its store again: a second helper could not,
because a store on this machine's disk has one owner.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from relay.dataclass import asdict, dataclass
from relay.errors import HomeError, MemoryStoreError
from relay.home import PYTHON, Home, check_socket_path, private_directory
from relay.memory.backend import IdTaken, Memory, Scope
from relay.memory.calls import DistantBackend, too_late
from relay.memory.config import MemoryConfig
from relay.peer import connect
from relay.storage.locks import locked

PROTOCOL = 2
"""The version of the protocol between a helper and its callers."""

START_SECONDS = 60.0
"""Seconds that a helper may take to load its libraries and open its store, besides the backend's timeout."""

IDLE_SECONDS = 30.0
"""Seconds for which a helper waits for another caller."""

BUSY_FACTOR = 3
"""How many times the backend's timeout a call may wait, because other sessions' calls may come first."""

WHOLE_FACTOR = 10
"""How many times as long as other calls a call that returns all memories may take."""

_TRIES = 3
"""Helpers that a call may lose: one that ends because it is idle, one that is killed, and one more."""

_LARGE_LOG = 1 << 20
"""Bytes above which the helpers' log is rotated."""


@dataclass(frozen=True, slots=True)
class HelperSpec:
    """The instructions for a helper, written by its caller.

    data:        the folder in which the backend may keep its files.
    folder:      where to look for the module of `factory`, besides Python's own path.
    idle:        seconds without a caller after which the helper ends.
    environment: the caller's variables that the backend reads.
    """

    backend: str
    config: dict[str, Any]
    factory: str
    folder: str
    data: str
    socket: str
    idle: float
    environment: dict[str, str]


class RemoteBackend(DistantBackend):
    """The backend that `config` names, in a helper process of `home`."""

    def __init__(self, config: MemoryConfig, home: Home, *, idle: float = IDLE_SECONDS) -> None:
        self._what = config.backend
        self._timeout = config.timeout
        factory = config.factory if isinstance(config.factory, str) else ""
        folder = config.folder if factory else ""  # projects with equal settings share a helper
        try:
            settings = json.dumps(dict(config.config), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise MemoryStoreError(f"the settings of memory's config must be plain data: {error}.") from None
        read: dict[str, str] = {}  # a custom backend may read any variable; none is passed on
        if config.backend != "custom":
            from relay.memory.plugins import plugin  # which the sessions with an embedded store do not need

            read = plugin(config.backend).environment(config.config, os.environ)
        # A session that uses another protocol or another Python has its own helper.
        parts = [
            PROTOCOL,
            sys.executable,
            config.backend,
            settings,
            factory,
            folder,
        ]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        self._base = home.run / "memory" / key
        self._log = home.state / "memory-helper.log"
        self._spec = HelperSpec(
            config.backend,
            json.loads(settings),
            factory,
            folder,
            str(home.state / "memory"),
            f"{self._base}.sock",
            idle,
            read,
        )
        self._lock = threading.Lock()  # one call at a time
        self._channel: _Channel | None = None
        self._closed = False

    def _call(self, method: str, *arguments: object) -> Any:
        whole = method == "everything" or (method == "list" and arguments[1] is None)
        seconds = self._timeout * (WHOLE_FACTOR if whole else 1)
        asked = {"method": method, "arguments": [_plain(each) for each in arguments], "seconds": seconds}
        request = json.dumps({**asked, "environment": self._spec.environment}).encode() + b"\n"
        with self._lock:
            if self._closed:
                raise MemoryStoreError("the memory backend was closed.")
            for left in reversed(range(_TRIES)):
                began = time.monotonic()
                try:
                    channel = self._connected()
                    began = time.monotonic()
                    return _value(method, channel.ask(request, seconds * BUSY_FACTOR + 5))
                except TimeoutError:
                    self._hang_up()
                    raise MemoryStoreError(
                        f"the memory backend {self._what} is busy with other calls. Try again."
                    ) from None
                except (OSError, EOFError) as error:
                    self._hang_up()
                    if time.monotonic() - began > seconds:  # it hung, and could not even say so
                        raise MemoryStoreError(too_late(self._what, seconds)) from error
                    if not left:
                        raise MemoryStoreError(
                            f"the process of the memory backend {self._what} keeps crashing. See {self._log}."
                        ) from error
        raise AssertionError

    def close(self) -> None:
        """Hang up; the helper ends some time after its last caller."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _connected(self) -> _Channel:
        """Return a channel to the helper; start one if needed. Raise MemoryStoreError or EOFError."""
        if self._channel is not None:
            return self._channel
        try:
            check_socket_path(self._spec.socket)
            private_directory(self._base.parent)
            private_directory(self._spec.data)
            with locked(f"{self._base}.start", START_SECONDS + self._timeout):
                found = self._connect()
                if found is None:
                    self._start()
                    found = self._connect()
        except HomeError as error:
            raise MemoryStoreError(str(error)) from None
        if found is None:
            raise EOFError
        self._channel = _Channel(found)
        return self._channel

    def _connect(self) -> socket.socket | None:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connect(channel, self._spec.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            channel.close()
            return None
        return channel

    def _start(self) -> None:
        """Start a helper, and wait until it listens. Raise MemoryStoreError with its error message."""
        if self._log.exists() and self._log.stat().st_size > _LARGE_LOG:
            self._log.replace(f"{self._log}.1")
        command = [*PYTHON, "-m", "relay.memory.helper"]
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise MemoryStoreError(
                f"cannot start a process for the memory backend: {error.strerror}. Try again later."
            ) from None
        finally:
            os.close(log)
        with process:  # the helper forks, so its parent ends at once
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(asdict(self._spec)).encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # its output says why
            report = process.stdout
            if not select.select([report], [], [], START_SECONDS + self._timeout)[0]:
                raise MemoryStoreError(
                    f"the memory backend {self._what} did not open within "
                    f"{START_SECONDS + self._timeout:g} s. See {self._log}."
                )
            said = report.readline()
        try:
            answer = json.loads(said)
        except ValueError:
            raise MemoryStoreError(
                f"the process of the memory backend {self._what} ended as it started. See {self._log}."
            ) from None
        if "error" in answer:
            raise MemoryStoreError(answer["error"])

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Channel:
    """A connection to a helper."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def ask(self, request: bytes, seconds: float) -> dict[str, Any]:
        """Return the answer. Raise TimeoutError, and OSError or EOFError if the helper is gone."""
        self._connection.settimeout(seconds)
        self._connection.sendall(request)
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


def _plain(value: object) -> object:
    return asdict(value) if isinstance(value, Memory | Scope) else value


def _value(method: str, answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise (IdTaken if answer.get("taken") else MemoryStoreError)(answer["error"])
    value = answer["value"]
    if method == "delete":
        return value
    return Memory.from_json(value) if method == "add" else [Memory.from_json(each) for each in value]
