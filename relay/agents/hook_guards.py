"""The guards in force: a file next to a session's socket, for the agent's hooks while no session answers.

    NAME.sock    the session's socket
    NAME.guards  one line: the agent's name, and the events that a rule or a handler may refuse
                     Alice tool_pre prompt_submit

The launch writes which guards may be in force, the session which are.  The file applies while no session
answers, and is removed with the shim.  relay.agents.hook_client reads it; as that imports nothing, it has its
own copy of the suffix and the event names.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from relay.agents.hook_event import NativeName

GUARDED = frozenset({NativeName.TOOL_PRE, NativeName.PROMPT_SUBMIT})
"""The events that may be guarded: they can refuse what the agent, or its user, is about to do."""


def path_of(socket: str) -> str:
    return socket.removesuffix(".sock") + ".guards"


def write(socket: str, name: str, guarded: Collection[NativeName]) -> None:
    """Write the `guarded` events of the agent `name`, atomically, as their only writer. Raise OSError."""
    path = Path(path_of(socket))
    new = path.with_suffix(".guards.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, (" ".join([name, *sorted(GUARDED.intersection(guarded))]) + "\n").encode())
    finally:
        os.close(descriptor)
    new.replace(path)
