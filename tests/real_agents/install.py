"""Install the pinned versions of the agent CLIs that these tests drive, in .cache/agents of this clone.

    python tests/real_agents/install.py claude qwen       what `make test-agents` runs

With AGENTS_NEWEST=1 in the environment (`make test-agents-newest`), these are the newest versions in the
registries when this last ran, recorded in .cache/agents/newest.json.

.cache/agents/NAME-VERSION/ holds one agent, and is complete once it contains `.complete`; NAME-VERSION.log is
the installation's log. Without npm, or a Python that aider runs on, an agent is left out and its tests are
skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from platform import machine

CACHE = Path(__file__).resolve().parents[2] / ".cache"
NEWEST = os.environ.get("AGENTS_NEWEST") == "1"
NEWEST_FILE = CACHE / "agents" / "newest.json"
NODE_PACKAGE = f"node-{sys.platform}-{'x64' if machine() == 'x86_64' else 'arm64'}"
"""The npm package that contains Node.js itself."""
MINUTES = 20
"""Minutes until an installation is aborted; aider's 666 MB are the largest."""


@dataclass(frozen=True, slots=True)
class Package:
    """The installation of one agent. program: its command, as a path in its folder.

    after: a Node program of the package that must run once; npm does not run packages' scripts.
    """

    name: str
    package: str
    version: str
    program: str
    after: str = ""

    @property
    def folder(self) -> Path:
        return CACHE / "agents" / f"{self.name}-{self.version}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def npm(self) -> bool:
        return self.program.startswith("node_modules/")

    @property
    def installed(self) -> bool:
        return (self.folder / ".complete").exists()

    @property
    def command(self) -> Path:
        return self.folder / self.program

    @property
    def node(self) -> Path:
        """Return the folder of the agent's own Node.js, used if this machine's is too old."""
        return self.folder / "node_modules" / NODE_PACKAGE / "bin"

    def environment_path(self) -> Mapping[str, str]:
        """Return PATH for the agent: the system's programs, and the Node.js that npm's agents need."""
        folders = ["/usr/local/bin", "/usr/bin", "/bin"]
        system = shutil.which("node")
        node = self.node if self.node.is_dir() else Path(system).parent if system else None
        if node is not None and str(node) not in folders:
            folders.insert(0, str(node))
        return {"PATH": ":".join(folders)}

    def newest(self) -> str:
        """Return the newest version in the registry. Raise OSError or SubprocessError."""
        if self.npm:
            command = ["npm", "view", self.package, "version"]
        else:
            command = [python() or "python3.12", "-m", "pip", "index", "versions", self.package]
        output = subprocess.run(command, capture_output=True, text=True, timeout=MINUTES * 60, check=True)
        return output.stdout.strip() if self.npm else output.stdout.partition("(")[2].partition(")")[0]

    def blocked(self) -> str:
        """Return what this machine lacks for the installation, or ""."""
        if self.npm and not (shutil.which("npm") and shutil.which("node")):
            return f"{self.name}: npm and Node.js are not installed"
        if not self.npm and python() is None:
            return f"{self.name}: there is no Python 3.10, 3.11 or 3.12, and it runs on no other"
        return ""

    def missing(self) -> str:
        """Return why the agent cannot be tested, or "" if it is installed."""
        if self.installed:
            return ""
        if blocked := self.blocked():
            return blocked
        if self.log.exists():
            return f"{self.name} {self.version} could not be installed: {self.log} says why"
        target = "test-agents-newest" if NEWEST else "test-agents"
        return f"{self.name} {self.version} is not installed: `make {target} AGENTS={self.name}` does that"

    def install(self) -> None:
        """Install it. Raise CalledProcessError or TimeoutExpired on failure, with the details in `log`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with open(self.log, "w", encoding="utf-8") as log:

            def run(*command: str | Path) -> None:
                subprocess.run(
                    command,
                    cwd=self.folder,
                    env={**os.environ, "npm_config_cache": str(CACHE / "npm")},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=MINUTES * 60,
                    check=True,
                )

            pinned = f"{self.package}@{self.version}" if self.npm else f"{self.package}=={self.version}"
            if self.npm:
                quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
                install = ("npm", "install", *quiet, "--prefix", self.folder)
                run(*install, pinned)
                manifest = self.folder / "node_modules" / self.package / "package.json"
                if major := _missing_node(manifest):
                    run(*install, f"{NODE_PACKAGE}@{major}")
                after = self.folder / "node_modules" / self.package / self.after
                if after.is_file():  # older versions have none
                    run("node", after)
            else:
                run(python() or "python3.12", "-m", "venv", self.folder)
                run(self.folder / "bin" / "python", "-m", "pip", "install", "--quiet", pinned)
        (self.folder / ".complete").touch()


PINNED = {
    package.name: package
    for package in (
        Package(
            "claude", "@anthropic-ai/claude-code", "2.1.197", "node_modules/.bin/claude", after="install.cjs"
        ),
        Package("codex", "@openai/codex", "0.169.0", "node_modules/.bin/codex"),
        Package("qwen", "@qwen-code/qwen-code", "0.15.10", "node_modules/.bin/qwen"),
        Package("pi", "@mariozechner/pi-coding-agent", "0.73.1", "node_modules/.bin/pi"),
        Package("gemini", "@google/gemini-cli", "0.61.0", "node_modules/.bin/gemini"),
        Package("opencode", "opencode-ai", "1.18.33", "node_modules/.bin/opencode", after="postinstall.mjs"),
        Package("copilot", "@github/copilot", "1.0.102", "node_modules/.bin/copilot"),
        Package("aider", "aider-chat", "0.86.2", "bin/aider"),
    )
}
"""The versions that relay was built with."""


RENAMED = {"pi": "@earendil-works/pi-coding-agent"}
"""The packages of newest versions, where they have another name than those of the pinned ones."""


def _newest() -> dict[str, str]:
    """Return the recorded newest versions by agent."""
    try:
        return dict(json.loads(NEWEST_FILE.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


PACKAGES = dict(PINNED)
if NEWEST:
    PACKAGES |= {name: replace(PINNED[name], package=package) for name, package in RENAMED.items()}
    PACKAGES |= {name: replace(PACKAGES[name], version=version) for name, version in _newest().items()}
"""The packages to test."""


def python() -> str | None:
    """Return a Python that aider runs on: 3.10 to 3.12, from PATH, pyenv or uv."""
    candidates = [sys.executable, "python3.12", "python3.11", "python3.10"]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.1[0-2]*/bin/python"), reverse=True))
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", "3.12"], capture_output=True, text=True, check=False)
        candidates += found.stdout.split()
    return next((each for each in candidates if _version(each) in {"3.10", "3.11", "3.12"}), None)


def _version(interpreter: str) -> str:
    """Return MAJOR.MINOR of an interpreter, or "" if it does not run (a pyenv shim may not)."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        run = subprocess.run([interpreter, "-c", show], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return run.stdout.strip()


