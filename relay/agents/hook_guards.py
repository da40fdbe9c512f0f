"""The guards in force: a file next to a session's socket, for hooks of the agent that no session answers.

    NAME.sock    the session's socket
    NAME.guards  one line: the agent's name, and the events that a rule or a handler may refuse
                     Alice tool_pre prompt_submit

The launch writes what may be in force, the session what is.  It holds while no session answers, and goes with
the shim.  relay.agents.hook_client reads it, which imports nothing, and so has the suffix and the names of
the events for itself.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from relay.agents.hook_event import NativeName

GUARDED = frozenset({NativeName.TOOL_PRE, NativeName.PROMPT_SUBMIT})
"""The events that may be guarded: what the agent, or its user, is about to do can be refused there."""


def path_of(socket: str) -> str:
    """Return the path of the file next to the socket `socket`."""
    return socket.removesuffix(".sock") + ".guards"


def write(socket: str, name: str, guarded: Collection[NativeName]) -> None:
    """Write that `guarded` are guarded for the agent called `name`. Raise OSError.

    A reader sees the old file or the new one. Only one process at a time writes.
    """
    path = Path(path_of(socket))
    new = path.with_suffix(".guards.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, (" ".join([name, *sorted(GUARDED.intersection(guarded))]) + "\n").encode())
    finally:
        os.close(descriptor)
    new.replace(path)
