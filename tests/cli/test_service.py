"""`relay service`: installing, listing and removing, and what its unit starts after a reboot."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import Relay, processes_of, wait_until

FLEET = '[fleet]\nteam = "web"\nstart_interval = 0\n[agents.A]\nrun = "cat"\n'
FOUR = FLEET + '[agents.B]\nrun = "cat"\n[agents.C]\nrun = "cat"\n[agents.D]\nrun = "cat"\n'
SUCCEEDED = (
    "ActiveState=active\nResult=success\nExecMainStatus=0\nExecMainExitTimestamp=Wed 2026-11-25 09:00:00 UTC"
)
FAILED = SUCCEEDED.replace("Result=success", "Result=exit-code").replace("Status=0", "Status=1")


class Systemd:
    """A fake systemctl, first on PATH."""

    def __init__(self, relay: Relay) -> None:
        self.state = relay.home / "systemd"
        self.folder = relay.home / ".config" / "systemd" / "user"
        programs = relay.home / "bin"
        programs.mkdir()
        self.state.mkdir()
        fake = Path(__file__).parent.parent / "fakes" / "systemctl.py"
        for name in ("systemctl", "loginctl"):
            (programs / name).write_text(f"#!{sys.executable} -S\n" + fake.read_text())
            (programs / name).chmod(0o755)
        relay.environment |= {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SYSTEMD": str(self.state),
            "XDG_CONFIG_HOME": str(relay.home / ".config"),
        }

    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()

    def set(self, name: str, text: str) -> None:
        (self.state / name).write_text(text)

    def files(self) -> list[str]:
        """Return the files in the folder of units, including links to them."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*") if not path.is_dir())
        return sorted(map(str, found))


@pytest.fixture
def systemd(relay: Relay) -> Systemd:
    return Systemd(relay)


@pytest.fixture
def project(relay: Relay) -> Path:
    """Return a trusted fleet in a folder whose name needs quotes."""
    return write(relay, relay.home / 'my 100% "web"', FLEET)


def write(relay: Relay, folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "relay.toml").write_text(text)
    relay("trust", "relay.toml", cwd=folder)
    return folder


def status(relay: Relay) -> Any:
    return json.loads(relay("service", "status", "--json").stdout)


def test_a_unit_is_installed_and_removed(relay: Relay, systemd: Systemd, project: Path) -> None:
    systemd.set("linger", "no")
    unit = systemd.folder / "relay-web.service"
    output = relay("service", "install", cwd=project).stdout
    user = pwd.getpwuid(os.getuid()).pw_name
    assert output == (
        f"Installed {unit}\n"
        f"It starts the agents of {project}/relay.toml after a reboot. `relay up` starts them now.\n"
        "Lingering is off: agents start when you log in, and stop when you have logged out everywhere. Turn "
        f"it on with `loginctl enable-linger {user}`.\n"
    )
    assert systemd.files() == ["default.target.wants/relay-web.service", "relay-web.service"]
    assert systemd.calls()[-3:-1] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable relay-web.service",
    ]
    assert processes_of(relay.home) == {}, "nothing is started now"
    systemd.set("linger", "yes")
    again = relay("service", "install", "-f", project / "relay.toml")
    assert "Lingering is on: agents start at boot" in again.stdout
    assert len(systemd.files()) == 2

    output = relay("service", "remove", cwd=project).stdout
    assert output == f"Removed {unit}. Running agents keep running.\n"
    assert systemd.files() == []
    assert "systemctl --user stop relay-web.service" in systemd.calls()
    done = relay("service", "remove", cwd=project, check=False)
    assert (done.returncode, "nothing is installed for" in done.stderr) == (1, True)


def test_the_unit_of_a_deleted_fleet_file_can_be_removed(
    relay: Relay, systemd: Systemd, project: Path
) -> None:
    relay("service", "install", cwd=project)
    (project / "relay.toml").unlink()
    assert "cannot be read" in status(relay)["services"][0]["problems"][0]
    relay("service", "remove", "-f", project / "relay.toml")
    assert systemd.files() == []


def test_a_unit_can_be_removed_without_a_running_systemd(
    relay: Relay, systemd: Systemd, project: Path
) -> None:
    relay("service", "install", cwd=project)
    systemd.set("absent", "")
    relay("service", "remove", cwd=project)
    assert systemd.files() == []


