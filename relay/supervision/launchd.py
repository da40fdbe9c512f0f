"""launchd: a user agent for each fleet to start after a reboot (launchd.plist(5)).

    ~/Library/LaunchAgents/relay.NAME.plist

launchd loads and runs the jobs in that folder when the user logs in.
"""

from __future__ import annotations

import os
import plistlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from relay.supervision.boot_service import BootService, InstalledService, ServiceManager, ServiceState

_BOOT = ["-P", "-m", "relay", "up", "--boot", "-f"]


def job(service: BootService, log: Path) -> dict[str, Any]:
    """Return the keys of the property list that runs `service`. log: the file for its output.

    AbandonProcessGroup: the agents outlive the command that starts them.
    """
    return {
        "Label": f"{LaunchdUser.prefix}{service.name}",
        "ProgramArguments": [*service.command],
        "WorkingDirectory": str(service.fleet.parent),
        "EnvironmentVariables": {**service.environment},
        "RunAtLoad": True,
        "AbandonProcessGroup": True,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }


class LaunchdUser(ServiceManager):
    """The user's launchd, on macOS, where there always is one."""

    prefix, suffix = "relay.", ".plist"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._library = Path(env.get("HOME") or Path("~").expanduser(), "Library")
        path = f"{env.get('PATH', os.defpath)}:/bin"  # where launchctl is
        super().__init__({**env, "PATH": path}, self._library / "LaunchAgents")

    def check(self) -> None:
        pass

    def install(self, service: BootService) -> None:
        self._write(self.path(service.name), plistlib.dumps(job(service, self._log(service.name))).decode())

    def remove(self, service: InstalledService) -> None:
        self._launchctl("bootout", f"gui/{os.getuid()}/{self.prefix}{service.name}")
        self._delete(service.path)

    def state(self, service: InstalledService) -> ServiceState:
        label = f"{self.prefix}{service.name}"
        disabled = self._launchctl("print-disabled", f"gui/{os.getuid()}")
        # A job that is not loaded yet counts as enabled.
        enabled = not re.search(rf'"{re.escape(label)}" => (?:disabled|true)', disabled)
        exited = re.search(r'"LastExitStatus" = (\d+);', self._launchctl("list", label))
        if exited is None:
            return ServiceState(enabled, "has not run since you logged in")
        status = int(exited[1])  # as wait(2) returns it
        code = os.waitstatus_to_exitcode(status)
        return ServiceState(enabled, f"failed: exited with {code}" if code else "succeeded", failed=code != 0)

    def log(self, service: InstalledService) -> str:
        return shlex.join(["cat", str(self._log(service.name))])

    def lingering(self) -> None:
        """launchd runs none of the user's jobs before they log in."""

    def when(self) -> str:
        return "Agents start when you log in."

    def _own(self, content: bytes) -> tuple[str, str]:
        try:
            program, *options, fleet = plistlib.loads(content)["ProgramArguments"]
        except (KeyError, TypeError, ExpatError) as error:
            raise ValueError(error) from None
        if options != _BOOT:
            raise ValueError(options)
        return fleet, program

    def _log(self, name: str) -> Path:
        return self._library / "Logs" / f"relay-{name}.log"

    def _launchctl(self, *arguments: str) -> str:
        """Run launchctl and return its output; "" if it fails."""
        done = self._run("launchctl", *arguments)
        return "" if done is None or done.returncode else done.stdout
