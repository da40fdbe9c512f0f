"""Starting a fleet after a reboot: the service manager's configuration and status.

systemd.py, launchd.py and crontab.py write the configuration in each manager's own format.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relay.errors import ServiceError

KEPT = (
    "PATH",
    "RELAY_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "COLORTERM",
)
"""Variables that the service copies from the installing shell, if set: they locate programs, relay's files
and the agents' own, and decide how agents draw. None of them holds a secret."""

_TERM = "xterm-256color"  # for agents without an attached terminal


@dataclass(frozen=True, slots=True)
class BootService:
    """The command that starts one fleet after a reboot.

    name:        the service's, without the manager's prefix and suffix.
    team:        the fleet's. fleet: the absolute path of its file.
    command:     argv. environment: all the variables that it needs.
    """

    name: str
    team: str
    fleet: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstalledService:
    """A service that relay has installed.

    path: that of the manager's file. fleet: that of the fleet file. program: the Python that runs relay.
    """

    name: str
    path: Path
    fleet: Path
    program: str


def installed_in(
    folder: Path, prefix: str, suffix: str, read: Callable[[bytes], tuple[str, str] | None]
) -> list[InstalledService]:
    """Return the services in a manager's folder, sorted by name.

    read: returns the fleet file and the program from a file's content; returns None or raises ValueError if
    relay did not write the file.
    """
    found = []
    for path in sorted(folder.glob(f"{prefix}*{suffix}")):
        try:
            told = read(path.read_bytes())
        except (OSError, ValueError):
            continue
        if told is not None:
            name = path.name.removeprefix(prefix).removesuffix(suffix)
            found.append(InstalledService(name, path, Path(told[0]), told[1]))
    return found


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service, as its manager reports it.

    enabled: it runs after the next reboot; None: unknown.
    last:    how its last run ended, in words. failed: that run failed.
    at:      when that run ended, in the manager's words; "": unknown.
    """

    enabled: bool | None
    last: str
    failed: bool = False
    at: str = ""


class ServiceManager(Protocol):
    """A manager of the user's services. Every method may run a program and block for some seconds."""

    def check(self) -> None:
        """Raise ServiceError if there is no such manager here."""

    def path(self, name: str) -> Path:
        """Return the path of the manager's file for the service `name`."""

    def installed(self) -> list[InstalledService]:
        """Return the services that relay has installed, sorted by name."""

    def install(self, service: BootService) -> None:
        """Write and enable the service, replacing one of the same name.

        Raise ServiceError if that fails; nothing has changed then.
        """

    def remove(self, service: InstalledService) -> None:
        """Disable the service and delete its file; agents keep running. Raise ServiceError if that fails."""

    def state(self, service: InstalledService) -> ServiceState:
        """Return the state that the manager reports for the service."""

    def log(self, service: InstalledService) -> str:
        """Return the command that shows the service's output."""

    def lingering(self) -> bool | None:
        """Return True if services run without a login; None: unknown, or the manager has no such setting."""

    def when(self) -> str:
        """Return sentences for the user: when the services run, and how to have them run earlier."""


def boot_service(name: str, team: str, fleet: Path, env: Mapping[str, str]) -> BootService:
    """Return the service for the fleet file `fleet`. env: the installing shell's.

    Raise ServiceError for text that no service file can hold: control characters, or not UTF-8.
    """
    kept = {variable: env[variable] for variable in KEPT if env.get(variable)}
    term = env.get("TERM", "")
    environment = {**kept, "TERM": _TERM if term in {"", "dumb"} else term}
    command = (sys.executable, "-P", "-m", "relay", "up", "--boot", "-f", str(fleet))
    named = {"the path of the fleet file": str(fleet), "the path of Python": sys.executable, **environment}
    for what, text in named.items():
        if not _is_plain(text):
            raise ServiceError(
                f"{what} has a control character, or is not UTF-8: {text!r}. A service's file cannot hold "
                "that. Change it, then try again."
            )
    return BootService(name, team, fleet, command, environment)


def choose_name(manager: ServiceManager, team: str, fleet: Path) -> str:
    """Return the service name for `fleet`: its team's, with a digest of the path if that name is taken.

    An installed service keeps its name. Raise ServiceError if both names are taken.
    """
    installed = manager.installed()
    if (own := find(installed, fleet)) is not None:
        return own.name
    digest = hashlib.sha256(os.fsencode(fleet)).hexdigest()[:8]
    for name in (team, f"{team}-{digest}"):
        if not os.path.lexists(manager.path(name)):
            return name
    raise ServiceError(
        f"{manager.path(name)} exists, and was not written by `relay service install`. Rename or remove it."
    )


def find(installed: Collection[InstalledService], fleet: Path) -> InstalledService | None:
    """Return the installed service of the fleet file `fleet`; None if it has none."""
    return next((each for each in installed if each.fleet == fleet), None)


def _is_plain(text: str) -> bool:
    """Return True if `text` has no control characters, and can be UTF-8 and XML."""
    try:
        text.encode()
    except UnicodeEncodeError:  # PEP 383: bytes that are not UTF-8
        return False
    return not any(character < " " or character in "\x7f\ufffe\uffff" for character in text)
