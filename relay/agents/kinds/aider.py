"""aider: a log of its model calls for one run, with the model's exact words.

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
from relay.agents.kind import AgentKind
from relay.agents.named_transcripts import Named, iso
from relay.agents.transcript_lines import BEFORE, Ambiguous, LineReader, Said
from relay.errors import ConfigError

FLAG = "--llm-history-file"

_OWN = re.compile(r"^\s*(export\s+)?(AIDER_)?LLM[-_]HISTORY[-_]FILE\s*[:=]", re.MULTILINE | re.IGNORECASE)
"""The same option in .aider.conf.yml or .env."""


class Aider(AgentKind):
    name = "aider"
    silent_turns = 3  # it does not log what it has another model write, such as a commit message

    def prepare(self, run: Run) -> Prepared:
        """Return `aider ARG...` with `--llm-history-file FILE` first. Raise ConfigError if it has one."""
        if _has_own(run):
            raise ConfigError(
                f"aider accepts only one {FLAG}, and you already use it; relay reads its screen instead"
            )
        path = f"{run.directory}/model-calls.log"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        command = run.with_flags([FLAG, path], run.arguments)
        record = Named(self.name, glob.escape(path), iso(time.time()), ours=True)
        return Prepared(command, run.env, record=record)

    def reader(self) -> LineReader:
        return _ModelCalls().read


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


class _ModelCalls:
    """The log of its model calls. A text ends with the next line that is not part of it.

        TO LLM 2026-11-23T15:45:05                  LLM RESPONSE 2026-11-23T15:45:07
        -------                                     ASSISTANT I say this
        USER what the user said, and whole files    ASSISTANT in two lines

    A part of a request that is a list, as when prompts are cached, has its role only before its first line:
    a file that the user has added could then look like an answer.
    """

    def __init__(self) -> None:
        self._answers = 0
        self._lines: list[str] | None = None  # of the answer that is being read

    def read(self, line: bytes) -> list[Said]:
        if self._lines is not None and (line + b" ").startswith(b"ASSISTANT "):
            self._lines.append(line[len(b"ASSISTANT ") :].decode("utf-8", "replace"))
            return []
        said = self._end()
        if _ANSWER.match(line):
            self._answers += 1
            self._lines = []
        elif line and not _REQUEST.match(line):
            raise Ambiguous("its log of model calls does not distinguish files in the chat from answers")
        return said

    def _end(self) -> list[Said]:
        if not self._lines:
            return []
        text, self._lines = _THOUGHTS.sub("", "\n".join(self._lines)), None
        return [Said(text, f"answer/{self._answers}", place=BEFORE)] if text.strip() else []


_ANSWER = re.compile(rb"LLM RESPONSE [-0-9T:]{19}$")
_REQUEST = re.compile(rb"TO LLM [-0-9T:]{19}$|-------$|[A-Z]+( |$)")
_THOUGHTS = re.compile(r"<(thinking-content-\w+|think(?:ing)?)>.*?(</\1>|\Z)", re.DOTALL)
"""aider's tags (reasoning_tags.py), and those of models that write them themselves."""
