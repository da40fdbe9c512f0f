"""Git repositories for tests, created by the real git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="worktrees: git is not installed")


def git_env(home: Path) -> dict[str, str]:
    """Return an environment without the developer's git configuration."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.invalid",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.invalid",
    }


class Repo:
    """A repository with one commit. `repo("status")` runs git in it and returns its output."""

    def __init__(self, path: Path, *, commit: bool = True, bare: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.env = git_env(path.parent)
        self("init", "-q", "-b", "main", *(["--bare"] if bare else []))
        if commit:
            self.write("file", "one\n")

    def __call__(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=at or self.path,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {arguments}: {done.stderr}"
        return done.stdout.strip()

    def write(self, name: str, text: str, at: Path | None = None) -> None:
        """Commit a file."""
        path = (at or self.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self("add", "--", name, at=at)
        self("commit", "-q", "-m", f"write {name}", at=at)
