"""aider's setup: a log of its model calls for one run, with the model's exact words.

Its chat history is not enough: two aiders in one folder share it, and if a tool prints several lines, only
the first is marked as the tool's (0.86.2).
"""

from __future__ import annotations

import glob
import os
import re
import time
from pathlib import Path

from relay.agents.hook_setup import Prepared, Run
from relay.agents.named_transcripts import Named, iso
from relay.errors import ConfigError

FLAG = "--llm-history-file"

_OWN = re.compile(r"^\s*(export\s+)?(AIDER_)?LLM[-_]HISTORY[-_]FILE\s*[:=]", re.MULTILINE | re.IGNORECASE)
"""The same option in .aider.conf.yml or .env."""


def prepare(run: Run) -> Prepared:
    """Return `aider ARG...` as `aider --llm-history-file FILE ARG...`. Raise ConfigError for a user's own."""
    if _has_own(run):
        raise ConfigError(
            f"aider accepts only one {FLAG}, and you already use it; relay reads its screen instead"
        )
    path = f"{run.directory}/model-calls.log"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    command = run.with_flags([FLAG, path], run.arguments)
    record = Named("aider", glob.escape(path), iso(time.time()), ours=True)
    return Prepared(command, run.env, record=record)


def _has_own(run: Run) -> bool:
    files: list[Path] = []
    words = iter(run.arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("--l") and FLAG.startswith(name):
            return True
        if name in {"-c", "--config", "--env-file"}:
            files.append(Path(value if equals else next(words, "")))
    here = Path.cwd()
    git = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    for folder in {here, git, Path(run.env.get("HOME") or "/")}:
        files += (folder / ".aider.conf.yml", folder / ".env")
    return "AIDER_LLM_HISTORY_FILE" in run.env or any(map(_sets_it, files))


def _sets_it(path: Path) -> bool:
    try:
        return _OWN.search(path.read_text("utf-8", "replace")) is not None
    except OSError:
        return False
