"""Starting a fleet after a reboot: the service, and what its managers, systemd.py and launchd.py, share."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from relay.dataclass import dataclass
from relay.errors import ServiceError
from relay.storage.files import write_private

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
_PROGRAM_TIMEOUT = 60  # seconds to wait for a manager's program


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

    def crontab_line(self) -> str:
        """Return the line of crontab(5) that runs it. cron reads `%` as a newline; the rest is for sh."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return "@reboot " + " ".join([*variables, shlex.join(self.command)]).replace("%", r"\%")


@dataclass(frozen=True, slots=True)
class InstalledService:
    """A service that relay has installed.

    path: that of the manager's file. fleet: that of the fleet file. program: the Python that runs relay.
    """

    name: str
    path: Path
    fleet: Path
    program: str


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


class ServiceManager(ABC):
    """A manager of the user's services. Every method may run a program and block for some seconds.

    prefix, suffix: of its files' names, around the name of the service.
    """

    prefix: ClassVar[str]
    suffix: ClassVar[str]

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        """env: for finding and running the manager's programs. folder: that of its files."""
        self._env = env
        self._folder = folder

    def path(self, name: str) -> Path:
        """Return the path of the manager's file for the service `name`."""
        return self._folder / f"{self.prefix}{name}{self.suffix}"

    def installed(self) -> list[InstalledService]:
        """Return the services that relay has installed, sorted by name."""
        found = []
        for path in sorted(self._folder.glob(f"{self.prefix}*{self.suffix}")):
            try:
                fleet, program = self._own(path.read_bytes())
            except (OSError, ValueError):
                continue
            name = path.name.removeprefix(self.prefix).removesuffix(self.suffix)
            found.append(InstalledService(name, path, Path(fleet), program))
        return found

    @abstractmethod
    def check(self) -> None:
        """Raise ServiceError if there is no such manager here."""

    @abstractmethod
    def install(self, service: BootService) -> None:
        """Write and enable the service, replacing one of the same name.

        Raise ServiceError if that fails; nothing has changed then.
        """

    @abstractmethod
    def remove(self, service: InstalledService) -> None:
        """Disable the service and delete its file; agents keep running. Raise ServiceError if that fails."""

    @abstractmethod
    def state(self, service: InstalledService) -> ServiceState:
        """Return the state that the manager reports for the service."""

    @abstractmethod
    def log(self, service: InstalledService) -> str:
        """Return the command that shows the service's output."""

    @abstractmethod
    def lingering(self) -> bool | None:
        """Return True if services run without a login; None: unknown, or the manager has no such setting."""

    @abstractmethod
    def when(self) -> str:
        """Return sentences for the user: when the services run, and how to have them run earlier."""

    @abstractmethod
    def _own(self, content: bytes) -> tuple[str, str]:
        """Return the fleet file and the program in relay's own file. Raise ValueError for any other file."""

    def _run(self, *command: str) -> subprocess.CompletedProcess[str] | None:
        """Run one of the manager's programs and return the result; None if it is missing, or hangs."""
        program = shutil.which(command[0], path=self._env.get("PATH"))
        if program is None:
            return None
        try:
            return subprocess.run(
                [program, *command[1:]],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_PROGRAM_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None

    @staticmethod
    def _write(path: Path, text: str) -> None:
        try:
            write_private(path, text)
        except OSError as error:
            raise ServiceError(
                f"cannot write {path}: {error.strerror}. Make it writable, then try again."
            ) from None

    @staticmethod
    def _delete(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(f"cannot delete {path}: {error.strerror}. Delete it yourself.") from None


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
        # PEP 383 has surrogates for bytes that are not UTF-8; XML has no U+FFFE and U+FFFF.
        if re.search("[\0-\x1f\x7f\ud800-\udfff\ufffe\uffff]", text):
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
