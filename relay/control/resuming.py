"""The command line that resumes the conversation of an ended agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relay.agents import catalog
from relay.agents.conversation import Conversation, resumable
from relay.agents.resume import resume_command
from relay.errors import ConfigError
from relay.home import Home
from relay.supervision.records import AgentRecord


def continued(home: Home, record: AgentRecord, command: Sequence[str], directory: Path) -> list[str] | None:
    """Return `command` with the options that resume the conversation of `record`; None if that is impossible.

    directory: the one to run the agent in; agents find a conversation only in the directory it started in.
    """
    conversation = Conversation.from_json(record.conversation or {})
    if conversation is None or conversation.directory != directory or not resumable(conversation):
        return None
    try:
        profile = catalog.load(conversation.agent, home)
    except ConfigError:
        return None
    return resume_command(profile, command, conversation)