def _missing_node(manifest: Path) -> str:
    """Return the Node.js major version that a package requires, or "" if this machine's is new enough."""
    engines = json.loads(manifest.read_text(encoding="utf-8")).get("engines", {})
    least = re.search(r"\d+", engines.get("node", ""))
    show = "console.log(process.versions.node.split('.')[0])"
    have = subprocess.run(["node", "-e", show], capture_output=True, text=True, check=True).stdout
    return least[0] if least and int(least[0]) > int(have) else ""


def main(names: list[str]) -> int:
    """Install missing agents; an unknown name is an error, a failed installation only a notice."""
    if unknown := sorted(set(names) - set(PACKAGES)):
        print(f"No such agent: {', '.join(unknown)}. There are {', '.join(PACKAGES)}.", file=sys.stderr)
        return 2
    if NEWEST:
        _look_for_newest(names)
    for package in (PACKAGES[name] for name in names):
        if package.installed:
            continue
        if blocked := package.blocked():
            print(f"NOT TESTED: {blocked}.", file=sys.stderr)
            continue
        print(f"Installing {package.name} {package.version} in {package.folder} (once) ...", flush=True)
        try:
            package.install()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"That failed: {error}. See {package.log}.", file=sys.stderr)
    return 0


def _look_for_newest(names: list[str]) -> None:
    """Record the newest versions; if a registry does not answer, report it and keep the pinned version."""
    for name in names:
        try:
            PACKAGES[name] = replace(PACKAGES[name], version=PACKAGES[name].newest())
        except (OSError, subprocess.SubprocessError) as error:
            print(f"NOT TESTED: the newest {name}: {error}", file=sys.stderr)
    NEWEST_FILE.parent.mkdir(parents=True, exist_ok=True)
    versions = _newest() | {name: PACKAGES[name].version for name in names}
    NEWEST_FILE.write_text(json.dumps(versions, indent=1), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