def test_each_fleet_file_has_its_own_unit(relay: Relay, systemd: Systemd, project: Path) -> None:
    other = write(relay, relay.home / "other", FLEET)
    relay("service", "install", cwd=project)
    relay("service", "install", "-f", "../other/relay.toml", cwd=project)
    found = {each["fleet"]: each["name"] for each in status(relay)["services"]}
    assert found[f"{project}/relay.toml"] == "web"
    assert found[f"{other}/relay.toml"].startswith("web-")
    relay("service", "remove", "-f", "../other/relay.toml", cwd=project)
    assert systemd.files() == ["default.target.wants/relay-web.service", "relay-web.service"]


def test_the_status_shows_the_last_run_and_problems(relay: Relay, systemd: Systemd, project: Path) -> None:
    assert relay("service", "status").stdout == (
        "No fleet starts after a reboot. Set one up with `relay service install`.\n"
    )
    relay("service", "install", cwd=project)
    assert status(relay) == {
        "lingering": False,
        "services": [
            {
                "name": "web",
                "file": str(systemd.folder / "relay-web.service"),
                "fleet": f"{project}/relay.toml",
                "enabled": True,
                "last": "has not run since the last boot",
                "failed": False,
                "at": "",
                "problems": [],
            }
        ],
    }
    systemd.set("properties", SUCCEEDED)
    assert (
        "  last run  succeeded, Wed 2026-11-25 09:00:00 UTC\nLingering is off"
        in relay("service", "status").stdout
    )
    systemd.set("properties", FAILED)
    (project / "relay.toml").write_text(FLEET + "# changed\n")
    output = relay("service", "status").stdout
    assert f"{project}/relay.toml: enabled\n" in output
    assert "  last run  failed: exited with 1, Wed " in output
    assert "  problem   " in output
    assert "is not trusted" in output
    assert "  see       journalctl --user -u relay-web.service\n" in output
    systemd.set("properties", "ActiveState=activating")
    assert "last run  is running" in relay("service", "status").stdout
    systemd.set("absent", "")
    assert status(relay)["services"][0]["enabled"] is None


def test_an_untrusted_fleet_is_not_installed(relay: Relay, systemd: Systemd, project: Path) -> None:
    (project / "relay.toml").write_text(FLEET + "# changed\n")
    done = relay("service", "install", cwd=project, check=False)
    assert (done.returncode, "relay trust" in done.stderr) == (1, True)
    assert systemd.files() == []


def test_a_failed_install_is_rolled_back(relay: Relay, systemd: Systemd, project: Path) -> None:
    systemd.set("refuses", "enable")
    done = relay("service", "install", cwd=project, check=False)
    assert done.returncode == 1
    assert done.stderr == "relay: `systemctl --user enable` failed: Failed to enable unit: it was told to.\n"
    assert systemd.files() == []
    systemd.set("refuses", "")
    relay("service", "install", cwd=project)
    before = (systemd.folder / "relay-web.service").read_text()
    systemd.set("refuses", "daemon-reload")
    relay("service", "install", cwd=project, env={"LANG": "C"}, check=False)
    assert (systemd.folder / "relay-web.service").read_text() == before


@pytest.mark.parametrize("how", ["absent", "not installed"])
def test_without_systemd_nothing_is_written_and_a_line_for_cron_is_printed(
    relay: Relay, systemd: Systemd, project: Path, how: str
) -> None:
    """The printed line starts the fleet: here sh runs it, with an empty environment."""
    systemd.set("absent", "")
    path = os.environ["PATH"] if how == "absent" else str(relay.home / "empty")
    env = {} if how == "absent" else {"PATH": path}
    done = relay("service", "install", cwd=project, env=env, check=False)
    assert done.returncode == 1
    assert "nothing was written" in done.stderr
    assert systemd.files() == []
    output, _, line = done.stderr.rstrip("\n").rpartition("\n  @reboot ")
    assert ("No medium found" if how == "absent" else "it is not on PATH") in output
    if how == "absent":
        subprocess.run(["/bin/sh", "-c", line.replace(r"\%", "%")], env={}, cwd="/", check=True)
        assert states(relay).keys() == {"A"}


@pytest.mark.parametrize("action", ["install", "remove", "status"])
def test_an_agent_may_not_use_the_service_command(
    relay: Relay, systemd: Systemd, project: Path, action: str
) -> None:
    agent = {"RELAY_SOCKET": str(relay.home / "run" / "x.sock"), "RELAY_NAME": "Alice"}
    done = relay("service", action, cwd=project, env=agent, check=False)
    assert (done.returncode, "an agent may not" in done.stderr) == (1, True)
    assert systemd.files() == []


def states(relay: Relay, *options: str) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(relay("ps", "--json", "-t", "web", *options).stdout)}


