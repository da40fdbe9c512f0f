"""The wheel: installed in an empty environment it is a working `relay` with its data files inside."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = out.glob("*.whl")
    return built


def test_patterns_and_config_are_inside_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for data in ("patterns", "config"):
        shipped = {name for name in names if name.startswith(f"relay/_data/{data}/")}
        assert {Path(name).name for name in shipped} >= {
            file.name for file in (ROOT / data).rglob("*") if file.is_file()
        }
        assert shipped
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"relay"}
    scripts = {f"relay/agents/{name}.mjs" for name in ("bridge", "opencode", "pi")}
    assert {"relay/py.typed", *scripts} <= set(names)


def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python, relay = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "relay"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(wheel)]
    subprocess.run(install, check=True, timeout=110)

    def output(*command: str | Path) -> str:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RELAY_HOME": str(tmp_path / "home")}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    assert output(relay, "--version").startswith("relay 0.")
    assert "relay demo" in output(relay, "--help")
    where = output(python, "-c", "from relay.data import directory as d; print(d('patterns'), d('config'))")
    for path in where.split():
        assert path.startswith(str(tmp_path))
        assert list(Path(path).iterdir())
    output(relay, "memory", "save", "hello")
    assert "hello" in output(relay, "memory", "list")
    assert "Bob received Alice's greeting" in output(relay, "demo")
