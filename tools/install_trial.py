"""Install the wheel and the sdist as users do, by pip, pipx and uv, on each Python there is; run relay.

python -m tools.install_trial [--python 3.12]... [--with uv]... [--require-all]

Pythons come from PATH and from pyenv; wheel and sdist are those of the commit, and the home is empty. What
could not be tried is listed at the end. The exit code is 1 if a trial fails, or with --require-all if one was
left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from tools.dist import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_CACHE = ROOT / ".cache" / "install"
_TOOLS = _CACHE / "tools"
_SECONDS = 600.0  # for one command


class Failed(Exception):
    """A command failed. Its text is what it printed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", metavar="X.Y", help="this one only; may be repeated")
    parser.add_argument(
        "--with", dest="installers", action="append", choices=INSTALLERS, help="this one only"
    )
    parser.add_argument("--require-all", action="store_true", help="fail if something could not be tried")
    arguments = parser.parse_args()
    packages = _packages()
    _make_tools()
    failed, skipped = [], []
    for number in arguments.python or PYTHONS:
        python = find(number)
        if python is None:
            skipped.append(f"Python {number}: not in PATH, and not in pyenv")
            continue
        for installer, (kind, package) in product(arguments.installers or INSTALLERS, packages.items()):
            try:
                said = trial(python, installer, package)
            except (Failed, subprocess.TimeoutExpired) as error:
                failed.append(f"Python {number}, {installer}, {kind}")
                print(f"FAILED  Python {number}  {installer}  {kind}\n{error}", flush=True)
            else:
                print(f"ok      Python {number}  {installer:<4}  {kind:<5}  {said}", flush=True)
    for each in skipped:
        print(f"SKIPPED {each}", flush=True)
    if failed:
        print(f"\n{len(failed)} failed: {'; '.join(failed)}.")
    if skipped:
        print(f"\nNOT EVERYTHING WAS TRIED: {len(skipped)} version(s) of Python are missing.")
    return 1 if failed or (skipped and arguments.require_all) else 0


def find(number: str) -> str | None:
    """Return the path of Python `number`, such as "3.12"; None if this machine has none that runs."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{number}"), *sorted(map(str, root.glob(f"versions/{number}.*/bin/python")))]
    for path in filter(None, found):
        command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0 and run.stdout.startswith(f"{number} "):
            return run.stdout.removeprefix(f"{number} ").strip()
    return None


def trial(python: str, installer: str, package: Path) -> str:
    """Install `package` for `python` into a new folder and run relay; return its version. Raise Failed."""
    with tempfile.TemporaryDirectory(prefix="relay-install-") as folder:
        scripts = INSTALLERS[installer](python, package, Path(folder))
        home = Path(folder, "home")
        home.mkdir()
        environment = {
            "HOME": str(home),
            "PATH": f"{scripts}:/usr/bin:/bin",
            "TERM": "xterm",
            "LANG": "C.UTF-8",
        }
        relay = str(scripts / "relay")
        said = _run([relay, "--version"], environment, home).strip()
        if said != f"relay {package.name.removesuffix('.tar.gz').split('-')[1]}":
            raise Failed(f"relay --version said {said!r}")
        _run([relay, "doctor"], environment, home)
        if "Bob received Alice's greeting" not in (shown := _run([relay, "demo"], environment, home)):
            raise Failed(f"relay demo said:\n{shown}")
    return said


def _pip(python: str, package: Path, folder: Path) -> Path:
    _run([python, "-m", "venv", str(folder / "venv")], _installing())
    _run(
        [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", str(package)],
        _installing(),
    )
    return folder / "venv" / "bin"


def _pipx(python: str, package: Path, folder: Path) -> Path:
    own = {
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PIPX_MAN_DIR": str(folder / "man"),
    }
    _run([str(_TOOLS / "bin" / "pipx"), "install", "--python", python, str(package)], _installing() | own)
    return folder / "bin"


def _uv(python: str, package: Path, folder: Path) -> Path:
    own = {
        "UV_TOOL_DIR": str(folder / "uv"),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "UV_CACHE_DIR": str(_CACHE / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    _run(
        [str(_TOOLS / "bin" / "uv"), "tool", "install", "--python", python, str(package)], _installing() | own
    )
    return folder / "bin"


INSTALLERS: Mapping[str, Callable[[str, Path, Path], Path]] = {"pip": _pip, "pipx": _pipx, "uv": _uv}
"""Each installs a package for a Python into a folder, and returns the directory with the `relay` command."""


def _installing() -> dict[str, str]:
    """The environment of installers: the caller's, with its proxies and indexes, but without its Python."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RELAY_", "PYTHON", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PYENV_VERSION"))
    }


def _packages() -> Mapping[str, Path]:
    """Build the wheel and the sdist; return their paths by these words."""
    built = _CACHE / "dist"
    _run([sys.executable, "-m", "tools.dist", "--out", str(built)], dict(os.environ), ROOT)
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def _make_tools() -> None:
    """Install pipx and uv, once, into a virtual environment of their own."""
    if not all((_TOOLS / "bin" / name).exists() for name in ("pipx", "uv")):
        venv.create(_TOOLS, with_pip=True)
        _run([str(_TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", "pipx", "uv"], _installing())


def _run(command: Sequence[str], environment: Mapping[str, str], cwd: Path | None = None) -> str:
    """Run `command` and return what it printed. Raise Failed, with that, if it fails."""
    run = subprocess.run(
        command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_SECONDS, check=False,
    )  # fmt: skip
    if run.returncode != 0:
        raise Failed(f"{' '.join(command[:4])} ... exited with {run.returncode}:\n{run.stdout}")
    return run.stdout


if __name__ == "__main__":
    sys.exit(main())
