"""The wheel and the sdist are reproducible and complete, and install a working `relay`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
EPOCH = 1_760_000_000


def tracked() -> list[str]:
    """Return the committed and committable files of this working tree; without git, all but caches."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
            "\0"
        )
    except (OSError, subprocess.CalledProcessError):  # an sdist, or a clone of another user
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [
            str(path) for path in found if not {".venv", ".cache", ".git", "__pycache__"} & {*path.parts}
        ]
    return [name for name in names if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the committed and committable files."""
    folder = tmp_path_factory.mktemp("tree")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(tree: Path, out: Path, umask: int) -> Path:
    """Build `tree` into the folder `out`, and return `out`."""
    command = ["-m", "tools.dist", "--tree", str(tree), "--epoch", str(EPOCH), "--out", str(out)]
    run = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return out


@pytest.fixture(scope="module")
def distribution(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, tmp_path_factory.mktemp("built"), 0o022)


@pytest.fixture(scope="module")
def wheel(distribution: Path) -> Path:
    (found,) = distribution.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(distribution: Path) -> Path:
    (found,) = distribution.glob("*.tar.gz")
    return found


def test_builds_are_reproducible(tree: Path, distribution: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(tree, tmp_path / "a" / "longer" / "path")
    for path in elsewhere.rglob("*"):
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
        os.utime(path, (1_500_000_000, 1_500_000_000))
    again = build(elsewhere, tmp_path / "out", 0o077)
    archives = sorted(path.name for path in distribution.iterdir())
    assert [PurePosixPath(name).suffix for name in archives] == [".whl", ".gz"]
    assert sorted(path.name for path in again.iterdir()) == archives
    for name in archives:
        assert (distribution / name).read_bytes() == (again / name).read_bytes(), name


def test_the_sdist_has_every_committed_file(sdist: Path, tree: Path) -> None:
    top = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {member.name.removeprefix(f"{top}/") for member in archive if not member.isdir()}
    assert inside - {"PKG-INFO"} == {
        str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()
    }
    assert {"LICENSE", "tests/test_wheel.py", "examples/greeter.py", "patterns/claude.toml"} <= inside


def test_the_wheel_has_the_licence_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (licence,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()
    assert not [
        name for name in names if {"tests", "tools", "benchmarks", "docs"} & set(PurePosixPath(name).parts)
    ]


def test_patterns_and_config_are_in_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for data in ("patterns", "config"):
        shipped = {name for name in names if name.startswith(f"relay/_data/{data}/")}
        assert {Path(name).name for name in shipped} >= {
            file.name for file in (ROOT / data).rglob("*") if file.is_file()
        }
        assert shipped
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"relay", "relay_memory"}
    assert any(name.endswith(".data/data/share/man/man1/relay.1") for name in names)
    plugins = {*(ROOT / "relay").rglob("*.mjs")}
    pages = {path for path in (ROOT / "relay" / "web" / "static").rglob("*") if path.is_file()}
    assert plugins - pages and pages
    assert {"relay/py.typed", *(str(path.relative_to(ROOT)) for path in plugins | pages)} <= set(names)


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python, relay = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "relay"
    # What is not imported here need not be compiled.
    install = [*("-m", "pip", "--python", python, "install"), "--quiet", "--no-compile", wheel]
    subprocess.run([sys.executable, *install], check=True, timeout=110)

    def output(*command: str | Path) -> str:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RELAY_HOME": str(tmp_path / "home")}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    assert output(relay, "--version") == f"relay {wheel.name.split('-')[1]}\n"
    assert "relay demo" in output(relay, "--help")
    where = output(python, "-c", "from relay.data import directory as d; print(d('patterns'), d('config'))")
    for path in where.split():
        assert path.startswith(str(tmp_path))
        assert list(Path(path).iterdir())
    output(relay, "memory", "save", "hello")
    assert "hello" in output(relay, "memory", "list")
    assert "Bob received Alice's greeting" in output(relay, "demo")
