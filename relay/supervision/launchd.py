"""launchd: a user agent for each fleet to start after a reboot (launchd.plist(5)).

    ~/Library/LaunchAgents/relay.NAME.plist

launchd loads and runs the jobs in that folder when the user logs in.
"""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from relay.errors import ServiceError
from relay.storage.files import write_private
from relay.supervision.boot_service import BootService, InstalledService, ServiceState, installed_in

PREFIX, SUFFIX = "relay.", ".plist"

_BOOT = ["-P", "-m", "relay", "up", "--boot", "-f"]
_LAUNCHCTL_TIMEOUT = 60  # seconds to wait for launchctl


def job(service: BootService, log: Path) -> dict[str, Any]:
    """Return the keys of the property list that runs `service`. log: the file for its output.

    AbandonProcessGroup: the agents outlive the command that starts them.
    """
    return {
        "Label": f"{PREFIX}{service.name}",
        "ProgramArguments": [*service.command],
        "WorkingDirectory": str(service.fleet.parent),
        "EnvironmentVariables": {**service.environment},
        "RunAtLoad": True,
        "AbandonProcessGroup": True,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }


def _own(content: bytes) -> tuple[str, str] | None:
    """Return the fleet file and the program in relay's own property list; None for any other."""
    try:
        program, *options, fleet = plistlib.loads(content)["ProgramArguments"]
    except (ValueError, KeyError, TypeError, ExpatError):
        return None
    return (fleet, program) if options == _BOOT else None


class LaunchdUser:
    """The user's launchd. env: the environment for finding and running launchctl."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._library = Path(env.get("HOME") or Path("~").expanduser(), "Library")
        self._folder = self._library / "LaunchAgents"

    def check(self) -> None:
        """Do nothing: this class is used only where there is a launchd."""

    def path(self, name: str) -> Path:
        return self._folder / f"{PREFIX}{name}{SUFFIX}"

    def installed(self) -> list[InstalledService]:
        """Return the services that relay has installed, sorted by name."""
        return installed_in(self._folder, PREFIX, SUFFIX, _own)

    def install(self, service: BootService) -> None:
        """Write the property list, replacing one of the same name.

        Raise ServiceError if that fails; nothing has changed then.
        """
        path = self.path(service.name)
        try:
            write_private(path, plistlib.dumps(job(service, self._log(service.name))).decode())
        except OSError as error:
            raise ServiceError(
                f"cannot write {path}: {error.strerror}. Make it writable, then try again."
            ) from None

    def remove(self, service: InstalledService) -> None:
        """Unload a loaded job and delete its file; agents keep running. Raise ServiceError if that fails."""
        self._run("bootout", f"gui/{os.getuid()}/{PREFIX}{service.name}")
        try:
            service.path.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(
                f"cannot delete {service.path}: {error.strerror}. Delete it yourself."
            ) from None

    def state(self, service: InstalledService) -> ServiceState:
        """Return the state that launchd reports for the job. A job not loaded yet counts as enabled."""
        label = f"{PREFIX}{service.name}"
        disabled = self._run("print-disabled", f"gui/{os.getuid()}")
        enabled = not re.search(rf'"{re.escape(label)}" => (?:disabled|true)', disabled)
        exited = re.search(r'"LastExitStatus" = (\d+);', self._run("list", label))
        if exited is None:
            return ServiceState(enabled, "has not run since you logged in")
        status = int(exited[1])  # as wait(2) returns it
        code = os.waitstatus_to_exitcode(status)
        return ServiceState(enabled, f"failed: exited with {code}" if code else "succeeded", failed=code != 0)

    def log(self, service: InstalledService) -> str:
        """Return the command that shows the job's output."""
        return shlex.join(["cat", str(self._log(service.name))])

    def lingering(self) -> None:
        """Return None: launchd runs none of the user's jobs before they log in."""

    def when(self) -> str:
        """Return a sentence for the user: when the jobs run."""
        return "Agents start when you log in."

    def _log(self, name: str) -> Path:
        return self._library / "Logs" / f"relay-{name}.log"

    def _run(self, *arguments: str) -> str:
        """Run launchctl and return its output; "" if it fails."""
        found = shutil.which("launchctl", path=self._env.get("PATH"))
        try:
            done = subprocess.run(
                [found or "/bin/launchctl", *arguments],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_LAUNCHCTL_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return "" if done.returncode else done.stdout
