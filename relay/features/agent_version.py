"""Finds the agent's version: from its own record, or by running the program once it has started.

relay asks once per run of the agent: later sessions find the answer in the progress file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.agents import version
from relay.agents.events import EarlierTextRead, TextRead
from relay.agents.launchers import without_launchers
from relay.agents.profile import Profile
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe
from relay.rules import command
from relay.state.events import StateChanged
from relay.storage.progress import Progress

LIMIT = 10.0
"""Seconds for a program to print its version; aider takes three on an idle machine."""

SLOW_LIMIT = 60.0
"""The same when nobody waits for the program, and it runs at the lowest CPU priority."""

_STARTED = frozenset({"ready", "prompting", "failed"})

_ANSWER = "version"  # the note to later sessions

_LEAST = ("nice", "-n", "19")  # the lowest CPU priority: nobody waits for the answer


async def ask(
    program: str,
    directory: Path,
    env: Mapping[str, str],
    *,
    before: Sequence[str] = (),
    limit: float | None = None,
) -> str:
    """Return the version that `program` prints; "" if none within `limit` seconds (default: LIMIT).

    It has no terminal, and is killed with its descendants. before: the command that runs the program, if any.
    """
    argv = [*before, program, version.ASKS]
    result = await command.run(argv, b"", cwd=directory, env=env, timeout=limit or LIMIT)
    printed = result.stdout if result.exit_code == 0 else b""
    return version.find(printed.decode("utf-8", "replace"))


class AgentVersion:
    """Reports the agent's version to `relay explain`, with the versions that `profile` was checked with.

    argv: the agent's command. relay runs it only if its name is that of this kind of agent: a user's script
          that starts the agent may do anything.
    """

    def __init__(
        self,
        bus: EventBus,
        profile: Profile,
        argv: Sequence[str],
        directory: Path,
        env: Mapping[str, str],
        progress: Progress,
    ) -> None:
        self._bus = bus
        self._profile = profile
        self._argv = without_launchers(argv)
        self._directory = directory
        self._env = env
        self._progress = progress
        self._version = ""
        self._started = asyncio.Event()

    @handles(StateChanged)
    def changed(self, event: StateChanged) -> None:
        """Note that the agent has started: asking for its version no longer slows its start."""
        if event.after in _STARTED:
            self._started.set()

    @handles(TextRead, EarlierTextRead)
    def read(self, event: TextRead) -> None:
        self._version = next((said.version for said in event.texts if said.version), self._version)

    async def run(self) -> None:
        """Ask the program, unless an earlier session has; the agent's own record takes precedence."""
        if not self._profile.recognises(self._argv):
            return
        found = next((note["version"] for note in self._progress.notes if note["note"] == _ANSWER), None)
        if found is None:
            await self._started.wait()
            found = await ask(self._argv[0], self._directory, self._env, before=_LEAST, limit=SLOW_LIMIT)
            self._progress.note(_ANSWER, version=found)
        self._version = self._version or found

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        return {"version": self._version or None, "checked": list(self._profile.checked)}
