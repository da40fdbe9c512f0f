"""Programs that tests drive, from PATH or unpacked from Debian's archive into `.cache/debian`.

Nothing is installed and root is not needed: apt's lists and the packages' contents are in the clone's cache,
and a small wrapper script gives the program its libraries.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(__file__).parent.parent / ".cache" / "debian"

# The package that contains a program, and the program's path in the package.
PACKAGES = {
    "htop": ("htop", "usr/bin/htop"),
    "less": ("less", "usr/bin/less"),
    "mosquitto": ("mosquitto", "usr/sbin/mosquitto"),
    "systemd-analyze": ("systemd", "usr/bin/systemd-analyze"),
    "script": ("bsdutils", "usr/bin/script"),
    "strace": ("strace", "usr/bin/strace"),
    "tmux": ("tmux", "usr/bin/tmux"),
    "top": ("procps", "usr/bin/top"),
    "vim": ("vim-tiny", "usr/bin/vim.tiny"),  # the only variant that runs without vim-runtime
}

_SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"])


def require(program: str) -> Path:
    """Return the path of `program`, or skip the test if there is none."""
    found = _look(program)
    if isinstance(found, str):
        pytest.skip(f"{program} is not on PATH, and {found}")
    return found


def find(program: str) -> Path | None:
    """Return the path of an executable that runs `program`, or None if neither PATH nor apt has it."""
    found = _look(program)
    return None if isinstance(found, str) else found


@functools.cache
def _look(program: str) -> Path | str:
    """Return the path of the program, or the reason why there is none."""
    if found := shutil.which(program, path=_SYSTEM_PATH):
        return Path(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "there is no apt to fetch it with"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against other pytest workers and runs
        wrapper = CACHE / program / program
        if not wrapper.exists():
            try:
                _unpack(program, wrapper)
            except (subprocess.SubprocessError, OSError) as error:
                message = getattr(error, "stderr", None) or error
                return f"apt could not provide it: {' '.join(str(message).split())[-300:]}"
        return wrapper


def _unpack(program: str, wrapper: Path) -> None:
    package, executable = PACKAGES[program]
    build = CACHE / f"{program}.part"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    _apt("update")
    # The package and those of its dependencies that this machine lacks: 'URI' FILE SIZE HASH per line.
    wanted = _apt("install", "--print-uris", "-qq", "-y", "--no-install-recommends", "--reinstall", package)
    names = [line.split()[1].split("_")[0] for line in wanted.splitlines() if line.startswith("'")]
    _apt("download", *names, cwd=build)
    root = build / "root"
    for archive in build.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True, capture_output=True, timeout=60)
        archive.unlink()
    libraries = {library.parent for library in root.rglob("*.so*")}
    home = wrapper.parent
    paths = ":".join(str(home / directory.relative_to(build)) for directory in sorted(libraries))
    script = f'#!/bin/sh\nLD_LIBRARY_PATH="{paths}" exec "{home}/root/{executable}" "$@"\n'
    (build / program).write_text(script)
    (build / program).chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    build.rename(home)


def _apt(command: str, *arguments: str, cwd: Path | None = None) -> str:
    """Run apt-get with separate lists and caches. Return its standard output."""
    lists, cache = CACHE / "apt" / "lists", CACHE / "apt" / "cache"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::Lists": lists,
        "Dir::Cache": cache,
        "Debug::NoLocking": "1",  # the system's locks need root, and this changes nothing of the system
        "APT::Sandbox::User": "root",  # for runs as root: _apt cannot write in the clone
        "Acquire::http::Timeout": "20",
        "Acquire::Retries": "2",
    }
    settings = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    run = subprocess.run(
        ["apt-get", *settings, command, *arguments],
        check=True, capture_output=True, text=True, timeout=180, cwd=cwd,
    )  # fmt: skip
    return run.stdout
