"""The successor of an ended agent, which resumes its conversation if known and allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay.agents.conversation import Conversation, resumable
from relay.agents.profile import Profile
from relay.agents.resume import resume_command
from relay.supervision.policy import Resume


class Succession:
    """Makes the command lines of an agent's successors.

    command: the one that started the first agent. fresh: the one that starts a new conversation, if `command`
             does not. converses: the agent has conversations with the user. env, directory: the agents'.
    """

    def __init__(
        self,
        profile: Profile,
        command: Sequence[str],
        resume: Resume,
        fresh: tuple[str, ...] = (),
        *,
        converses: bool = True,
        env: Mapping[str, str],
        directory: Path,
    ) -> None:
        self._profile = profile
        self._env = env
        self._directory = directory
        self._command = fresh or command
        self._resume = resume
        self.converses = converses
        self.fresh = fresh or None

    @property
    def required(self) -> bool:
        """True if a successor must resume the last agent's conversation."""
        return self._resume == "require"

    @property
    def resumes(self) -> bool:
        """True if successors of this kind of agent resume its conversation when they can."""
        return bool(self._profile.resume.words) and self._resume != "never"

    def missing(self, command: tuple[str, ...] | None) -> str:
        """Return the program of `command` (None: of the first one) if it is missing now, else "".

        An update may be replacing it at this moment.
        """
        program = (command or self.fresh or self._command)[0]
        path = str(self._directory / program) if "/" in program else program
        from shutil import which  # with all archivers, 2 ms

        return "" if which(path, path=self._env.get("PATH")) else program

    async def resumed(
        self, conversation: Conversation | None, *, asked: bool = False
    ) -> tuple[str, ...] | None:
        """Return the command line that resumes `conversation`; None if the next agent starts a new one.

        asked: the user wants it, whatever the policy says.
        """
        if conversation is None or (self._resume == "never" and not asked):
            return None
        if not await asyncio.to_thread(resumable, conversation):
            return None
        command = resume_command(self._profile, self._command, conversation)
        return None if command is None else tuple(command)
