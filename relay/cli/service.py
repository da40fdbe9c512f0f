"""Start the agents of the fleet file after a reboot.

`install` writes a systemd user unit (on macOS a launchd agent) that runs `relay up --boot`, and enables it.
It does not start the agents now. Each fleet file has its own unit, and must be trusted. Agents that you
stopped with `relay stop` or `relay down` stay stopped. The unit keeps the PATH of the shell that installs it:
install it again when your PATH changes or relay moves. `remove` removes the unit, but leaves the agents
alone. `status` lists the units, and shows whether they start before you log in (docs/FLEET.md).

  relay service install
  relay service status
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from relay.cli.arguments import add_actions, add_json
from relay.cli.output import print_json
from relay.control.guard import user_only
from relay.errors import ConfigError, ServiceError
from relay.home import Home
from relay.supervision import fleet_file
from relay.supervision.boot_service import InstalledService, ServiceManager, boot_service, choose_name, find
from relay.supervision.launchd import LaunchdUser
from relay.supervision.systemd import SystemdUser
from relay.text import visible


def configure(parser: argparse.ArgumentParser) -> None:
    action = add_actions(parser)
    install = action("install", "Start the agents of the fleet file after each reboot.")
    remove = action("remove", "Stop starting them after a reboot. Running agents are not affected.")
    for each in (install, remove):
        each.add_argument("-f", "--file", type=Path, metavar="FILE", help="the fleet file")
        add_json(each, "print a JSON object")
    add_json(action("status", "List the installed fleets, and how each last run ended."), "print JSON")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    user_only(home, f"service {args.action}", "an agent may not decide what starts after a reboot.")
    manager: ServiceManager = LaunchdUser(os.environ) if sys.platform == "darwin" else SystemdUser(os.environ)
    match args.action:
        case "install":
            _install(home, manager, args.file, as_json=args.json)
        case "remove":
            _remove(home, manager, args.file, as_json=args.json)
        case "status":
            _status(home, manager, as_json=args.json)
    return 0


def _install(home: Home, manager: ServiceManager, named: Path | None, *, as_json: bool) -> None:
    fleet = fleet_file.load(home, Path.cwd(), None if named is None else _plain(named))
    path = fleet.path
    try:
        manager.check()
    except ServiceError as error:
        line = boot_service(fleet.team, fleet.team, path, os.environ).crontab_line()
        raise ServiceError(
            f"no systemd manages your services here, and nothing was written ({str(error).rstrip('.')}). "
            "Use this machine's own way to start programs at boot. For cron, run `crontab -e` and add this "
            "line:\n"
            f"  {visible(line)}"
        ) from None
    name = choose_name(manager, fleet.team, path)
    manager.install(boot_service(name, fleet.team, path, os.environ))
    if as_json:
        print_json(_identity("installed", name, manager.path(name), path))
        return
    print(f"Installed {visible(str(manager.path(name)))}")
    print(f"It starts the agents of {visible(str(path))} after a reboot. `relay up` starts them now.")
    print(manager.when())


def _remove(home: Home, manager: ServiceManager, named: Path | None, *, as_json: bool) -> None:
    path = fleet_file.find(home, Path.cwd()) if named is None else _plain(named)
    if path is None:
        raise ConfigError(
            "there is no fleet file here. Give one with -f; `relay service status` lists those installed."
        )
    service = find(manager.installed(), path)
    if service is None:
        raise ServiceError(f"nothing is installed for {path}. `relay service status` lists what is.")
    manager.remove(service)
    if as_json:
        print_json(_identity("removed", service.name, service.path, service.fleet))
    else:
        print(f"Removed {visible(str(service.path))}. Running agents keep running.")


def _identity(outcome: str, name: str, file: Path, fleet: Path) -> dict[str, str]:
    return {"name": name, "file": str(file), "fleet": str(fleet), "outcome": outcome}


def _status(home: Home, manager: ServiceManager, *, as_json: bool) -> None:
    installed, lingering = manager.installed(), manager.lingering()
    if as_json:
        services = [_public(home, manager, service) for service in installed]
        print_json({"lingering": lingering, "services": services})
        return
    if not installed:
        print("No fleet starts after a reboot. Set one up with `relay service install`.")
        return
    for service in installed:
        state = manager.state(service)
        enabled = {True: "enabled", False: "disabled", None: "not known whether enabled"}[state.enabled]
        print(f"{visible(str(service.fleet))}: {enabled}")
        print(f"  file      {visible(str(service.path))}")
        print(f"  last run  {state.last}{f', {state.at}' if state.at else ''}")
        for problem in _problems(home, service):
            print(f"  problem   {visible(problem)}")
        if state.failed:
            print(f"  see       {visible(manager.log(service))}")
    print(manager.when())


def _public(home: Home, manager: ServiceManager, service: InstalledService) -> dict[str, Any]:
    state = manager.state(service)
    return {
        "name": service.name,
        "file": str(service.path),
        "fleet": str(service.fleet),
        "enabled": state.enabled,
        "last": state.last,
        "failed": state.failed,
        "at": state.at,
        "problems": _problems(home, service),
    }


def _problems(home: Home, service: InstalledService) -> list[str]:
    """Return what will keep the service from starting the agents."""
    found = []
    try:
        fleet_file.load(home, service.fleet.parent, service.fleet)
    except ConfigError as error:
        found.append(str(error).splitlines()[0])
    if not os.access(service.program, os.X_OK):
        install = f"relay service install -f {shlex.quote(str(service.fleet))}"
        found.append(f"{service.program} can no longer be run: `{install}` rewrites the service.")
    return found


def _plain(path: Path) -> Path:
    """Return the absolute path without `..`, which the service would keep for good."""
    path = path.absolute()
    return path.parent.resolve() / path.name if ".." in path.parts else path
