"""systemd: a user unit for each fleet to start after a reboot (systemd.service(5), systemd.exec(5)).

    ~/.config/systemd/user/relay-NAME.service      [X-Relay] Fleet= has the path of its fleet file

The unit starts the agents, then stays active without a process. Stopping the unit ends no agent: systemd also
stops every unit at shutdown, and a fleet that ended this way would stay down after the reboot.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from relay.errors import ServiceError
from relay.home import xdg
from relay.supervision.boot_service import BootService, InstalledService, ServiceManager, ServiceState
from relay.text import one_line

_PLAIN = re.compile(r"[A-Za-z0-9_./=:@,+-]+")
_TARGET = "default.target"
_LINGER = Path("/var/lib/systemd/linger")  # a file for each user that lingers (systemd-logind)
_LAST = ("UnitFileState", "ActiveState", "Result", "ExecMainStatus", "ExecMainExitTimestamp")

_UNIT = """\
# Written by `relay service install`. `relay service remove` removes it.
#
# Stopping this unit ends no agent; `relay down` does. Agents stopped with `relay stop` or `relay down` are
# not started after a reboot.

[Unit]
Description=relay: start the agents of the team {team}

[Service]
Type=oneshot
RemainAfterExit=yes
KillMode=process
WorkingDirectory={directory}
{environment}
ExecStart={command}

[Install]
WantedBy={target}

[X-Relay]
Fleet={fleet}
Program={program}
"""


def unit_text(service: BootService) -> str:
    variables = [f"{name}={value}" for name, value in service.environment.items()]
    command = service.command
    if not _PLAIN.fullmatch(command[0]):
        # systemd allows quotes in a program's arguments, but not in its path.
        command = ("/usr/bin/env", *command)
    # systemd does not unquote WorkingDirectory=. It strips trailing blanks, and continues a line after a
    # backslash; it removes the final slash.
    directory = str(service.fleet.parent).replace("%", "%%")
    if directory.endswith("\\") or directory[-1:].isspace():
        directory += "/"
    return _UNIT.format(
        team=service.team,
        directory=directory,
        environment="\n".join(f"Environment={quoted(each)}" for each in variables),
        command=" ".join(quoted(word).replace("$", "$$") for word in command),
        target=_TARGET,
        fleet=json.dumps(str(service.fleet)),
        program=json.dumps(service.command[0]),
    )


def quoted(text: str) -> str:
    """Return `text` as one word of a unit file: quoted (systemd.syntax(7)), `%` doubled (systemd.unit(5)).

    In a command line, `$` must be doubled, too. `text` has no control characters.
    """
    text = text.replace("%", "%%")
    if _PLAIN.fullmatch(text.replace("%", "")):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SystemdUser(ServiceManager):
    """The user's systemd instance."""

    prefix, suffix = "relay-", ".service"

    def __init__(self, env: Mapping[str, str]) -> None:
        user = env.get("HOME") or str(Path("~").expanduser())
        config = xdg(env, "XDG_CONFIG_HOME") or Path(user, ".config")
        super().__init__({**env, "LC_ALL": "C.UTF-8"}, Path(config, "systemd", "user"))

    def check(self) -> None:
        self._call("show", "--property=Version")

    def install(self, service: BootService) -> None:
        path = self.path(service.name)
        before = path.read_text("utf-8") if path.exists() else None
        self._write(path, unit_text(service))
        try:
            self._call("daemon-reload")
            self._call("enable", path.name)
        except ServiceError:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                self._write(path, before)
            self._systemctl("daemon-reload")
            raise

    def remove(self, service: InstalledService) -> None:
        unit = service.path.name
        self._systemctl("disable", unit)
        self._systemctl("stop", unit)  # ends no agent (KillMode=process)
        self._delete(self._folder / f"{_TARGET}.wants" / unit)  # in case no manager answered
        self._delete(service.path)
        self._systemctl("daemon-reload")
        self._systemctl("reset-failed", unit)

    def state(self, service: InstalledService) -> ServiceState:
        done = self._systemctl("show", service.path.name, f"--property={','.join(_LAST)}")
        if done is None or done.returncode:
            return ServiceState(None, f"not known: {_said(done)}")
        told = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
        enabled, active, result, code, at = (told.get(name, "") for name in _LAST)
        if active == "activating":
            return ServiceState(enabled == "enabled", "is running")
        if not at:
            return ServiceState(enabled == "enabled", "has not run since the last boot")
        if result == "success":
            return ServiceState(enabled == "enabled", "succeeded", at=at)
        why = f"exited with {code}" if result == "exit-code" else result
        return ServiceState(enabled == "enabled", f"failed: {why}", failed=True, at=at)

    def lingering(self) -> bool | None:
        done = self._run("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
        if done is not None and done.stdout.strip() in {"yes", "no"}:
            return done.stdout.strip() == "yes"
        if done is None or "not logged in or lingering" not in done.stderr:
            return True if (_LINGER / pwd.getpwuid(os.getuid()).pw_name).exists() else None
        return False

    def log(self, service: InstalledService) -> str:
        return f"journalctl --user -u {service.path.name}"

    def when(self) -> str:
        user = pwd.getpwuid(os.getuid()).pw_name
        match self.lingering():
            case True:
                return "Lingering is on: agents start at boot, and keep running when you log out."
            case False:
                return (
                    "Lingering is off: agents start when you log in, and stop when you have logged out "
                    f"everywhere. Turn it on with `loginctl enable-linger {user}`."
                )
        return (
            "It is not known whether lingering is on. Without it, agents start when you log in, and stop "
            f"when you have logged out everywhere. Turn it on with `loginctl enable-linger {user}`."
        )

    def _own(self, content: bytes) -> tuple[str, str]:
        own = content.decode().partition("\n[X-Relay]\n")[2]
        fleet, program = (str(json.loads(line.partition("=")[2])) for line in own.splitlines()[:2])
        return fleet, program

    def _systemctl(self, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        return self._run("systemctl", "--user", *arguments)

    def _call(self, *arguments: str) -> None:
        """Run systemctl. Raise ServiceError if it fails."""
        done = self._systemctl(*arguments)
        if done is None or done.returncode:
            raise ServiceError(f"`systemctl --user {arguments[0]}` failed: {_said(done)}.")


def _said(done: subprocess.CompletedProcess[str] | None) -> str:
    if done is None:
        return "it is not on PATH, or does not answer"
    said = done.stderr.strip().splitlines()
    return one_line(said[0], 200).rstrip(".") if said else f"it exited with {done.returncode}"
