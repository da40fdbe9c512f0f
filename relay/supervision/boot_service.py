"""Starting a fleet after a reboot: the service manager's configuration and status.

systemd.py, launchd.py and crontab.py write it down, each in the manager's own format.
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
"""Variables of the installing shell that the service has, too, if they are set: they say where programs,
relay's files and the agents' own are, and how agents draw. None of them holds a secret."""

_TERM = "xterm-256color"  # of agents that no terminal is attached to


@dataclass(frozen=True, slots=True)
class BootService:
    """The command that starts one fleet after a reboot.

    name:        of the service, without the manager's prefix and suffix.
    team:        of the fleet. fleet: the absolute path of its file.
    command:     what is run. environment: all that it needs of its environment.
    """

    name: str
    team: str
    fleet: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstalledService:
    """A service that relay has installed.

    path: of the manager's file. fleet: of the fleet file. program: the Python that runs relay.
    """

    name: str
    path: Path
    fleet: Path
    program: str


def installed_in(
    folder: Path, prefix: str, suffix: str, read: Callable[[bytes], tuple[str, str] | None]
) -> list[InstalledService]:
    """Return the services in a manager's folder, by name.

    read: returns the fleet file and the program in the content of a file; if relay has not written it, None,
    or it raises ValueError.
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

    enabled: it runs after the next reboot; None: not known.
    last:    how its last run ended, in words. failed: not well.
    at:      when it ended, in the manager's words; "": not known.
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
        """Return the path of the file of the service `name`."""

    def installed(self) -> list[InstalledService]:
        """Return the services that relay has installed, by name."""

    def install(self, service: BootService) -> None:
        """Write the service and enable it, in place of one of its name.

        Raise ServiceError if that fails; nothing has changed then.
        """

    def remove(self, service: InstalledService) -> None:
        """Disable the service and delete its file; no agent is touched. Raise ServiceError."""

    def state(self, service: InstalledService) -> ServiceState:
        """Return what the manager says of the service."""

    def log(self, service: InstalledService) -> str:
        """Return the command that shows what the service has printed."""

    def lingering(self) -> bool | None:
        """Return True if services run without a login; None: not known, or there is no such thing."""

    def when(self) -> str:
        """Return sentences for the user: when the services run, and how to have them run earlier."""


def boot_service(name: str, team: str, fleet: Path, env: Mapping[str, str]) -> BootService:
    """Return the service for the fleet file `fleet`. env: of the installing shell.

    Raise ServiceError for what no service file can hold: control characters, and text that is not UTF-8.
    """
    kept = {variable: env[variable] for variable in KEPT if env.get(variable)}
    term = env.get("TERM", "")
    environment = {**kept, "TERM": _TERM if term in {"", "dumb"} else term}
    command = (sys.executable, "-P", "-m", "relay", "up", "--boot", "-f", str(fleet))
    named = {"the path of the fleet file": str(fleet), "the path of Python": sys.executable, **environment}
    for what, text in named.items():
        if not _is_plain(text):
            raise ServiceError(
                f"{what} has a control character, or is not UTF-8: {text!a}. A service's file cannot hold "
                "that. Change it, then try again."
            )
    return BootService(name, team, fleet, command, environment)


def choose_name(manager: ServiceManager, team: str, fleet: Path) -> str:
    """Return the name of the service for `fleet`: that of its team, unless another file has it.

    The name is the one that it has if it is installed. Raise ServiceError if a file that relay has not
    written has the name.
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
    """Return the service of the fleet file `fleet`; None if it has none."""
    return next((each for each in installed if each.fleet == fleet), None)


def _is_plain(text: str) -> bool:
    """Return True if `text` has no control characters, and can be UTF-8 and XML."""
    try:
        text.encode()
    except UnicodeEncodeError:  # PEP 383: bytes that are not UTF-8
        return False
    return not any(character < " " or character in "\x7f\ufffe\uffff" for character in text)
