"""Finds the agent's version: from its own record, or by running the program once it has started.

It is asked once in the agent's life: what it has answered to one session, later ones know from the progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.agents import version
from relay.agents.events import TextRead
from relay.agents.launchers import without_launchers
from relay.agents.profile import Profile
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe
from relay.rules import command
from relay.state.events import StateChanged
from relay.storage.progress import Progress

LIMIT = 10.0
"""Seconds for a program to print its version; aider takes three on a machine with nothing else to do."""

PATIENCE = 60.0
"""The same where nobody waits for it, and it has the least of the processor's time."""

_STARTED = frozenset({"ready", "prompting", "failed"})

_ANSWER = "version"  # the note to later sessions

_LEAST = ("nice", "-n", "19")  # before the program: nobody waits for its answer


async def ask(
    program: str,
    directory: Path,
    env: Mapping[str, str],
    *,
    before: Sequence[str] = (),
    limit: float | None = None,
) -> str:
    """Return the version that `program` prints; "" if it does not, within `limit` seconds (default: LIMIT).

    It has no terminal, and is ended with all that it starts. before: what runs the program, if anything does.
    """
    argv = [*before, program, version.ASKS]
    result = await command.run(argv, b"", cwd=directory, env=env, timeout=limit or LIMIT)
    printed = result.stdout if result.exit_code == 0 else b""
    return version.find(printed.decode("utf-8", "replace"))


class AgentVersion:
    """Tells `relay explain` the version of the agent, where `profile` has some that were checked.

    argv: the command of the agent. It is asked only if its name says that it is this agent: a script of the
          user's that starts it may do anything.
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
        """Note that the agent has started: from now on it costs its start nothing to ask."""
        if event.after in _STARTED:
            self._started.set()

    @handles(TextRead)
    def read(self, event: TextRead) -> None:
        self._version = next((said.version for said in event.texts if said.version), self._version)

    async def run(self) -> None:
        """Ask the program, unless an earlier session has; what the agent's record tells counts more."""
        if not self._profile.recognises(self._argv):
            return
        found = next((note["version"] for note in self._progress.notes if note["note"] == _ANSWER), None)
        if found is None:
            await self._started.wait()
            found = await ask(self._argv[0], self._directory, self._env, before=_LEAST, limit=PATIENCE)
            self._progress.note(_ANSWER, version=found)
        self._version = self._version or found

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any] | None:
        if question.brief:
            return None
        return {"version": self._version or None, "checked": list(self._profile.checked)}
