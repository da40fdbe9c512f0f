"""Runs a command of relay, as the user would in another terminal: with its guards, limits and words."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from subprocess import PIPE

from relay.dataclass import dataclass
from relay.home import PYTHON
from relay.text import visible
from relay.top.remote import RemoteHost


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command that has ended."""

    output: str
    error: str
    succeeded: bool

    @property
    def sentence(self) -> str:
        """Its result in one line: the last one of its output, or else what is wrong."""
        said = self.output.strip() if self.output.strip() and self.succeeded else self.error.strip()
        return visible((said or self.output.strip()).rpartition("\n")[2]).removeprefix("relay: ")


async def run(*words: str, text: str = "", on: RemoteHost | None = None) -> CommandOutput:
    """Run `relay WORDS`, `on` another host if given. text: its standard input; others can see the words."""
    argv = [*PYTHON, "-m", "relay", *words] if on is None else on.command(*words)
    process = _start(argv)
    try:
        output, error = await asyncio.to_thread(process.communicate, text.encode("utf-8", "replace"))
    except asyncio.CancelledError:  # the user leaves; what a session was asked to do, it does
        process.kill()
        raise
    return CommandOutput(
        output.decode("utf-8", "replace"), error.decode("utf-8", "replace"), process.returncode == 0
    )


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
