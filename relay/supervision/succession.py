"""The agent that follows one that has ended: with its conversation, where that is known and allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay.agents.conversation import Conversation, resumable
from relay.agents.profile import Profile
from relay.agents.resume import resume_command
from relay.supervision.policy import Resume


class Succession:
    """Makes the command lines of the agents that follow one.

    command: the one that started the first. fresh: the one that begins a new conversation, if `command` does
             not.
    """

    def __init__(
        self, profile: Profile, command: Sequence[str], resume: Resume, fresh: tuple[str, ...] = ()
    ) -> None:
        self._profile = profile
        self._command = fresh or command
        self._resume = resume
        self.fresh = fresh or None

    @property
    def required(self) -> bool:
        """True if no agent may follow without the conversation of the last one."""
        return self._resume == "require"

    async def resumed(
        self, conversation: Conversation | None, *, asked: bool = False
    ) -> tuple[str, ...] | None:
        """Return the command line that goes on with `conversation`; None if the next agent begins anew.

        asked: the user wants it, whatever the policy says.
        """
        if conversation is None or (self._resume == "never" and not asked):
            return None
        if not await asyncio.to_thread(resumable, conversation):
            return None
        command = resume_command(self._profile, self._command, conversation)
        return None if command is None else tuple(command)
