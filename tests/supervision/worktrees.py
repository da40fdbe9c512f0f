"""One repository and one home, in which worktrees are prepared and removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.home import Home
from relay.supervision.worktree import AgentWorktree, CleanedUp, Worktree, WorktreeSpec
from supervision.repositories import Repo


class Rig:
    """One repository and one home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(*(str(root / "home" / name) for name in ("config", "state", "run"))).ensure()
        self.repo = Repo(root / "app")
        self.lines: list[str] = []

    def prepare(
        self,
        agent: str = "Alice",
        spec: WorktreeSpec | None = None,
        *,
        at: Path | None = None,
        lasting: bool = True,
        home: Home | None = None,
        **env: str,
    ) -> Worktree:
        worktree = AgentWorktree(
            spec or WorktreeSpec(),
            agent,
            team="web",
            home=home or self.home,
            directory=at or self.repo.path,
            env={**self.repo.env, **env},
            progress=self.lines.append,
        )
        return worktree.prepare(lasting=lasting)

    def clean_up(self, spec: WorktreeSpec | None = None, agent: str = "Alice") -> CleanedUp:
        worktree = AgentWorktree(
            spec or WorktreeSpec(cleanup="merged"),
            agent,
            team="web",
            home=self.home,
            directory=self.repo.path,
            env=self.repo.env,
        )
        return worktree.clean_up()

    @contextmanager
    def running(self, agent: str, pid: int | None = None) -> Iterator[None]:
        """Hold the lock that the shim of `agent` holds while it runs. pid: the agent's own, in the lock."""
        path = Path(self.home.agent_lock("web", agent))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            print("" if pid is None else pid, file=file, flush=True)
            yield

    def script(self, spec: str, agent: str = "Alice") -> subprocess.Popen[str]:
        """Start a process in a new group that prepares a worktree; spec: the arguments of WorktreeSpec."""
        code = (
            "import sys; from pathlib import Path\n"
            "from relay.home import Home\n"
            "from relay.supervision.worktree import AgentWorktree, WorktreeSpec\n"
            "home = Home(*sys.argv[1:4])\n"
            f"found = AgentWorktree(WorktreeSpec({spec}), {agent!r}, team='web', home=home, "
            "directory=Path(sys.argv[4]), progress=lambda line: print(line, flush=True)).prepare()\n"
            "print('READY', found.path)\n"
        )
        home = self.home
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                home.config_dir,
                home.state_dir,
                home.run_dir,
                str(self.repo.path),
            ],
            env={**self.repo.env, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def group_is_gone(group: int) -> bool:
    """Return True if no process in the process group `group` is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