def start_unit(unit: Path) -> subprocess.CompletedProcess[str]:
    """Run the unit's command, in its own environment only.

    Its words are parsed by a shell's rules; test_boot_service.py tests that systemd agrees.
    """
    env, command, directory = {}, [], ""
    for line in unit.read_text().splitlines():
        key, _, value = line.partition("=")
        words = [word.replace("%%", "%") for word in shlex.split(value)] if key != "WorkingDirectory" else []
        match key:
            case "Environment":
                name, _, env_value = words[0].partition("=")
                env[name] = env_value
            case "ExecStart":
                command = [word.replace("$$", "$") for word in words]
            case "WorkingDirectory":
                directory = value.replace("%%", "%")
    return subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True, check=False)


def kill(relay: Relay, number: signal.Signals) -> None:
    for pid in processes_of(relay.home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def power_cut(relay: Relay) -> None:
    kill(relay, signal.SIGKILL)


def shutdown(relay: Relay) -> None:
    """Do what systemd-shutdown(8) does."""
    kill(relay, signal.SIGTERM)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not processes_of(relay.home), timeout=10)
    kill(relay, signal.SIGKILL)


@pytest.mark.slow
def test_after_a_reboot_the_fleet_is_started_again(relay: Relay, systemd: Systemd, project: Path) -> None:
    """Except for what the user has ended: B by `stop`, C by `down`, D by both."""
    write(relay, project, FOUR)
    relay("service", "install", cwd=project)
    relay("up", cwd=project)
    relay("stop", "B", "D", "-t", "web")
    for ending in (power_cut, shutdown):
        relay("down", "C", "D", cwd=project)
        before = states(relay)["A"]["agent_pid"]
        ending(relay)
        wait_until(lambda: not processes_of(relay.home))

        done = start_unit(systemd.folder / "relay-web.service")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("is not started at boot; `relay up ") == 3
        rows = states(relay, "-a")
        assert {name: row["wanted"] for name, row in rows.items()} == {
            "A": "up",
            "B": "down",
            "C": "down",
            "D": "down",
        }
        assert states(relay).keys() == {"A"}
        assert rows["A"]["agent_pid"] != before
    again = start_unit(systemd.folder / "relay-web.service")
    assert "A is already running." in again.stdout
    relay("up", cwd=project)
    assert states(relay).keys() == {"A", "C"}, "`relay up` starts what only `relay down` has ended"


@pytest.fixture
def real_systemd(relay: Relay) -> Path:
    """Yield the unit folder of the user's own systemd; the test leaves nothing in it."""
    asked = ["systemctl", "--user", "show", "--property=UnitPath", "--value"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user systemd runs here: no unit of `relay service` was started by a real one")
    folder = Path(next(path for path in found if path.endswith("/systemd/user.control"))).with_name("user")
    bus = {
        name: os.environ[name]
        for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
        if name in os.environ
    }
    relay.environment |= {**bus, "XDG_CONFIG_HOME": str(folder.parent.parent)}
    return folder


@pytest.mark.slow
def test_a_unit_works_with_a_real_systemd(relay: Relay, real_systemd: Path, project: Path) -> None:
    """Stopping or removing the unit ends no agent."""

    def systemctl(*arguments: str) -> str:
        done = subprocess.run(
            ["systemctl", "--user", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    team = relay.home.name
    write(relay, project, FOUR.replace('"web"', f'"{team}"'))
    unit = real_systemd / f"relay-{team}.service"
    relay("service", "install", cwd=project)
    try:
        assert systemctl("is-enabled", unit.name) == "enabled"
        systemctl("start", unit.name)

        def agents() -> dict[str, int]:
            rows = json.loads(relay("ps", "--json", "-t", team).stdout)
            return {row["name"]: row["agent_pid"] for row in rows}

        first = agents()
        assert first.keys() == {"A", "B", "C", "D"}
        (own,) = [each for each in status(relay)["services"] if each["fleet"] == f"{project}/relay.toml"]
        assert (own["enabled"], own["last"], own["failed"]) == (True, "succeeded", False)
        systemctl("stop", unit.name)
        assert agents() == first
        relay("down", "C", cwd=project)
        power_cut(relay)
        wait_until(lambda: not processes_of(relay.home))
        systemctl("start", unit.name)
        second = agents()
        assert second.keys() == {"A", "B", "D"}
        assert not set(second.values()) & set(first.values())
    finally:
        relay("service", "remove", cwd=project)
    assert agents() == second
    assert not unit.exists()
    assert systemctl("show", unit.name, "--property=LoadState", "--value") == "not-found"
