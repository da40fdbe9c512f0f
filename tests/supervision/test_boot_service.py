"""Services that start a fleet after a reboot, as read by systemd itself, by plistlib, and by sh for cron."""

from __future__ import annotations

import os
import plistlib
import shlex
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import debian
from relay.errors import ServiceError
from relay.supervision.boot_service import BootService, boot_service, choose_name
from relay.supervision.launchd import LaunchdUser, job
from relay.supervision.systemd import SystemdUser, unit_text
from support import many

ODD = Path('/src/a b/100%h "web"/it\'s $HOME; é\\')
ENV = {"PATH": '/opt/my tools:/a"b\\:/usr/bin', "LANG": "C.UTF-8", "TERM": "screen", "SECRET": "s"}

names = st.text(
    st.sampled_from(" %\"'\\$;@~-`#ü")
    | st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="/\ufffe\uffff"),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in {".", ".."})


def service(folder: Path = ODD, env: dict[str, str] = ENV) -> BootService:
    return boot_service("web", "web", folder / "relay.toml", env)


def verified(service: BootService, folder: Path) -> dict[str, list[str]]:
    """Return what the real systemd reads in the unit: the values of each key in its dump."""
    analyze = debian.require("systemd-analyze")
    unit = folder / "relay-web.service"
    unit.write_text(unit_text(service), "utf-8")
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    env = {"XDG_RUNTIME_DIR": str(folder / "run"), "SYSTEMD_LOG_LEVEL": "debug", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [analyze, "verify", "--user", "--man=no", unit],
        env={**os.environ, **env},
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, found, dump = done.stdout.partition("-> Unit relay-web.service:")
    assert found, done.stderr
    values: dict[str, list[str]] = {}
    for line in dump.splitlines():
        key, colon, value = line.lstrip("\t").partition(": ")
        if colon:
            values.setdefault(key, []).append(value)
    assert [line for line in done.stderr.splitlines() if "relay-web" in line and "gnoring" in line] == []
    return values


def words(line: str) -> list[str]:
    """Return the words of a command line in a dump, which is quoted for a shell."""
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return done.stdout.decode().removesuffix("\0").split("\0")


def expanded(words: list[str]) -> list[str]:
    """Return what systemd runs: a dump precedes variable expansion, and nothing may be expanded."""
    assert [word for word in words if "$" in word.replace("$$", "")] == []
    return [word.replace("$$", "$") for word in words]


def check_unit(service: BootService, folder: Path) -> None:
    values = verified(service, folder)
    (line,) = values["Command Line"]
    command = expanded(words(line))
    assert command == list(service.command)
    assert values["WorkingDirectory"] == [str(service.fleet.parent)]
    assert set(values["Environment"]) >= {f"{name}={value}" for name, value in service.environment.items()}
    assert values["KillMode"] == ["process"]


def test_systemd_reads_the_unit_as_intended(tmp_path: Path) -> None:
    check_unit(service(), tmp_path)


@settings(max_examples=many(75), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(folder=names, entry=names)
def test_systemd_reads_any_path(tmp_path: Path, folder: str, entry: str) -> None:
    check_unit(service(Path("/src", folder), {"PATH": f"/usr/bin:/{entry}"}), tmp_path)


def test_a_python_path_that_systemd_rejects_is_run_through_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / 'my "$venv"' / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    (line,) = verified(service(), tmp_path)["Command Line"]
    command = expanded(words(line))
    assert command == ["/usr/bin/env", *service().command]


def test_a_service_keeps_only_the_needed_environment() -> None:
    assert service().environment == {
        "PATH": ENV["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "screen",
    }
    assert service(env={"PATH": "/bin", "TERM": "dumb"}).environment["TERM"] == "xterm-256color"


@pytest.mark.parametrize("text", ["/a\nExecStart=/bin/evil", "/a\x1b", "/a\udcff", "/a\x7f", "/a\uffff"])
def test_control_characters_are_rejected(text: str) -> None:
    with pytest.raises(ServiceError, match="control character"):
        service(Path(text))
    with pytest.raises(ServiceError, match="PATH"):
        service(env={"PATH": text})


@given(folder=names, entry=names)
def test_launchd_reads_any_path(folder: str, entry: str) -> None:
    own = service(Path("/src", folder), {"PATH": f"/usr/bin:/{entry}"})
    read = plistlib.loads(plistlib.dumps(job(own, Path("/Users/u/Library/Logs/relay-web.log"))))
    assert read == {
        "Label": "relay.web",
        "ProgramArguments": list(own.command),
        "WorkingDirectory": str(own.fleet.parent),
        "EnvironmentVariables": dict(own.environment),
        "RunAtLoad": True,
        "AbandonProcessGroup": True,
        "StandardOutPath": "/Users/u/Library/Logs/relay-web.log",
        "StandardErrorPath": "/Users/u/Library/Logs/relay-web.log",
    }


@given(folder=names, entry=names)
def test_cron_reads_any_path(folder: str, entry: str) -> None:
    """cron removes the backslash before `%`, and passes the rest to sh."""
    own = service(Path("/src", folder), {"PATH": f"/usr/bin:/{entry}"})
    at, _, line = own.crontab_line().partition(" ")
    assert at == "@reboot"
    assert line.count("%") == line.count(r"\%")
    passed_to_sh = shlex.split(line.replace(r"\%", "%"))
    assert passed_to_sh == [*(f"{name}={value}" for name, value in own.environment.items()), *own.command]


def test_launchd_jobs_are_installed_listed_and_removed(tmp_path: Path) -> None:
    """With a fake launchctl that knows the job."""
    launchctl = tmp_path / "bin" / "launchctl"
    launchctl.parent.mkdir()
    launchctl.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$1" != list ] || echo \'"LastExitStatus" = 256;\'\n'
    )
    launchctl.chmod(0o755)
    manager = LaunchdUser({"HOME": str(tmp_path), "PATH": f"{launchctl.parent}:/usr/bin:/bin"})
    other = tmp_path / "Library" / "LaunchAgents" / "relay.other.plist"
    assert manager.installed() == []
    manager.install(service())
    other.write_bytes(plistlib.dumps({"Label": "relay.other", "ProgramArguments": ["/bin/true"]}))
    (found,) = manager.installed()
    assert (found.name, found.fleet, found.program) == ("web", ODD / "relay.toml", sys.executable)
    state = manager.state(found)
    assert (state.enabled, state.last, state.failed) == (True, "failed: exited with 1", True)
    manager.remove(found)
    assert (manager.installed(), other.exists()) == ([], True)
    assert f"bootout gui/{os.getuid()}/relay.web" in (tmp_path / "calls").read_text()


def test_two_fleets_of_one_name_get_two_services(tmp_path: Path) -> None:
    """A file that relay did not write is never overwritten."""
    manager = SystemdUser({"XDG_CONFIG_HOME": str(tmp_path), "PATH": ""})
    folder = manager.path("web").parent
    folder.mkdir(parents=True)

    def installed(fleet: Path) -> str:
        name = choose_name(manager, "web", fleet)
        manager.path(name).write_text(unit_text(boot_service(name, "web", fleet, ENV)))
        return name

    first, second = installed(Path("/a/web/relay.toml")), installed(Path("/b/web/relay.toml"))
    assert first == "web"
    assert set(second.removeprefix("web-")) <= set(string.hexdigits)
    assert installed(Path("/b/web/relay.toml")) == second
    assert {each.fleet.parts[1] for each in manager.installed()} == {"a", "b"}
    for path in folder.iterdir():
        path.write_text("[Service]\nExecStart=/bin/true\n")
    assert manager.installed() == []
    with pytest.raises(ServiceError, match="was not written by"):
        choose_name(manager, "web", Path("/b/web/relay.toml"))
