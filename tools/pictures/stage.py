"""A home of relay's own, in which small programs act stories as agents (agent.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pexpect

STORIES = Path(__file__).parent / "stories"
AGENT = (sys.executable, str(Path(__file__).parent / "agent.py"))
RELAY = (sys.executable, "-m", "relay")

_NOT_YET = {"", "starting", "unresponsive"}  # states of a session that may not record yet
_PATIENCE = 60.0  # seconds for anything to happen


class Home:
    """A home of relay's own, and the `relay` command in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH"}}
        self.environment = kept | {
            "HOME": str(path),
            "RELAY_HOME": str(path),
            "LC_ALL": "C.UTF-8",
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
        }

    def __call__(self, *arguments: str) -> str:
        """Run the command and return what it printed; raise CalledProcessError if it failed."""
        command = [*RELAY, *arguments]
        return subprocess.run(
            command, cwd=self.path, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def spawn(self, size: tuple[int, int], *arguments: str, folder: str = "") -> pexpect.spawn:
        """Start the command in a terminal of `size`, columns and rows, in a `folder` of the home."""
        environment: Mapping[str, str] = self.environment
        return pexpect.spawn(
            RELAY[0],
            [*RELAY[1:], *arguments],
            cwd=self.path / folder,
            env=environment,
            dimensions=size[::-1],
            timeout=_PATIENCE,
        )

    def wait_for(self, name: str) -> None:
        """Return once the session of `name` is ready to record what the agent does next."""
        until(lambda: self._state(name) not in _NOT_YET and self.recordings(name))

    def _state(self, name: str) -> str:
        found = json.loads(self("ps", "--json"))
        return next((str(each["state"]) for each in found if each["name"] == name), "")

    def said(self, name: str, text: str) -> bool:
        """Return True once `text` is on the screen of agent `name`."""
        return text in self("peek", name)

    def recording(self, name: str) -> Path:
        (found,) = self.recordings(name)
        return found

    def recordings(self, name: str) -> list[Path]:
        return [*self.path.glob(f"state/recordings/*/{name}-*.cast")]


@contextmanager
def fresh_home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="relay-", ignore_cleanup_errors=True) as folder:
        home = Home(Path(folder))
        try:
            yield home
        finally:
            home("stop", "--all", "--now")
            home("broker", "stop")


def until(condition: Callable[[], object], children: list[pexpect.spawn] | None = None) -> None:
    """Return once `condition()` holds; read meanwhile what `children` print."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what is to be recorded has not happened.")
        for child in children or []:
            read(child, 0)
        time.sleep(0.05)


def read(child: pexpect.spawn, seconds: float) -> None:
    """Read what `child` prints for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            child.read_nonblocking(65536, max(0.0, deadline - time.monotonic()))
        except pexpect.TIMEOUT:
            pass
        if time.monotonic() >= deadline:
            return
